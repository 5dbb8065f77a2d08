"""The weights of a saved model, tensor by tensor.

Stored tensors are the tensors in a weights file. Weights are the numbers that the model multiplies with: for a
quantized matrix, the file stores codes, scales and zero points, and the weights are the dequantized codes.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

import torch

from common.teachers.load import load_teacher
from common.training.checkpoint import load_weights
from common.training.models import ADAPTERS_FILE, ModelConfig, weights_file
from compression.students import spec
from compression.students.saved import restore_student
from compression.students.weights import matrices

T = TypeVar("T")
Kind = Literal["teacher", "student"]
PARTS = {"student": spec.PARTS, "teacher": ("embeddings", "encoder", "head")}
"""Major parts in the order in which text passes through them; the three groups of section 3.7 of the thesis."""
_HEADS = ("lm_head", "pooler", "classifier", "pre_classifier", "score", "cls")
_ENCODERS = ("encoder", "transformer", "layers", "layer", "h", "blocks")


@dataclasses.dataclass(frozen=True)
class Weight:
    """Weights of one tensor. values: float32, in the tensor's shape; bytes_per_element: bytes of one in the file."""

    name: str
    part: str
    values: torch.Tensor
    bytes_per_element: int

    @property
    def count(self) -> int:
        """Number of weights."""
        return self.values.numel()

    @property
    def nonzero(self) -> int:
        """Number of weights that are not exactly zero."""
        return int(torch.count_nonzero(self.values))


def part_of(name: str, kind: Kind) -> str:
    """Return the major part of a model that a tensor belongs to, one of PARTS.

    Teachers' names differ by architecture: bert.embeddings and bert.pooler, or distilbert.transformer.
    """
    words = name.split(".")
    if kind == "student":
        return words[0]
    if any(word.startswith("embed") for word in words):
        return "embeddings"
    if any(word in _HEADS for word in words):
        return "head"
    return "encoder" if any(word in _ENCODERS for word in words) else "head"


def stored_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return name -> tensor of a model's weights file.

    Adapters, and the head of a frozen encoder, are returned together with the encoder.
    Raises UserError if a file is missing or damaged, or if the model that adapters belong to is missing or has changed.
    """
    if weights_file(folder).name == ADAPTERS_FILE:
        return load_teacher(folder, torch.device("cpu"), torch.float32).tensors()
    return load_weights(folder)


def weights_of(folder: Path, config: ModelConfig, stored: dict[str, torch.Tensor]) -> list[Weight]:
    """Return the weights of a model, sorted by part and name. stored: the model's `stored_tensors`.

    A factorised matrix has two entries, encoder.forward_rnn.weight_ih.left and ....right.
    """
    if config.kind == "student":
        student = restore_student(folder, config, stored)
        values = {name: (matrix.dense(), matrix.element_size) for name, matrix in matrices(student)}
        of_matrices = {f"{name}.{key}" for name, matrix in matrices(student) for key in matrix.state_dict()}
        others = [(name, tensor) for name, tensor in student.named_parameters() if name not in of_matrices]
        values |= {name: (tensor, tensor.element_size()) for name, tensor in others}
    else:
        floats = {name: tensor for name, tensor in stored.items() if tensor.is_floating_point()}
        values = {name: (tensor.float(), tensor.element_size()) for name, tensor in floats.items()}
    ordered = by_part(values, config.kind).items()
    return [Weight(name, part_of(name, config.kind), tensor.detach(), size) for name, (tensor, size) in ordered]


def by_part(tensors: dict[str, T], kind: Kind) -> dict[str, T]:
    """Return the tensors sorted by part, then by name."""
    return dict(sorted(tensors.items(), key=lambda item: (PARTS[kind].index(part_of(item[0], kind)), item[0])))


def parameters_by_part(weights: Iterable[Weight]) -> dict[str, int]:
    """Return major part -> number of weights, including zeros; parts without weights are left out."""
    parts: dict[str, int] = {}
    for weight in weights:
        parts[weight.part] = parts.get(weight.part, 0) + weight.count
    return parts
