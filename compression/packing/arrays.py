"""How an array of small numbers is stored: raw, as one constant, or entropy-coded with one table or several.

With several, every row (or every column) of a matrix has the table of its class: rows of an embedding that were pruned,
gates of an LSTM, columns of an embedding differ in their distributions. Classes are assigned as in k-means,
with the bits that a row would take as the distance.

Deflate and LZMA were never smaller for any array, see docs/format.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib

import numpy as np

from compression.packing.ans import Coded, table_bits, table_steps, write_table
from compression.packing.head import HeadWriter
from compression.runtime import BLOCK, BY_COLUMN, BY_ROW, CODE_BITS, CODED, CONSTANT, RAW, step_weights

CLASSES = (2, 3, 4, 8)
_ROUNDS = 5
_NOISE = 0.99
"""An array that one table does not make smaller than this share is not tried with classes."""


@dataclasses.dataclass
class Stored:
    """An array and how it is stored. symbols: uint8 [count]; cost: bits, tables and classes included."""

    symbols: np.ndarray
    columns: int
    mode: int
    cost: float
    steps: list[np.ndarray] = dataclasses.field(default_factory=list)
    classes: Stored | None = None

    def write(self, head: HeadWriter) -> None:
        """Write the array's description, as runtime.Array reads it."""
        head.byte(self.mode)
        if self.mode == CONSTANT:
            head.byte(int(self.symbols[0]) if len(self.symbols) else 0)
        if self.classes is not None:
            head.byte(len(self.steps))
            self.classes.write_aside(head)
        for steps in self.steps:
            write_table(head, steps)

    def write_aside(self, head: HeadWriter) -> None:
        """Write an array of the first stream: as `write`, and raw numbers go into the head."""
        self.write(head)
        if self.mode == RAW:
            head.bytes(self.symbols.tobytes())

    @property
    def tables(self) -> np.ndarray:
        """Which table each number is coded with."""
        if self.classes is None:
            return np.zeros(len(self.symbols), np.int64)
        lines = self.classes.symbols.astype(np.int64)
        rows = -(-len(self.symbols) // self.columns)
        spread = np.repeat(lines, self.columns) if self.mode == BY_ROW else np.tile(lines, rows)
        return spread[: len(self.symbols)]

    @property
    def coded(self) -> Coded:
        """For the entropy coder; of modes CODED and above."""
        return Coded(self.symbols, self.tables, [step_weights(steps) for steps in self.steps])

    @property
    def bits(self) -> np.ndarray:
        """Bits of each number in its stream, float64 [count]; 0 for a constant."""
        if self.mode in (RAW, CONSTANT):
            return np.full(len(self.symbols), 8.0 if self.mode == RAW else 0.0)
        costs = [table_bits(steps, CODE_BITS) for steps in self.steps]
        widest = max(map(len, costs))
        return np.stack([np.pad(cost, (0, widest - len(cost))) for cost in costs])[self.tables, self.symbols]


def store_aside(symbols: np.ndarray) -> Stored:
    """Return the smallest form of an array of the first stream, which has no classes. symbols: uint8, any shape."""
    return min(_plain(symbols.reshape(-1), BLOCK), key=lambda stored: stored.cost)


def store(symbols: np.ndarray) -> Stored:
    """Return the smallest form of an array of the main stream. symbols: uint8 [rows, columns], or [count].

    Results are cached: a search for a budget packs the same codes many times.
    """
    flat = np.ascontiguousarray(symbols).reshape(-1)
    matrix = symbols.ndim == 2 and symbols.shape[1] > 1
    columns = symbols.shape[1] if matrix else BLOCK
    key = hashlib.sha256(flat).digest() + columns.to_bytes(4, "little")
    if key not in _cache:
        if len(_cache) >= _CACHED:
            del _cache[next(iter(_cache))]
        _cache[key] = dataclasses.replace(_smallest(flat, columns, matrix), symbols=flat[:0])
    return dataclasses.replace(_cache[key], symbols=flat)


_cache: dict[bytes, Stored] = {}
_CACHED = 1024


def _smallest(flat: np.ndarray, columns: int, matrix: bool) -> Stored:
    forms = _plain(flat, columns)
    noise = len(forms) > 1 and forms[1].cost > _NOISE * forms[0].cost
    if forms[0].mode != CONSTANT and not noise and len(flat) > 2 * BLOCK:
        forms += _by_classes(flat, columns, BY_ROW)
        if matrix:
            forms += _by_classes(flat, columns, BY_COLUMN)
    return min(forms, key=lambda stored: stored.cost)


def _plain(flat: np.ndarray, columns: int) -> list[Stored]:
    counts = np.bincount(flat, minlength=1)
    if np.count_nonzero(counts) < 2:
        return [Stored(flat, columns, CONSTANT, 8.0)]
    steps = table_steps(counts)
    cost = float(table_bits(steps, CODE_BITS) @ counts[: len(steps)])
    return [
        Stored(flat, columns, RAW, 8.0 * len(flat)),
        Stored(flat, columns, CODED, cost + _tables_bits([steps]), [steps]),
    ]


def _tables_bits(steps: list[np.ndarray]) -> float:
    """Return about the bits of tables in the head, which is deflated as a whole."""
    head = HeadWriter()
    for table in steps:
        write_table(head, table)
    return 8.0 * min(len(head.data), len(zlib.compress(head.data, 6)) - 8)


def _by_classes(flat: np.ndarray, columns: int, mode: int) -> list[Stored]:
    rows = -(-len(flat) // columns)
    index = np.arange(len(flat))
    line = index // columns if mode == BY_ROW else index % columns
    lines = rows if mode == BY_ROW else columns
    width = int(flat.max()) + 1
    counts = np.bincount(line * width + flat, minlength=lines * width).reshape(lines, width)
    counts = counts.astype(np.float32)
    share = counts / np.maximum(1, counts.sum(1, keepdims=True))
    by_entropy = np.argsort(-(share * np.log2(np.where(share > 0, share, 1))).sum(1), kind="stable")
    forms = []
    for classes in CLASSES:
        if classes < lines:
            of_line = _cluster(counts, classes, by_entropy)
            steps = [table_steps(counts[of_line == c].sum(0)) for c in range(of_line.max() + 1)]
            if all(np.count_nonzero(step) > 1 for step in steps):
                forms.append(_classed(flat, columns, mode, of_line, steps, counts))
    return forms


def _classed(
    flat: np.ndarray, columns: int, mode: int, of_line: np.ndarray, steps: list[np.ndarray], counts: np.ndarray
) -> Stored:
    width = counts.shape[1]
    costs = np.stack([np.pad(table_bits(step, CODE_BITS), (0, width - len(step))) for step in steps])
    kinds = store_aside(of_line.astype(np.uint8))
    cost = float((costs[of_line] * counts).sum()) + kinds.cost + _tables_bits(steps)
    return Stored(flat, columns, mode, cost, steps, kinds)


def _cluster(counts: np.ndarray, classes: int, start: np.ndarray) -> np.ndarray:
    """Return the class of each line, int64, numbered from 0 without gaps.

    counts: how often each symbol occurs, float32 [lines, symbols]; start: an order of the lines, equal shares of which
    are the first classes.
    """
    of_line = np.empty(len(counts), np.int64)
    of_line[start] = np.arange(len(counts)) * classes // len(counts)
    for _ in range(_ROUNDS):
        # A symbol that a class lacks is expensive, not impossible.
        sums = np.eye(classes, dtype=np.float32)[of_line].T @ counts + np.float32(0.05)
        of_line = (counts @ (np.log2(sums.sum(1, keepdims=True)) - np.log2(sums)).T).argmin(1)
        of_line = np.unique(of_line, return_inverse=True)[1]
        classes = int(of_line.max()) + 1
    return of_line
