"""The entropy decoder: rANS (Duda, 2013) with many interleaved states ("lanes"), each decoding one symbol per step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .reader import PackedError, Reader

RAW, CONSTANT, CODED, BY_ROW, BY_COLUMN = range(5)
"""How an array is stored: uncompressed, as one value, coded with one table, or with a table for each class of rows or
columns."""
BLOCK = 64
"""Columns of an array that has one dimension."""
CODE_BITS = 13
"""log2 of the sum of a table's frequencies."""
LOWEST_STATE = 1 << 16
MOST_TABLES = 128
MOST_STEPS = 4096
SYMBOLS_PER_BYTE = 352
"""No table gives a symbol a probability above 63 / 64, so that each takes at least log2(64 / 63) bits."""
_QUARTER_POWERS = np.array((65536, 77936, 92682, 110218), np.int64)
"""2 ** (16 + i / 4)."""


def frequencies(weights: np.ndarray, bits: int = CODE_BITS) -> np.ndarray:
    """Return integer frequencies in proportion to weights (int64, not negative) that sum to 1 << bits.

    A frequency is at least 1 where the weight is positive, and at most 63 / 64 of the sum. Raises PackedError if there
    are fewer than two symbols or too many.
    """
    present = int(np.count_nonzero(weights))
    whole = 1 << bits
    if not 2 <= present <= whole - (whole >> 3):
        raise PackedError(f"a table has {present} symbols, too few or too many")
    result = np.where(weights > 0, np.maximum(1, weights * (whole - present) // weights.sum()), 0)
    top = int(result.argmax())
    result[top] += whole - result.sum()
    excess = result[top] - (whole - whole // 64)
    if excess > 0:
        others = result.copy()
        others[top] = 0
        result[top] -= excess
        result[others.argmax()] += excess
    return result


def step_weights(steps: np.ndarray) -> np.ndarray:
    """Return the weights, int64, that a table's bytes stand for: 2 ** (16 + step / 4), or 0 where the step is 0."""
    return np.where(steps > 0, _QUARTER_POWERS[steps & 3] << (steps >> 2).astype(np.int64), 0)


class Array:
    """An array [rows, columns] of bytes: how it is stored and, after its stream is decoded, its values.

    values: uint8 or uint16 [count]; if one-dimensional, in rows of BLOCK values, the last one shorter. weights: int64,
    of each table; classes: the table of each row or column.
    """

    def __init__(self, count: int, columns: int = BLOCK, mode: int = CODED, weights: Sequence[np.ndarray] = ()) -> None:
        self.count, self.columns, self.mode, self.weights = count, columns, mode, weights
        self.constant = 0
        self.classes: Array | None = None
        self.values = np.zeros(0, np.uint8)

    @classmethod
    def read(cls, reader: Reader, count: int, columns: int = BLOCK, first: bool = False) -> Array:
        """Read how an array is stored. first: of the first stream, without classes, with raw values in the header."""
        array = cls(count, columns, reader.byte((CODED if first else BY_COLUMN) + 1))
        tables = int(array.mode == CODED)
        if array.mode > CODED:
            tables = reader.byte(MOST_TABLES)
            if not tables:
                raise PackedError("an array has no tables")
            array.classes = cls.read(reader, array.rows if array.mode == BY_ROW else columns, first=True)
        elif array.mode == CONSTANT:
            array.constant = reader.byte()
        elif array.mode == RAW and first:
            array.values = np.frombuffer(reader.take(count), np.uint8)
        array.weights = [_read_table(reader) for _ in range(tables)]
        return array

    @property
    def rows(self) -> int:
        """Number of rows; the last one may be shorter."""
        return -(-self.count // self.columns)

    def tables(self) -> np.ndarray:
        """Return the index of the table that each value is coded with, uint16 [count]."""
        if self.classes is None:
            return np.zeros(self.count, np.uint16)
        classes = self.classes.values.astype(np.uint16)
        if classes.max() >= len(self.weights):
            raise PackedError("a row or column refers to a table that does not exist")
        spread = np.repeat(classes, self.columns) if self.mode == BY_ROW else np.tile(classes, self.rows)
        return spread[: self.count]


def _read_table(reader: Reader) -> np.ndarray:
    deltas = np.frombuffer(reader.take(1 + reader.byte()), np.uint8)
    steps = np.cumsum(deltas, dtype=np.uint8)
    if steps.max(initial=0) > 63:
        raise PackedError("a step of a table is larger than 63")
    return step_weights(steps)


class Lanes:
    """The states of a stream, uint32, and the words that refill them."""

    def __init__(self, reader: Reader, count: int) -> None:
        self._reader = reader
        self.states = np.frombuffer(reader.take(4 * count), "<u4").astype(np.uint32)
        self._words = np.frombuffer(reader.rest(), "<u2", reader.left // 2)
        self._read = 0

    def refill(self, states: np.ndarray) -> None:
        """Shift a word into each state that has become too small, in place."""
        small = (states < LOWEST_STATE).nonzero()[0]
        if len(small):
            words = self._words[self._read : self._read + len(small)]
            if len(words) < len(small):
                raise PackedError("a stream ends too early")
            states[small] = states[small] << np.uint32(16) | words
            self._read += len(small)

    def end(self) -> bytes:
        """Advance past the words that were read, and return the two bytes that each state carries."""
        self._reader.take(2 * self._read)
        carried = self.states - np.uint32(LOWEST_STATE)  # wraps around where the state is smaller
        if carried.max() >= LOWEST_STATE:
            raise PackedError("a stream ends in an invalid state")
        return carried.astype("<u2").tobytes()


def decode_stream(reader: Reader, arrays: Sequence[Array], limit: int) -> bytes:
    """Fill in the values of all coded and constant arrays of a stream. Returns the bytes that its states carry."""
    for array in arrays:
        if array.mode == CONSTANT:
            array.values = np.full(array.count, array.constant, np.uint8)
    coded = [array for array in arrays if array.mode >= CODED and array.count]
    total = sum(array.count for array in coded)
    if not total:
        return b""
    if total > limit:
        raise PackedError("a stream declares more numbers than it can hold")
    slots, symbols, first = _slots(coded)
    count = reader.number(total)
    if not count or -(-total // count) > MOST_STEPS:
        raise PackedError("a stream has too few lanes")
    lanes = Lanes(reader, count)
    tables = [array.tables() + np.uint16(start) for array, start in zip(coded, first)]
    decoded = np.concatenate(tables, dtype=np.uint32)
    decoded <<= CODE_BITS
    _decode(lanes, decoded, slots)
    carried = lanes.end()
    start = 0
    for array in coded:
        array.values = symbols[decoded[start : start + array.count]]
        start += array.count
    return carried


def _slots(coded: Sequence[Array]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return (frequency << 16 | offset within the symbol's interval, symbol) for each slot of each table, and the index
    of each array's first table."""
    slots, symbols, first = [], [], []
    for array in coded:
        first.append(len(slots))
        for weights in array.weights:
            frequency = frequencies(weights)
            symbol = np.repeat(np.arange(len(frequency), dtype=np.uint16), frequency)
            starts = np.cumsum(frequency) - frequency
            slots.append((frequency[symbol] << 16 | np.arange(1 << CODE_BITS) - starts[symbol]).astype(np.uint32))
            symbols.append(symbol)
    return np.concatenate(slots), np.concatenate(symbols), first


def _decode(lanes: Lanes, decoded: np.ndarray, slots: np.ndarray) -> None:
    """Decode in place. decoded: table index << CODE_BITS of each value, becomes the index of its slot."""
    mask, shift, half, low = map(np.uint32, ((1 << CODE_BITS) - 1, CODE_BITS, 16, 0xFFFF))
    for start in range(0, len(decoded), len(lanes.states)):
        slot = decoded[start : start + len(lanes.states)]
        x = lanes.states[: len(slot)]
        slot |= x & mask
        entry = slots[slot]
        x >>= shift
        x *= entry >> half
        x += entry & low
        lanes.refill(x)
