"""Matrices as they are stored: floats (perhaps masked), affine codes, codebooks, products of two matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .entropy import BLOCK, MOST_TABLES, Array
from .reader import MOST_VALUES, PackedError, Reader

FLOAT32, FLOAT16, AFFINE, CODEBOOK, PRODUCT, KRONECKER = range(6)
"""How a matrix is stored."""
MASKED, RESIDUAL, PER_ROW, PER_COLUMN = 1, 1, 2, 4
"""Options: of float matrices; of affine codes; scales (or codebooks) for each row, scales for each column."""
LARGEST = np.float32(1e4)
"""Largest absolute value of a weight, so that the logits of any text are finite."""


class Streams:
    """All arrays of a file in the order of its two streams, and the number of float32 values that matrices share.

    first: arrays that are decoded before the others, which depend on them: masks, zero points, classes, states. masked:
    masks, each with the byte planes of the values that it selects.
    """

    def __init__(self) -> None:
        self.first: list[Array] = []
        self.main: list[Array] = []
        self.masked: list[tuple[Array, list[Array]]] = []
        self.floats = 0
        self._total = self._first_tables = self._main_tables = 0

    def count(self, rows: int, columns: int = 1) -> int:
        """Return rows * columns. Raises PackedError when the values of a file are too many."""
        self._total += rows * columns
        if self._total > MOST_VALUES:
            raise PackedError(f"the file has more than {MOST_VALUES:,} numbers")
        return rows * columns

    def add_first(self, reader: Reader, count: int) -> Array:
        """Read the description of an array of the first stream. Raises PackedError when its tables are too many."""
        return self._add_first(Array.read(reader, count, first=True))

    def _add_first(self, array: Array) -> Array:
        self.first.append(array)
        self._first_tables = _counted(self._first_tables, array)
        return array

    def add(self, reader: Reader, count: int, columns: int = BLOCK) -> Array:
        """Read the description of an array of the main stream; its classes belong to the first one.

        Raises PackedError when a stream's tables are too many.
        """
        self.main.append(array := Array.read(reader, count, columns))
        self._main_tables = _counted(self._main_tables, array)
        if array.classes is not None:
            self._add_first(array.classes)
        return array

    def add_floats(self, count: int) -> slice:
        """Reserve float32 values. Returns where they are among the shared ones."""
        self.floats += self.count(count)
        return slice(self.floats - count, self.floats)

    def apply_masks(self) -> None:
        """Set how many values the masked byte planes hold. Called after the first stream is decoded."""
        for mask, planes in self.masked:
            if mask.values.max(initial=0) > 1:
                raise PackedError("a mask has values other than 0 and 1")
            for plane in planes:
                plane.count = int(np.count_nonzero(mask.values))


def _counted(tables: int, array: Array) -> int:
    tables += len(array.weights)
    if tables > MOST_TABLES:
        raise PackedError("a stream has too many tables")
    return tables


class Matrix:
    """A matrix: its description is read from the header, its value is known after the streams are decoded.

    factor: whether it is a factor of a product, which must not be a product itself.
    """

    def __init__(self, reader: Reader, streams: Streams, rows: int, columns: int, factor: bool = False) -> None:
        self.shape = rows, columns
        count = streams.count(rows, columns)
        width = columns if columns > 1 else BLOCK
        self.form = reader.byte(KRONECKER + 1)
        if self.form in (PRODUCT, KRONECKER):
            if factor:
                raise PackedError("a factor of a product is itself a product")
            rank = reader.size()
            self.across, self.height = (reader.size(), reader.size()) if self.form == KRONECKER else (1, 1)
            if rows % self.height or columns % self.across:
                raise PackedError("the blocks of a Kronecker product do not fit its matrix")
            blocks = rows // self.height * self.across
            self.left = Matrix(reader, streams, blocks, rank, factor=True)
            self.right = Matrix(reader, streams, rank, rows * columns // blocks, factor=True)
            return
        self.option = reader.byte(8)
        by_row, by_column = bool(self.option & PER_ROW), bool(self.option & PER_COLUMN)
        if self.form in (FLOAT32, FLOAT16):
            self.mask = streams.add_first(reader, count) if self.option & MASKED else None
            self.planes = [streams.add(reader, count, width) for _ in range(4 if self.form == FLOAT32 else 2)]
            if self.mask is not None:
                streams.masked.append((self.mask, self.planes))
                if any(plane.classes is not None for plane in self.planes):
                    raise PackedError("a masked array is coded by row or column")
        elif self.form == AFFINE:
            self._scales_shape = rows if by_row else 1, columns if by_column else 1
            scales = self._scales_shape[0] * self._scales_shape[1]
            self.zero_point = streams.add_first(reader, scales)
            self.codes = streams.add(reader, count, width)
            self.floats = streams.add_floats(scales)
        else:
            self.levels = reader.byte() + 1
            self.codes = streams.add(reader, count, width)
            self.floats = streams.add_floats(self.levels * (rows if by_row else 1))

    def value(self, floats: np.ndarray) -> np.ndarray:
        """Return the matrix, float32 [rows, columns]. floats: float32, all shared values."""
        if self.form in (PRODUCT, KRONECKER):
            blocks = self.left.value(floats) @ self.right.value(floats)
            rows, columns = self.shape
            cut = blocks.reshape(rows // self.height, self.across, self.height, columns // self.across)
            return checked(cut.swapaxes(1, 2).reshape(self.shape))
        if self.form in (FLOAT32, FLOAT16):
            values = join_planes(self.planes, "<f4" if self.form == FLOAT32 else "<f2")
            if self.mask is not None:
                whole = np.zeros(self.mask.count, np.float32)
                whole[self.mask.values > 0] = values
                values = whole
            return checked(values).reshape(self.shape)
        codes = self.codes.values.reshape(self.shape)
        if self.form == AFFINE:
            zero_point = self.zero_point.values.astype(np.uint8).reshape(self._scales_shape)
            if self.option & RESIDUAL:
                codes = codes.astype(np.uint8) + zero_point
            values = codes.astype(np.float32)
            values -= zero_point
            values *= floats[self.floats].reshape(self._scales_shape)
            return checked(values)
        if codes.max(initial=0) >= self.levels:
            raise PackedError("a code is not in the codebook")
        codebook = floats[self.floats].reshape(-1, self.levels)
        return codebook[0][codes] if len(codebook) == 1 else np.take_along_axis(codebook, codes.astype(np.int64), 1)


def join_planes(planes: Sequence[Array], kind: str) -> np.ndarray:
    """Return float32 values from arrays of their bytes, lowest byte first. kind: a little-endian float type."""
    joined = np.stack([plane.values.astype(np.uint8) for plane in planes], 1)
    return joined.view(kind)[:, 0].astype(np.float32, copy=False)


def checked(values: np.ndarray) -> np.ndarray:
    """Return the values. Raises PackedError if one is not finite, or too large."""
    # Written so that a NaN fails too.
    if values.size and not np.abs(values).max() <= LARGEST:
        raise PackedError(f"a weight is not finite, or larger than {LARGEST:g}")
    return values
