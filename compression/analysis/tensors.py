"""What stands in a weights file, tensor by tensor: counts, bytes, zeros, magnitudes.

A stored tensor is what the file holds. A weight is what the model multiplies with: of a quantized matrix the file holds
codes, scales and zero points, and its weights are the dequantized codes (compression.evaluation.sizes.logical_weights).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from common.errors import UserError
from compression.analysis.pictures import Histogram
from compression.evaluation.sizes import logical_weights

Kind = Literal["teacher", "student"]
THRESHOLDS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
PARTS = {"student": ("embedding", "encoder", "classifier"), "teacher": ("embeddings", "encoder", "head")}
"""Major parts in the order in which text flows through them; the thesis's three groups of section 3.7."""
COORDINATE_BYTES = 8
"""PyTorch keeps a sparse tensor's coordinates as 64-bit integers (section 6.1.6)."""
_BINS, _LIMIT = 120, 6
_HEADS = ("lm_head", "classification_heads", "pooler", "classifier", "pre_classifier", "score", "cls")
_ENCODERS = ("encoder", "transformer", "layers", "layer", "h", "blocks")


@dataclasses.dataclass(frozen=True)
class Weight:
    """Weights of one tensor. values: float32, of the tensor's shape; bytes_per_element: as the file stores one."""

    name: str
    part: str
    values: torch.Tensor
    bytes_per_element: int

    @property
    def nonzero(self) -> int:
        """Weights that are not exactly zero."""
        return int(torch.count_nonzero(self.values))


def part_of(name: str, kind: Kind) -> str:
    """The major part of a model that a tensor belongs to, one of PARTS.

    Teachers' names differ by library: bert.embeddings and bert.pooler, or encoder.sentence_encoder.embed_tokens.
    """
    words = name.split(".")
    if kind == "student":
        return words[0]
    if any(word.startswith(("embed", "layernorm_embedding")) for word in words):
        return "embeddings"
    if any(word in _HEADS for word in words):
        return "head"
    return "encoder" if any(word in _ENCODERS for word in words) else "head"


def weights_of(tensors: dict[str, torch.Tensor], kind: Kind) -> list[Weight]:
    """The weights of a file's tensors, by name."""
    return [
        Weight(name, part_of(name, kind), values, _stored(tensors, name).element_size())
        for name, values in _in_order(logical_weights(tensors), kind)
    ]


def _in_order(tensors: dict[str, torch.Tensor], kind: Kind) -> list[tuple[str, torch.Tensor]]:
    """By part, then by name."""
    return sorted(tensors.items(), key=lambda item: (PARTS[kind].index(part_of(item[0], kind)), item[0]))


def _stored(tensors: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    return next(tensors[key] for key in (name, f"{name}.codes", f"{name}.value") if key in tensors)


def stored_tensors(tensors: dict[str, torch.Tensor], kind: Kind) -> list[dict[str, Any]]:
    """Name, part, shape, dtype, count and bytes of everything the file holds."""
    return [
        {
            "name": name,
            "part": part_of(name, kind),
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "count": tensor.numel(),
            "bytes": tensor.numel() * tensor.element_size(),
        }
        for name, tensor in _in_order(tensors, kind)
    ]


def count_model(path: Path, tensors: dict[str, torch.Tensor], kind: Kind) -> dict[str, Any]:
    """Weights by part, stored numbers by type, and the file's bytes: header plus tensors.

    Raises UserError when these do not add up to the size of the file.
    """
    stored, weights = stored_tensors(tensors, kind), weights_of(tensors, kind)
    sums = {"header": _header_bytes(path), "tensors": sum(tensor["bytes"] for tensor in stored)}
    if sum(sums.values()) != path.stat().st_size:
        raise UserError(f"{path}: {path.stat().st_size} bytes, but header and tensors make {sum(sums.values())}")
    parts = {}
    for part in dict.fromkeys(tensor["part"] for tensor in stored):
        own = [weight for weight in weights if weight.part == part]
        parameters, nonzero = sum(w.values.numel() for w in own), sum(w.nonzero for w in own)
        parts[part] = {
            "parameters": parameters,
            "nonzero": nonzero,
            "sparsity": 1 - nonzero / parameters if parameters else 0.0,
            "bytes": sum(tensor["bytes"] for tensor in stored if tensor["part"] == part),
        }
    types: dict[str, dict[str, int]] = {}
    for tensor in stored:
        of_type = types.setdefault(tensor["dtype"], {"count": 0, "bytes": 0})
        of_type["count"] += tensor["count"]
        of_type["bytes"] += tensor["bytes"]
    return {"parts": parts, "stored": types, "bytes": sums | {"file": path.stat().st_size}}


def _header_bytes(path: Path) -> int:
    """A safetensors file starts with its header's length in 8 bytes, then the header, then all tensors' bytes."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def dense_bytes(elements: int, bytes_per_element: int) -> int:
    """Size of a dense tensor (equation 6.6)."""
    return bytes_per_element * elements


def coo_bytes(dimensions: int, bytes_per_element: int, nonzero: int) -> int:
    """Size of a sparse tensor in coordinate form: every nonzero element with its coordinates (equation 6.5)."""
    return (dimensions * COORDINATE_BYTES + bytes_per_element) * nonzero


def sparse_sizes(weights: Sequence[Weight]) -> dict[str, Any]:
    """Dense and coordinate sizes of each tensor's weights and of all together, and the smaller of the two.

    coo_pays_below: the number of nonzero weights below which the coordinate form is smaller (equation 6.7). Scales and
    zero points of quantized matrices, which both forms need, are left out.
    """
    rows = []
    for weight in weights:
        dimensions, elements, size = weight.values.dim(), weight.values.numel(), weight.bytes_per_element
        sizes = {"dense": dense_bytes(elements, size), "coo": coo_bytes(dimensions, size, weight.nonzero)}
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
    """For each tensor, how many weights have a magnitude below each threshold, zeros among them."""
    rows = []
    for weight in weights:
        magnitudes = weight.values.abs()
        counts = {str(limit): int((magnitudes < limit).sum()) for limit in THRESHOLDS}
        shares = {limit: number / weight.values.numel() for limit, number in counts.items()}
        rows.append({"name": weight.name, "count": weight.values.numel(), "below": counts, "share": shares})
    return rows


def histograms(weights: Sequence[Weight]) -> dict[str, Histogram]:
    """Histogram of each part's nonzero weights, within six times their root mean square so that its shape can be seen.

    Parts without weights are left out.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for weight in weights:
        parts.setdefault(weight.part, []).append(weight.values.flatten().numpy())
    return {part: _histogram(tensors) for part, tensors in parts.items()}


def _histogram(tensors: list[np.ndarray]) -> Histogram:
    """One tensor at a time: a large teacher's weights are not copied all at once."""
    total = sum(values.size for values in tensors)
    nonzero = sum(int(np.count_nonzero(values)) for values in tensors)
    largest = max(float(np.abs(values).max(initial=0)) for values in tensors)
    square = sum(float(np.square(values, dtype=np.float64).sum()) for values in tensors) / max(1, nonzero)
    limit = min(largest, _LIMIT * square**0.5) or 1.0
    edges = np.linspace(-limit, limit, _BINS + 1)
    counts = np.sum([np.histogram(values[values != 0], edges)[0] for values in tensors], axis=0)
    return Histogram(edges, counts, zeros=total - nonzero, beyond=nonzero - int(counts.sum()))
