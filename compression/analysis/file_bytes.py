"""Bytes of a packed file by section, computed from the file alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from compression.packing.header import ByteCounts, PackedSection
from compression.runtime.entropy import CODE_BITS, CONSTANT, RAW, Array, frequencies
from compression.runtime.header import Header
from compression.runtime.model import open_packed
from compression.runtime.weights import AFFINE, CODEBOOK, KRONECKER, PRODUCT, Matrix

Owned = tuple[str, str, float]
"""Owner, coder, bits."""
_CHECKSUM = 4


def sections_of_file(path: Path) -> tuple[list[PackedSection], dict[str, int]]:
    """Return the sections of a packed file, which sum to its size, and the number of weights of each tensor.

    A tensor's tables are deflated together with the settings, so they are counted as header here. The coder's overhead
    is counted as vocabulary, or as header if there is no vocabulary. Raises PackedError for a damaged file.
    """
    data = path.read_bytes()
    header, reader = open_packed(data)
    before = reader.left
    header.read_streams(reader)
    owned = list(_owned(header))
    rest = before - round(sum(bits for *_, bits in owned) / 8)
    counts = ByteCounts()
    counts.add("deflate", [("header", len(data) - before - _CHECKSUM)])
    counts.add("stored", [("checksum", _CHECKSUM)])
    counts.add("rans", [("vocabulary" if header.byte_pairs or header.ngrams else "header", rest)])
    for coder in ("rans", "stored"):
        parts = [(name, bits) for name, of, bits in owned if of == coder]
        if parts:
            counts.divide(coder, parts, round(sum(bits for _, bits in parts) / 8))
    weights = {name: int(np.prod(matrix.shape)) for name, matrix in header.matrices.items()}
    return counts.sections(), weights | {name: where.stop - where.start for name, where in header.vectors.items()}


def _owned(header: Header) -> Iterator[Owned]:
    shared = list(header.vectors.items())
    for name, matrix in header.matrices.items():
        for owner, part in _factors(name, matrix):
            yield from _of_matrix(owner, part)
            if part.form in (AFFINE, CODEBOOK):
                shared.append((f"{owner}.{'scale' if part.form == AFFINE else 'codebook'}", part.floats))
    for plane in header.floats:
        bits, coder = _bits(plane)
        yield from ((owner, coder, float(bits[where].sum())) for owner, where in shared)
        yield from _classes("header", plane)


def _factors(name: str, matrix: Matrix) -> Iterator[tuple[str, Matrix]]:
    """Yield the matrix itself, or the two factors of a product."""
    if matrix.form not in (PRODUCT, KRONECKER):
        yield name, matrix
    else:
        yield from ((f"{name}.left", matrix.left), (f"{name}.right", matrix.right))


def _of_matrix(name: str, matrix: Matrix) -> Iterator[Owned]:
    if matrix.form in (AFFINE, CODEBOOK):
        arrays = [(f"{name}.codes", matrix.codes)]
        if matrix.form == AFFINE:
            arrays.append((f"{name}.zero_point", matrix.zero_point))
    else:
        arrays = [(f"{name}.value", plane) for plane in matrix.planes]
        if matrix.mask is not None:
            arrays.append((f"{name}.mask", matrix.mask))
    for owner, array in arrays:
        bits, coder = _bits(array)
        yield owner, coder, float(bits.sum())
        yield from _classes(owner, array)


def _classes(owner: str, array: Array) -> Iterator[Owned]:
    if array.classes is not None:
        bits, coder = _bits(array.classes)
        yield owner, coder, float(bits.sum())


def _bits(array: Array) -> tuple[np.ndarray, str]:
    """Return the bits of each number of an array, float64 [count], and its coder. A constant is in the header."""
    if array.mode in (RAW, CONSTANT):
        return np.full(array.count, 8.0 if array.mode == RAW else 0.0), "stored"
    tables = [frequencies(weights) for weights in array.weights]
    by_symbol = np.full((len(tables), max(map(len, tables))), np.inf)
    for row, table in zip(by_symbol, tables, strict=True):
        row[: len(table)] = CODE_BITS - np.log2(np.maximum(table, 1))
    return by_symbol[array.tables(), array.values], "rans"
