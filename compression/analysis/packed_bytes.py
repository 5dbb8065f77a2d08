"""Bytes of a packed student by tensor, which sum to the file's size: of a student's folder, or of the file alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from compression.analysis.pictures import Groups
from compression.evaluation.weights import Weight
from compression.packing import packed_sections
from compression.packing.ans import stacked
from compression.packing.header import ByteCounts, PackedSection
from compression.runtime.entropy import CODE_BITS, CONSTANT, RAW, Array, frequencies
from compression.runtime.header import Header
from compression.runtime.model import open_packed
from compression.runtime.weights import AFFINE, CODEBOOK, KRONECKER, PRODUCT, Matrix
from compression.students.saved import load_student
from compression.students.spec import PARTS

STREAMS = ("value", "codes", "codebook", "scale", "zero_point", "mask", "tables", "")
"""Streams of a matrix and the tables they are coded with; the name is empty for biases and bytes outside tensors."""
FRAME = ("settings", "header", "checksum")
ORDER = (*PARTS, "vocabulary", *FRAME)
"""Order in which parts are listed."""
Owned = tuple[str, str, float]
"""Owner, coder, bits."""
_CHECKSUM = 4


def packed_bytes(folder: Path, weights: Sequence[Weight]) -> dict[str, Any]:
    """Return the bytes of a student's packed file by tensor; it is packed in memory. weights: of its weights file.

    Raises UserError if the folder does not hold a student.
    """
    sections = packed_sections(*load_student(folder, torch.device("cpu")))

    def number_of(name: str) -> int:
        # A recurrent layer's bias, the sum of two, is counted once.
        return sum(weight.count for weight in weights if weight.name in (name, f"{name}_ih"))

    return by_tensor(sections, number_of)


def by_tensor(sections: Iterable[PackedSection], number_of: Callable[[str], int]) -> dict[str, Any]:
    """Return the bytes of a packed file's sections by tensor. number_of: tensor -> number of weights, 0 for others.

    tensors: for each tensor, the bytes by stream and coder, the share, the number of weights and the bits per weight;
    vocabulary, settings, header and checksum have no weights.
    """
    rows: dict[str, dict[str, Any]] = {}
    for section in sections:
        name, stream = _split(section.name)
        row = rows.setdefault(name, {"name": name, "part": section.part, "bytes": 0, "streams": []})
        row["bytes"] += section.bytes
        row["streams"].append({"stream": stream, "coder": section.coder, "bytes": section.bytes})
    total = sum(row["bytes"] for row in rows.values())
    for row in rows.values():
        number = number_of(row["name"])
        bits = 8 * row["bytes"] / number if number else None
        row["streams"].sort(key=lambda of: STREAMS.index(of["stream"]))
        row |= {"share": row["bytes"] / total, "weights": number, "bits_per_weight": bits}
    return {"file": total, "tensors": sorted(rows.values(), key=lambda row: ORDER.index(row["part"]))}


def _split(name: str) -> tuple[str, str]:
    """Return a section's tensor and stream: 'embedding.table.weight.codes' -> ('embedding.table.weight', 'codes')."""
    stem, _, last = name.rpartition(".")
    return (stem, last) if last in STREAMS else (name, "tables" if "weight" in name else "")


def byte_groups(packed: dict[str, Any]) -> Groups:
    """Return the bytes as groups for a treemap: a student's parts, its vocabulary, and the rest, in this order."""
    rest = ", ".join(FRAME)
    groups: Groups = {name: {} for name in (*PARTS, "vocabulary", rest)}
    for row in packed["tensors"]:
        group = rest if row["part"] in FRAME else row["part"]
        groups[group][row["name"]] = row["bytes"]
    return groups


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
    counts.add("rans", [("vocabulary" if header.embedding in ("bpe", "ngrams") else "header", rest)])
    for coder in ("rans", "stored"):
        parts = [(name, bits) for name, of, bits in owned if of == coder]
        if parts:
            counts.divide(coder, parts, round(sum(bits for _, bits in parts) / 8))
    weights = {name: int(np.prod(matrix.shape)) for name, matrix in header.matrices.items()}
    return counts.sections(), weights | {name: where.stop - where.start for name, where in header.vectors.items()}


def _owned(header: Header) -> Iterator[Owned]:
    shared = list(header.vectors.items())
    for name, matrix in header.matrices.items():
        is_product = matrix.form in (PRODUCT, KRONECKER)
        parts = {f"{name}.left": matrix.left, f"{name}.right": matrix.right} if is_product else {name: matrix}
        for owner, part in parts.items():
            yield from _of_matrix(owner, part)
            if part.form in (AFFINE, CODEBOOK):
                stream = "scale" if part.form == AFFINE else "codebook"
                shared.append((f"{owner}.{stream}", part.floats))
    for plane in header.floats:
        bits, coder = _bits(plane)
        yield from ((owner, coder, float(bits[where].sum())) for owner, where in shared)
        yield from _classes("header", plane)


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
    tables = stacked([frequencies(weights) for weights in array.weights])
    return CODE_BITS - np.log2(tables[array.tables(), array.values]), "rans"
