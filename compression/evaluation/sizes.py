"""Sizes of a model: number of weights, and sizes of its files."""

import gzip
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from common.training.models import is_apart, members_of, read_config, weights_file
from compression.evaluation.weights import stored_tensors, weights_of
from compression.packing import pack_student


def gzip_bytes(data: bytes) -> int:
    """Return the size gzipped at the highest level, without name or time in the header (the thesis's measure)."""
    return len(gzip.compress(data, compresslevel=9, mtime=0))


def weights_bytes(folder: Path, stored: dict[str, torch.Tensor]) -> bytes:
    """Return a model's weights file; for adapters in a separate file, one file with all the weights.

    stored: the model's `stored_tensors`.
    """
    if not is_apart(folder):
        return weights_file(folder).read_bytes()
    return save({name: tensor.contiguous() for name, tensor in stored.items()})


_SIZES = ("parameters", "nonzero_parameters", "bytes_model", "bytes_gzip", "bytes_packed")


def measure(folder: Path) -> dict[str, Any]:
    """Return the sizes of a model folder, by the names of results.json.

    bytes_packed: size of a student's packed file; None for a teacher, which has none. A teacher imported as logits has
    the sizes that the file of logits records, and None for the others. The size of an ensemble is the sum over its
    members. A model with adapters in a separate file counts as if all weights were in one file.
    """
    if members := members_of(folder):
        sizes = [measure(member) for member in members]
        return {name: None if value is None else sum(size[name] for size in sizes) for name, value in sizes[0].items()}
    config = read_config(folder)
    if config.imported:
        return {name: config.sizes.get(name) for name in _SIZES}
    stored = stored_tensors(folder)
    weights = weights_of(folder, config, stored)
    data = weights_bytes(folder, stored)
    packed = len(pack_student(folder)) if config.kind == "student" else None
    counts = sum(weight.count for weight in weights), sum(weight.nonzero for weight in weights)
    return dict(zip(_SIZES, (*counts, len(data), gzip_bytes(data), packed), strict=True))
