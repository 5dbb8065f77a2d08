"""How large a model is: weights counted, and real files measured."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from common.training.checkpoint import save_tensors
from common.training.models import WEIGHTS_FILE, is_apart, load_weights, members_of, read_config, weights_file
from compression.packing import packed_size
from compression.students.weights import matrix_like

if TYPE_CHECKING:
    from compression.analysis.tensors import Weight

_OVERHEAD = ("scale", "zero_point", "codebook", "input_scale", "input_zero_point")
"""Beside the codes of a quantized matrix: not weights of the model."""


def logical_weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Name -> float32 weights as the model multiplies with them: quantized matrices dequantized, overhead left out.

    'encoder.forward_rnn.weight_ih.codes' comes out as 'encoder.forward_rnn.weight_ih'; of a product there are two,
    'encoder.forward_rnn.weight_ih.left' and '....right'.
    """
    weights = {}
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        if last in ("codes", "value"):
            weights[stem] = matrix_like(tensors, stem).dense().detach()
        elif last not in _OVERHEAD and tensor.is_floating_point():
            weights[name] = tensor.float()
    return weights


def gzip_bytes(path: Path) -> int:
    """Size of a file gzipped once at the best level, with no file name or time in its header (the thesis's measure)."""
    return len(gzip.compress(path.read_bytes(), compresslevel=9, mtime=0))


def measure(folder: Path) -> dict[str, Any]:
    """Sizes of a model folder, by the names of results.json.

    bytes_packed: of the packed file that a student makes, all in; None for a teacher, which makes none. An ensemble is
    as large as its members together, and one with adapters apart as large as in one file.
    """
    if members := members_of(folder):
        sizes = [measure(member) for member in members]
        return {name: None if value is None else sum(size[name] for size in sizes) for name, value in sizes[0].items()}
    stored, path = load_weights(folder), weights_file(folder)
    weights = logical_weights(stored)
    sizes = {
        "parameters": sum(tensor.numel() for tensor in weights.values()),
        "nonzero_parameters": sum(int((tensor != 0).sum()) for tensor in weights.values()),
    }
    packed = packed_size(folder) if read_config(folder).kind == "student" else None
    with tempfile.TemporaryDirectory() as place:
        if is_apart(folder):
            path = Path(place) / WEIGHTS_FILE
            save_tensors(path, stored, {})
        files = {"bytes_model": path.stat().st_size, "bytes_gzip": gzip_bytes(path)}
    return {**sizes, **files, "bytes_packed": packed}


def parameters_by_part(weights: Iterable[Weight]) -> dict[str, int]:
    """Major part -> number of weights, zeros included; only parts that have weights."""
    parts: dict[str, int] = {}
    for weight in weights:
        parts[weight.part] = parts.get(weight.part, 0) + weight.values.numel()
    return parts
