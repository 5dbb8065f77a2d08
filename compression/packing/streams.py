"""The arrays of a packed file's streams, as a student's weight forms write them (compression.students.weights)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from common.errors import UserError
from compression.packing.arrays import Stored, store, store_first, with_tables
from compression.packing.header import HeaderWriter
from compression.runtime.entropy import MOST_TABLES
from compression.runtime.weights import LARGEST, MASKED


class Owned(NamedTuple):
    """An array in a stream, and its owners: (owner, number of its values), in order."""

    array: Stored
    owners: list[tuple[str, int]]


class Streams:
    """The header, the arrays to be decoded first, all others, and the float32 numbers that matrices share."""

    def __init__(self) -> None:
        self.header = HeaderWriter()
        self.first: list[Owned] = []
        self.main: list[Owned] = []
        self._floats: list[tuple[str, np.ndarray]] = []
        self._tables_left = {"first": MOST_TABLES, "main": MOST_TABLES}

    def add_first(self, array: Stored, owner: str) -> None:
        """Add an array to the first stream, and its description to the header."""
        array = self._within(array, "first")
        array.write(self.header, first=True)
        self.first.append(Owned(array, [(owner, array.count)]))

    def add(self, array: Stored, owners: list[tuple[str, int]], owner_of_classes: str) -> None:
        """Add an array to the main stream, its classes to the first one, and its description to the header."""
        array = self._within(array, "main")
        if array.classes is not None:
            array.classes = self._within(array.classes, "first")
        array.write(self.header)
        self.main.append(Owned(array, owners))
        if array.classes is not None:
            self.first.append(Owned(array.classes, [(owner_of_classes, array.classes.count)]))

    def _within(self, array: Stored, stream: str) -> Stored:
        """Return the array in a form whose tables fit in what is left of the stream's MOST_TABLES."""
        array = with_tables(array, self._tables_left[stream])
        self._tables_left[stream] -= len(array.steps)
        return array

    def add_floats(self, values: torch.Tensor, owner: str) -> None:
        """Add numbers to those that matrices and biases share. Raises UserError for one that cannot be packed."""
        self._floats.append((owner, _finite(values, owner).reshape(-1)))

    def write_floats(self) -> None:
        """Write the shared numbers as four planes."""
        owners = [(owner, len(values)) for owner, values in self._floats]
        for plane in _planes(np.concatenate([values for _, values in self._floats])):
            self.add(store(plane), owners, "settings")


class MatrixStreams:
    """The part of the streams that one matrix writes to, see compression.students.weights."""

    def __init__(self, streams: Streams, matrix: str) -> None:
        self._streams, self._matrix = streams, matrix
        self.byte, self.number = streams.header.byte, streams.header.number

    def cost(self, codes: torch.Tensor) -> float:
        """Return the bits that codes take in the main stream."""
        return store(codes.cpu().numpy()).cost

    def codes(self, codes: torch.Tensor) -> None:
        """Write uint8 codes to the main stream."""
        self._add("codes", store(codes.cpu().numpy()))

    def zero_points(self, zero_points: torch.Tensor) -> None:
        """Write uint8 zero points to the stream that is decoded first."""
        self._streams.add_first(store_first(zero_points.cpu().numpy()), f"{self._matrix}.zero_point")

    def floats(self, name: str, values: torch.Tensor) -> None:
        """Write float32 numbers among those that all matrices share."""
        self._streams.add_floats(values, f"{self._matrix}.{name}")

    def planes(self, values: torch.Tensor) -> None:
        """Write the bytes of all numbers, or a mask and the bytes of those that are not zero: whichever is smaller."""
        array = _finite(values, self._matrix)
        mask = array != 0
        whole = [store(plane) for plane in _planes(array)]
        kept = [store_first(plane) for plane in _planes(array[mask])]
        stored_mask = store_first(mask.astype(np.uint8))
        masked = sum(stored.cost for stored in [*kept, stored_mask]) < sum(stored.cost for stored in whole)
        self.byte(MASKED * masked)
        if masked:
            self._streams.add_first(stored_mask, f"{self._matrix}.mask")
        for stored in kept if masked else whole:
            self._add("value", stored)

    def factor(self, name: str) -> MatrixStreams:
        """Return the streams of a factor of this matrix."""
        return MatrixStreams(self._streams, f"{self._matrix}.{name}")

    def _add(self, name: str, stored: Stored) -> None:
        owner = f"{self._matrix}.{name}"
        self._streams.add(stored, [(owner, stored.count)], owner)


def _planes(values: np.ndarray) -> list[np.ndarray]:
    """Return the bytes of floats, lowest first: uint8 arrays of the floats' shape. Higher bytes repeat more."""
    kind = "<f2" if values.dtype == np.float16 else "<f4"
    data = np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(*values.shape, np.dtype(kind).itemsize)
    return [data[..., i] for i in range(data.shape[-1])]


def _finite(values: torch.Tensor, name: str) -> np.ndarray:
    array = values.detach().cpu().numpy()
    if array.size and not np.abs(array.astype(np.float32)).max() <= LARGEST:
        raise UserError(f"{name}: a weight is not finite, or larger than {LARGEST:g}")
    return array
