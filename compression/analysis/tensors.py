"""Counts of a model's weights: by part, by type, in sparse form, and below magnitudes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from compression.analysis.pictures import Histogram
from compression.evaluation.weights import Kind, Weight, by_part, part_of

THRESHOLDS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
COORDINATE_BYTES = 8
"""PyTorch stores a sparse tensor's coordinates as 64-bit integers (section 6.1.6)."""
_BINS, _LIMIT = 120, 6


def listed(tensors: dict[str, torch.Tensor], kind: Kind) -> list[dict[str, Any]]:
    """Return name, part, shape, dtype, count and bytes of every tensor in the file."""
    return [
        {
            "name": name,
            "part": part_of(name, kind),
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "count": tensor.numel(),
            "bytes": tensor.numel() * tensor.element_size(),
        }
        for name, tensor in by_part(tensors, kind).items()
    ]


def count_model(data: bytes, tensors: dict[str, torch.Tensor], weights: Sequence[Weight], kind: Kind) -> dict[str, Any]:
    """Return weights by part, stored numbers by type, and the file's bytes: header plus tensors.

    data: the file. A safetensors file is the length of its header in 8 bytes, the header, and the tensors.
    """
    stored = listed(tensors, kind)
    header = 8 + int.from_bytes(data[:8], "little")
    sums = {"header": header, "tensors": sum(tensor["bytes"] for tensor in stored), "file": len(data)}
    parts = {tensor["part"]: {"parameters": 0, "nonzero": 0, "sparsity": 0.0, "bytes": 0} for tensor in stored}
    for weight in weights:
        parts[weight.part]["parameters"] += weight.count
        parts[weight.part]["nonzero"] += weight.nonzero
    for part in parts.values():
        part["sparsity"] = 1 - part["nonzero"] / part["parameters"] if part["parameters"] else 0.0
    types: dict[str, dict[str, int]] = {}
    for tensor in stored:
        parts[tensor["part"]]["bytes"] += tensor["bytes"]
        of_type = types.setdefault(tensor["dtype"], {"count": 0, "bytes": 0})
        of_type["count"] += tensor["count"]
        of_type["bytes"] += tensor["bytes"]
    return {"parts": parts, "stored": types, "bytes": sums}


def coo_bytes(dimensions: int, bytes_per_element: int, nonzero: int) -> int:
    """Return the size of a sparse tensor in coordinate form: nonzero elements with coordinates (equation 6.5)."""
    return (dimensions * COORDINATE_BYTES + bytes_per_element) * nonzero


def sparse_sizes(weights: Sequence[Weight]) -> dict[str, Any]:
    """Return the dense and coordinate sizes of each tensor's weights and of the total, and which of the two is smaller.

    dense: equation 6.6; coo_pays_below: number of nonzero weights below which the coordinate form is smaller (equation
    6.7). Scales and zero points of quantized matrices are left out, since both forms need them.
    """
    rows = []
    for weight in weights:
        dimensions, elements, size = weight.values.dim(), weight.count, weight.bytes_per_element
        sizes = {"dense": elements * size, "coo": coo_bytes(dimensions, size, weight.nonzero)}
        rows.append(
            {
                "name": weight.name,
                "part": weight.part,
                "dimensions": dimensions,
                "elements": elements,
                "nonzero": weight.nonzero,
                "coo_pays_below": elements * size / (dimensions * COORDINATE_BYTES + size),
                **sizes,
                "smaller": _smaller(sizes),
            }
        )
    total = {form: sum(row[form] for row in rows) for form in ("dense", "coo")}
    return {"tensors": rows, "total": total | {"smaller": _smaller(total)}}


def _smaller(sizes: dict[str, int]) -> str:
    return "coo" if sizes["coo"] < sizes["dense"] else "dense"


def below_thresholds(weights: Sequence[Weight]) -> list[dict[str, Any]]:
    """Return for each tensor how many weights, including zeros, have a magnitude below each threshold."""
    rows = []
    for weight in weights:
        magnitudes = weight.values.abs()
        counts = {str(limit): int((magnitudes < limit).sum()) for limit in THRESHOLDS}
        shares = {limit: number / weight.count for limit, number in counts.items()}
        rows.append({"name": weight.name, "count": weight.count, "below": counts, "share": shares})
    return rows


def histograms(weights: Sequence[Weight]) -> dict[str, Histogram]:
    """Return histograms of the parts' nonzero weights.

    The range is six times the root mean square, so that the shape is visible. Parts without weights are left out.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for weight in weights:
        parts.setdefault(weight.part, []).append(weight.values.flatten().numpy())
    return {part: _histogram(tensors) for part, tensors in parts.items()}


def _histogram(tensors: list[np.ndarray]) -> Histogram:
    """Return a histogram, computed one tensor at a time to avoid copying all weights of a large teacher at once."""
    total = sum(values.size for values in tensors)
    nonzero = sum(int(np.count_nonzero(values)) for values in tensors)
    largest = max(float(np.abs(values).max(initial=0)) for values in tensors)
    square = sum(float(np.square(values, dtype=np.float64).sum()) for values in tensors) / max(1, nonzero)
    limit = min(largest, _LIMIT * square**0.5) or 1.0
    edges = np.linspace(-limit, limit, _BINS + 1)
    counts = np.sum([np.histogram(values[values != 0], edges)[0] for values in tensors], axis=0)
    return Histogram(edges, counts, zeros=total - nonzero, beyond=nonzero - int(counts.sum()))
