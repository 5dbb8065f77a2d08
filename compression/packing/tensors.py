"""A student's matrices and biases as a packed file holds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from common.errors import UserError
from compression.packing.arrays import Stored, store, store_aside
from compression.packing.head import HeadWriter
from compression.runtime import AFFINE, CODEBOOK, FLOAT16, FLOAT32, LARGEST, MASKED, PRODUCT, RESIDUAL

Tensors = Mapping[str, np.ndarray]


@dataclasses.dataclass
class Named:
    """An array in a stream, and whose it is: (tensor's name, numbers of it) in order."""

    stored: Stored
    owners: list[tuple[str, int]]

    @classmethod
    def of_one(cls, stored: Stored, name: str) -> Named:
        """An array that is all one tensor's."""
        return cls(stored, [(name, len(stored.symbols))])


@dataclasses.dataclass
class Streams:
    """What has been gathered for the streams: arrays to be decoded first, all others, and shared float32 numbers."""

    side: list[Named] = dataclasses.field(default_factory=list)
    main: list[Named] = dataclasses.field(default_factory=list)
    floats: list[tuple[str, np.ndarray]] = dataclasses.field(default_factory=list)

    def add(self, head: HeadWriter, stored: Stored, name: str) -> None:
        """An array of the main stream, and its classes before."""
        stored.write(head)
        self.main.append(Named.of_one(stored, name))
        if stored.classes is not None:
            self.side.append(Named.of_one(stored.classes, name))

    def add_aside(self, head: HeadWriter, stored: Stored, name: str) -> None:
        """An array of the first stream."""
        stored.write_aside(head)
        self.side.append(Named.of_one(stored, name))

    def add_floats(self, values: np.ndarray, name: str) -> None:
        """Numbers for the planes that matrices and biases share."""
        self.floats.append((name, _finite(values, name).reshape(-1)))

    def write_floats(self, head: HeadWriter) -> None:
        """The shared numbers' four planes."""
        values = np.concatenate([values for _, values in self.floats])
        owners = [(name, len(values)) for name, values in self.floats]
        for plane in planes(values):
            stored = store(plane)
            stored.write(head)
            self.main.append(Named(stored, owners))
            if stored.classes is not None:
                self.side.append(Named.of_one(stored.classes, "settings"))


def planes(values: np.ndarray) -> list[np.ndarray]:
    """Bytes of float numbers, lowest first: a list of uint8 arrays of the numbers' shape. The higher ones repeat."""
    kind = "<f2" if values.dtype == np.float16 else "<f4"
    data = np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(*values.shape, np.dtype(kind).itemsize)
    return [np.ascontiguousarray(data[..., i]) for i in range(data.shape[-1])]


def write_matrix(head: HeadWriter, streams: Streams, tensors: Tensors, stem: str, rows: np.ndarray | None) -> None:
    """A matrix in any of its forms, as runtime.Matrix reads it. rows: the order to write rows in, or None for theirs.

    Raises UserError when the weights file holds none under this name.
    """
    if f"{stem}.left.value" in tensors or f"{stem}.left.codes" in tensors:
        head.byte(PRODUCT)
        head.number(shape_of(tensors, f"{stem}.left")[1])
        write_matrix(head, streams, tensors, f"{stem}.left", rows)
        write_matrix(head, streams, tensors, f"{stem}.right", None)
    elif f"{stem}.value" in tensors:
        value = tensors[f"{stem}.value"]
        _write_float(head, streams, _finite(value if rows is None else value[rows], stem), stem)
    elif f"{stem}.codebook" in tensors:
        _write_codebook(head, streams, tensors, stem, rows)
    elif f"{stem}.codes" in tensors:
        _write_affine(head, streams, tensors, stem, rows)
    else:
        raise UserError(f"the weights file holds no {stem}")


def shape_of(tensors: Tensors, stem: str) -> tuple[int, int]:
    """Rows and columns of a matrix. Raises UserError when the weights file holds none under this name."""
    for form in ("value", "codes"):
        if f"{stem}.{form}" in tensors:
            return tensors[f"{stem}.{form}"].shape
    if f"{stem}.left.value" in tensors or f"{stem}.left.codes" in tensors:
        return shape_of(tensors, f"{stem}.left")[0], shape_of(tensors, f"{stem}.right")[1]
    raise UserError(f"the weights file holds no {stem}")


def _write_float(head: HeadWriter, streams: Streams, values: np.ndarray, stem: str) -> None:
    """Planes of all numbers, or a mask and the planes of those that are not zero: whichever is smaller."""
    whole = [store(plane) for plane in planes(values)]
    mask = values != 0
    head.byte(FLOAT16 if values.dtype == np.float16 else FLOAT32)
    kept = [store_aside(plane) for plane in planes(values[mask])]
    marks = store_aside(mask.astype(np.uint8))
    masked = sum(stored.cost for stored in [*kept, marks]) < sum(stored.cost for stored in whole)
    head.byte(MASKED if masked else 0)
    if masked:
        streams.add_aside(head, marks, f"{stem}.mask")
    for stored in kept if masked else whole:
        streams.add(head, stored, f"{stem}.value")


def _write_affine(head: HeadWriter, streams: Streams, tensors: Tensors, stem: str, rows: np.ndarray | None) -> None:
    codes, scale, zero_point = (tensors[f"{stem}.{name}"] for name in ("codes", "scale", "zero_point"))
    by_row, by_column = scale.shape[0] > 1, scale.shape[1] > 1
    if rows is not None:
        codes = codes[rows]
        scale, zero_point = (scale[rows], zero_point[rows]) if by_row else (scale, zero_point)
    plain, residual = store(codes), store(codes - zero_point)
    smaller = residual.cost < plain.cost
    head.byte(AFFINE)
    head.byte(RESIDUAL * smaller | 2 * by_row | 4 * by_column)
    streams.add_aside(head, store_aside(zero_point), f"{stem}.zero_point")
    streams.add(head, residual if smaller else plain, f"{stem}.codes")
    streams.add_floats(scale, f"{stem}.scale")


def _write_codebook(head: HeadWriter, streams: Streams, tensors: Tensors, stem: str, rows: np.ndarray | None) -> None:
    codes, book = tensors[f"{stem}.codes"], tensors[f"{stem}.codebook"]
    by_row = len(book) > 1
    if rows is not None:
        codes, book = codes[rows], book[rows] if by_row else book
    book = book[:, : int(codes.max()) + 1]
    head.byte(CODEBOOK)
    head.byte(2 * by_row)
    head.byte(book.shape[1] - 1)
    streams.add(head, store(codes), f"{stem}.codes")
    streams.add_floats(book, f"{stem}.codebook")


def _finite(values: np.ndarray, name: str) -> np.ndarray:
    if values.size and not np.abs(values.astype(np.float32)).max() <= LARGEST:
        raise UserError(f"{name}: a weight is not finite, or larger than {LARGEST:g}")
    return values
