"""The entropy decoder: rANS (Duda, 2013) with many interleaved states ("lanes"), each decoding one symbol a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compression.runtime.reader import PackedError, Reader

RAW, CONSTANT, CODED, BY_ROW, BY_COLUMN = range(5)
"""How an array is stored: as it is, as one value, coded with one table, or with a table for each class of rows or
columns."""
BLOCK = 64
"""Columns of an array that has one dimension."""
CODE_BITS = 13
"""log2 of the sum of a table's frequencies."""
LOWEST_STATE = 1 << 16
MOST_TABLES = 128
MOST_STEPS = 4096
SYMBOLS_PER_BYTE = 352
"""No table gives a symbol more than 63 / 64, so that each takes at least log2(64 / 63) of a bit."""
_QUARTER_POWERS = np.array((65536, 77936, 92682, 110218), np.int64)
"""2 ** (16 + i / 4)."""


def frequencies(weights: np.ndarray, bits: int) -> np.ndarray:
    """Return integer frequencies in proportion to weights (int64, not negative) that sum to 1 << bits.

    A frequency is at least 1 where the weight is positive, and at most 63 / 64 of the sum. Raises PackedError for fewer
    than two symbols or too many.
    """
    present = int(np.count_nonzero(weights))
    whole = 1 << bits
    if not 2 <= present <= whole >> 1:
        raise PackedError(f"a table of {present} symbols")
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
    """An array [rows, columns] of bytes: first how it is stored, then, once its stream is decoded, its values.

    values: uint8 or uint16 [count]; of one dimension: rows of BLOCK values, the last one shorter.
    """

    def __init__(self, count: int, columns: int = BLOCK, weights: Sequence[np.ndarray] = ()) -> None:
        self.count, self.columns = count, columns
        self.mode, self.constant = CODED, 0
        self.weights = list(weights)
        self.classes: Array | None = None
        self.values = np.zeros(0, np.uint8)

    @classmethod
    def read(cls, reader: Reader, count: int, columns: int = BLOCK) -> Array:
        """Read how an array of the main stream is stored."""
        array = cls(count, columns)
        array.mode = reader.byte(BY_COLUMN + 1)
        if array.mode in (BY_ROW, BY_COLUMN):
            tables = reader.byte(MOST_TABLES)
            array.classes = cls.read_aside(reader, array.rows if array.mode == BY_ROW else columns)
            array.weights = [_read_table(reader) for _ in range(tables)]
        else:
            array._read_parameter(reader)
        return array

    @classmethod
    def read_aside(cls, reader: Reader, count: int) -> Array:
        """Read how an array of the first stream is stored: never by classes, and raw values are in the header."""
        array = cls(count)
        array.mode = reader.byte(CODED + 1)
        array._read_parameter(reader)
        if array.mode == RAW:
            array.values = np.frombuffer(reader.take(count), np.uint8)
        return array

    def _read_parameter(self, reader: Reader) -> None:
        if self.mode == CONSTANT:
            self.constant = reader.byte()
        elif self.mode == CODED:
            self.weights = [_read_table(reader)]

    @property
    def rows(self) -> int:
        """Rows, the last one perhaps shorter."""
        return -(-self.count // self.columns)

    def tables(self) -> np.ndarray:
        """Return the index of the table that each value is coded with, uint16 [count]."""
        if self.classes is None:
            return np.zeros(self.count, np.uint16)
        classes = self.classes.values.astype(np.uint16)
        if len(classes) and classes.max() >= len(self.weights):
            raise PackedError("a row of numbers has no table")
        if self.mode == BY_ROW:
            return np.repeat(classes, self.columns)[: self.count]
        return np.tile(classes, self.rows)[: self.count]


def _read_table(reader: Reader) -> np.ndarray:
    deltas = np.frombuffer(reader.take(1 + reader.byte()), np.uint8)
    steps = np.cumsum(deltas, dtype=np.uint8)
    if steps.max(initial=0) > 63:
        raise PackedError("a table's entry is too large")
    return step_weights(steps)


def decode_stream(reader: Reader, arrays: Sequence[Array], bits: int, limit: int) -> bytes:
    """Fill in the values of all coded and constant arrays of a stream. Returns the bytes that its states carry."""
    for array in arrays:
        if array.mode == CONSTANT:
            array.values = np.full(array.count, array.constant, np.uint8)
        elif array.mode >= CODED and not array.count:
            array.values = np.zeros(0, np.uint8)
    coded = [array for array in arrays if array.mode >= CODED and array.count]
    total = sum(array.count for array in coded)
    if not total:
        return b""
    if total > limit or sum(len(array.weights) for array in coded) > MOST_TABLES:
        raise PackedError("a stream claims more numbers than it can hold")
    slots, symbols, first = _slots(coded, bits)
    lanes = reader.number(total)
    if not lanes or -(-total // lanes) > MOST_STEPS:
        raise PackedError("a stream has too few lanes")
    states = np.frombuffer(reader.take(4 * lanes), "<u4").astype(np.uint32)
    words = np.frombuffer(reader.rest(), "<u2", reader.left // 2)
    decoded = np.concatenate([array.tables() + np.uint16(start) for array, start in zip(coded, first, strict=True)])
    decoded = decoded.astype(np.uint32)
    decoded <<= bits
    reader.take(2 * _decode(states, words, decoded, slots, bits))
    start = 0
    for array in coded:
        array.values = symbols[decoded[start : start + array.count]]
        start += array.count
    carried = states - LOWEST_STATE
    if states.min() < LOWEST_STATE or carried.max() >= LOWEST_STATE:
        raise PackedError("a stream does not end where it began")
    return carried.astype("<u2").tobytes()


def _slots(coded: Sequence[Array], bits: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return for each slot of each table frequency << 16 | offset within the symbol's interval, and the symbol; and the
    index of each array's first table."""
    slots, symbols, first = [], [], []
    for array in coded:
        first.append(len(slots))
        for weights in array.weights:
            frequency = frequencies(weights, bits)
            symbol = np.repeat(np.arange(len(frequency), dtype=np.uint16), frequency)
            starts = np.cumsum(frequency) - frequency
            slots.append((frequency[symbol] << 16 | np.arange(1 << bits) - starts[symbol]).astype(np.uint32))
            symbols.append(symbol)
    return np.concatenate(slots), np.concatenate(symbols), first


def _decode(states: np.ndarray, words: np.ndarray, decoded: np.ndarray, slots: np.ndarray, bits: int) -> int:
    """Decode in place. Returns how many words were read.

    decoded: table index << bits of each value, becomes the index of its slot; states: [lanes], become the last ones.
    """
    lanes, read, mask = len(states), 0, np.uint32((1 << bits) - 1)
    shift, half, low = np.uint32(bits), np.uint32(16), np.uint32(0xFFFF)
    for start in range(0, len(decoded), lanes):
        slot = decoded[start : start + lanes]
        x = states[: len(slot)]
        slot |= x & mask
        entry = slots[slot]
        x >>= shift
        x *= entry >> half
        x += entry & low
        small = (x < LOWEST_STATE).nonzero()[0]
        if len(small):
            more = words[read : read + len(small)]
            if len(more) < len(small):
                raise PackedError("a stream ends too early")
            x[small] = x[small] << half | more
            read += len(small)
    return read
