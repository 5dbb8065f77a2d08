"""How an array of small numbers is stored: raw, as one constant, or entropy-coded with one table or several.

With several, every row (or every column) of a matrix has the table of its class: pruned rows of an embedding, gates of
an LSTM and columns of an embedding differ in their distributions. Classes are assigned as in k-means, with the bits
that a row would take as the distance.

Deflate and LZMA were never smaller for any array, see docs/format.md.
"""

from __future__ import annotations

import copy
import hashlib
import operator
import zlib
from collections.abc import Sequence

import numpy as np

from compression.packing.ans import stacked, table_bits, table_steps, write_table
from compression.packing.header import HeaderWriter
from compression.runtime.entropy import BLOCK, BY_COLUMN, BY_ROW, CODED, CONSTANT, RAW, Array, step_weights

CLASSES = (2, 3, 4, 8)
_ROUNDS = 5
_NOISE = 0.99
"""Classes are not tried for an array that one table does not reduce below this share of its size."""


class Stored(Array):
    """An array with its values, uint8 [count]. cost: bits, tables and classes included; steps: the tables' bytes."""

    def __init__(
        self,
        values: np.ndarray,
        columns: int,
        mode: int,
        cost: float,
        steps: Sequence[np.ndarray] = (),
        classes: Stored | None = None,
    ) -> None:
        super().__init__(len(values), columns, mode, [step_weights(table) for table in steps])
        self.values, self.cost, self.steps, self.classes = values, cost, steps, classes

    def write(self, header: HeaderWriter, first: bool = False) -> None:
        """Write the array's description, as Array.read reads it. first: whether it is in the first stream."""
        header.byte(self.mode)
        if self.mode == CONSTANT:
            header.byte(int(self.values[0]) if self.count else 0)
        if self.classes is not None:
            header.byte(len(self.steps))
            self.classes.write(header, first=True)
        for steps in self.steps:
            write_table(header, steps)
        if self.mode == RAW and first:
            header.data += self.values.tobytes()

    def bits(self) -> np.ndarray:
        """Return the bits of each value in its stream, float64 [count]. Only for modes CODED and above."""
        return stacked([table_bits(steps) for steps in self.steps])[self.tables(), self.values]


def store_first(values: np.ndarray) -> Stored:
    """Return the smallest form of an array of the first stream, which has no classes. values: uint8, any shape."""
    return min(_plain(values.ravel(), BLOCK), key=operator.attrgetter("cost"))


def store(values: np.ndarray) -> Stored:
    """Return the smallest form of an array of the main stream. values: uint8 [rows, columns], or [count].

    Results are cached: a search for a budget packs the same codes many times.
    """
    flat = values.ravel()
    is_matrix = values.ndim == 2 and values.shape[1] > 1
    columns = values.shape[1] if is_matrix else BLOCK
    key = hashlib.sha256(flat).digest(), columns, is_matrix
    if key not in _cache:
        if len(_cache) >= _CACHED:
            del _cache[next(iter(_cache))]
        _cache[key] = _smallest(flat, columns, is_matrix)
        _cache[key].values = np.zeros(0, np.uint8)  # a view would keep the array in memory
    stored = copy.copy(_cache[key])
    stored.values = flat
    return stored


_cache: dict[tuple[bytes, int, bool], Stored] = {}
_CACHED = 1024


def _smallest(flat: np.ndarray, columns: int, is_matrix: bool) -> Stored:
    forms = _plain(flat, columns)
    noise = len(forms) > 1 and forms[1].cost > _NOISE * forms[0].cost
    if forms[0].mode != CONSTANT and not noise and len(flat) > 2 * BLOCK:
        forms += _by_classes(flat, columns, BY_ROW)
        if is_matrix:
            forms += _by_classes(flat, columns, BY_COLUMN)
    return min(forms, key=operator.attrgetter("cost"))


def with_tables(array: Stored, most: int) -> Stored:
    """Return the array's smallest form with at most `most` tables: itself, with a single table, or raw."""
    if len(array.steps) <= most:
        return array
    forms = [form for form in _plain(array.values, array.columns) if len(form.steps) <= most]
    return min(forms, key=operator.attrgetter("cost"))


def _plain(flat: np.ndarray, columns: int) -> list[Stored]:
    """Return the array raw and coded with one table, or as a constant."""
    counts = np.bincount(flat, minlength=1)
    if np.count_nonzero(counts) < 2:
        return [Stored(flat, columns, CONSTANT, 8.0)]
    steps = table_steps(counts)
    cost = float(table_bits(steps) @ counts[: len(steps)]) + _tables_cost([steps])
    return [Stored(flat, columns, RAW, 8.0 * len(flat)), Stored(flat, columns, CODED, cost, [steps])]


def _tables_cost(tables: Sequence[np.ndarray]) -> float:
    """Estimate the bits of tables in the header, which is deflated as a whole."""
    header = HeaderWriter()
    for steps in tables:
        write_table(header, steps)
    return 8.0 * min(len(header.data), len(zlib.compress(header.data, 6)) - 8)


def _by_classes(flat: np.ndarray, columns: int, mode: int) -> list[Stored]:
    """Return the array coded with each number of CLASSES, one table per class of rows or columns ("lines")."""
    index = np.arange(len(flat))
    line = index // columns if mode == BY_ROW else index % columns
    lines = -(-len(flat) // columns) if mode == BY_ROW else columns
    width = int(flat.max()) + 1
    counts = np.bincount(line * width + flat, minlength=lines * width).reshape(lines, width)
    counts = counts.astype(np.float32)
    share = counts / np.maximum(1, counts.sum(1, keepdims=True))
    by_entropy = np.argsort(-(share * np.log2(np.where(share > 0, share, 1))).sum(1), kind="stable")
    forms = []
    for classes in CLASSES:
        if classes < lines:
            of_line = _cluster(counts, classes, by_entropy)
            steps = [table_steps(counts[of_line == number].sum(0)) for number in range(of_line.max() + 1)]
            if all(np.count_nonzero(table) > 1 for table in steps):
                stored = store_first(of_line.astype(np.uint8))
                bits = stacked([table_bits(table) for table in steps])
                cost = float((bits[of_line] * counts).sum()) + stored.cost + _tables_cost(steps)
                forms.append(Stored(flat, columns, mode, cost, steps, stored))
    return forms


def _cluster(counts: np.ndarray, classes: int, start: np.ndarray) -> np.ndarray:
    """Return the class of each line, int64, numbered from 0 without gaps.

    counts: how often each symbol occurs, float32 [lines, symbols]; start: an order of the lines, divided equally into
    the initial classes.
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
