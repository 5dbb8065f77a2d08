"""Where a packed student's bytes go: tensor by tensor, summing to the file's size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from compression.analysis.treemap import Groups
from compression.evaluation.weights import Weight
from compression.packing import packed_sections
from compression.packing.header import PackedSection
from compression.students.saved import load_student
from compression.students.spec import PARTS

STREAMS = ("value", "codes", "codebook", "scale", "zero_point", "mask", "tables", "")
"""Streams of a matrix, and the tables that they are coded with; biases and bytes of no tensor have the empty name."""
FRAME = ("settings", "header", "checksum")
ORDER = (*PARTS, "vocabulary", *FRAME)
"""Parts in the order in which they are listed."""


def packed_bytes(folder: Path, weights: Sequence[Weight]) -> dict[str, Any]:
    """Return where the bytes of a student's packed file go; it is packed in memory. weights: of its weights file.

    Raises UserError when the folder holds no student.
    """
    sections = packed_sections(*load_student(folder, torch.device("cpu")))
    return by_tensor(sections, lambda name: _number(name, weights))


def by_tensor(sections: Iterable[PackedSection], number_of: Callable[[str], int]) -> dict[str, Any]:
    """Return the sections of a packed file by tensor. number_of: tensor -> number of its weights, 0 for no tensor's.

    tensors: of each tensor its bytes by stream and coder, its share, its number of weights and bits a weight; the
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
    """Tensor and stream of a packed part: embedding.table.weight.codes is the codes of embedding.table.weight."""
    stem, _, last = name.rpartition(".")
    return (stem, last) if last in STREAMS else (name, "tables" if "weight" in name else "")


def _number(name: str, weights: Sequence[Weight]) -> int:
    """Weights of a packed tensor. A recurrent layer's bias is the sum of two: it is counted once."""
    return sum(weight.count for weight in weights if weight.name in (name, f"{name}_ih"))


def byte_groups(packed: dict[str, Any]) -> Groups:
    """The same for a treemap: a student's parts, its vocabulary, and the rest, always in this order."""
    groups: Groups = {name: {} for name in (*PARTS, "vocabulary", ", ".join(FRAME))}
    for row in packed["tensors"]:
        groups[", ".join(FRAME) if row["part"] in FRAME else row["part"]][row["name"]] = row["bytes"]
    return groups
