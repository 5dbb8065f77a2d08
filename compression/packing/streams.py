"""The arrays of a packed file's streams, as a student's weight forms write them (compression.students.weights)."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from common.errors import UserError
from compression.packing.arrays import Stored, store, store_aside
from compression.packing.head import HeadWriter
from compression.runtime import LARGEST, MASKED


@dataclasses.dataclass
class Owned:
    """An array in a stream, and whose it is: (owner, numbers of it) in order."""

    stored: Stored
    owners: list[tuple[str, int]]


class Streams:
    """What is collected for the streams: the arrays to be decoded first, all others, and shared float32 numbers."""

    def __init__(self, head: HeadWriter) -> None:
        self.head = head
        self.side: list[Owned] = []
        self.main: list[Owned] = []
        self._floats: list[tuple[str, np.ndarray]] = []

    def add_side(self, stored: Stored, owner: str) -> None:
        """Add an array to the first stream, and its description to the head."""
        stored.write_aside(self.head)
        self.side.append(Owned(stored, [(owner, len(stored.symbols))]))

    def add_main(self, stored: Stored, owners: list[tuple[str, int]], owner_of_classes: str) -> None:
        """Add an array to the main stream, its classes to the first one, and its description to the head."""
        stored.write(self.head)
        self.main.append(Owned(stored, owners))
        if stored.classes is not None:
            self.side.append(Owned(stored.classes, [(owner_of_classes, len(stored.classes.symbols))]))

    def add_floats(self, values: np.ndarray, owner: str) -> None:
        """Add numbers to those that matrices and biases share. Raises UserError for one that cannot be packed."""
        self._floats.append((owner, _finite(values, owner).reshape(-1)))

    def write_floats(self) -> None:
        """Write the shared numbers as four planes."""
        values = np.concatenate([values for _, values in self._floats])
        for plane in _planes(values):
            self.add_main(store(plane), [(owner, len(numbers)) for owner, numbers in self._floats], "settings")


@dataclasses.dataclass(frozen=True)
class MatrixStreams:
    """The part of the streams that one matrix writes to, see compression.students.weights."""

    streams: Streams
    matrix: str

    def byte(self, value: int) -> None:
        """Write one byte of the head."""
        self.streams.head.byte(value)

    def number(self, value: int) -> None:
        """Write a number of any size to the head."""
        self.streams.head.number(value)

    def cost(self, codes: torch.Tensor) -> float:
        """Return the bits that codes take in the main stream."""
        return store(codes.cpu().numpy()).cost

    def codes(self, name: str, codes: torch.Tensor) -> None:
        """Write uint8 codes to the main stream."""
        self._main(name, store(codes.cpu().numpy()))

    def side(self, name: str, codes: torch.Tensor) -> None:
        """Write uint8 codes to the stream that is decoded first."""
        self.streams.add_side(store_aside(codes.cpu().numpy()), f"{self.matrix}.{name}")

    def floats(self, name: str, values: torch.Tensor) -> None:
        """Write float32 numbers among those that all matrices share."""
        self.streams.add_floats(values.detach().cpu().numpy(), f"{self.matrix}.{name}")

    def planes(self, name: str, values: torch.Tensor) -> None:
        """Write the bytes of all numbers, or a mask and the bytes of those that are not zero: whichever is smaller."""
        array = _finite(values.detach().cpu().numpy(), self.matrix)
        mask = array != 0
        whole = [store(plane) for plane in _planes(array)]
        kept = [store_aside(plane) for plane in _planes(array[mask])]
        stored_mask = store_aside(mask.astype(np.uint8))
        masked = sum(stored.cost for stored in [*kept, stored_mask]) < sum(stored.cost for stored in whole)
        self.byte(MASKED if masked else 0)
        if masked:
            self.streams.add_side(stored_mask, f"{self.matrix}.mask")
        for stored in kept if masked else whole:
            self._main(name, stored)

    def factor(self, name: str) -> MatrixStreams:
        """Return the streams of a factor of this matrix."""
        return MatrixStreams(self.streams, f"{self.matrix}.{name}")

    def _main(self, name: str, stored: Stored) -> None:
        owner = f"{self.matrix}.{name}"
        self.streams.add_main(stored, [(owner, len(stored.symbols))], owner)


def _planes(values: np.ndarray) -> list[np.ndarray]:
    """Return the bytes of float numbers, lowest first: uint8 arrays of the numbers' shape. The higher ones repeat."""
    kind = "<f2" if values.dtype == np.float16 else "<f4"
    data = np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(*values.shape, np.dtype(kind).itemsize)
    return [np.ascontiguousarray(data[..., i]) for i in range(data.shape[-1])]


def _finite(values: np.ndarray, name: str) -> np.ndarray:
    if values.size and not np.abs(values.astype(np.float32)).max() <= LARGEST:
        raise UserError(f"{name}: a weight is not finite, or larger than {LARGEST:g}")
    return values
