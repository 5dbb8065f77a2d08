"""Bytes of a packed student by tensor, which sum to the file's size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from compression.analysis.pictures import Groups
from compression.evaluation.weights import Weight
from compression.packing import packed_sections
from compression.packing.header import PackedSection
from compression.students.saved import load_student
from compression.students.spec import PARTS

STREAMS = ("value", "codes", "codebook", "scale", "zero_point", "mask", "tables", "")
"""Streams of a matrix and the tables they are coded with; the name is empty for biases and bytes outside tensors."""
FRAME = ("settings", "header", "checksum")
ORDER = (*PARTS, "vocabulary", *FRAME)
"""Order in which parts are listed."""


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
    groups: Groups = {name: {} for name in (*PARTS, "vocabulary", ", ".join(FRAME))}
    for row in packed["tensors"]:
        groups[", ".join(FRAME) if row["part"] in FRAME else row["part"]][row["name"]] = row["bytes"]
    return groups
