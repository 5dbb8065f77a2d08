"""Starting a transformer student from a teacher's weights: DistilBERT's every other layer (Sanh et al., 2019).

The student's layers are the teacher's in shape; its embedding may be narrower, and then starts from the best
factorisation of the teacher's (singular values). Word pieces must be the teacher's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from common.errors import UserError
from common.training.checkpoint import load_tensors
from common.training.models import WEIGHTS_FILE
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.teacher_layers import check_layers, chosen_layers, teacher_config
from compression.students.transformer import Block
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary

Tensors = Mapping[str, torch.Tensor]
_FLAG = "--init-from-teacher"
_SHAPE = {"hidden_size": "encoder_hidden_dim", "num_attention_heads": "heads", "intermediate_size": "intermediate_dim"}
"""BERT's names of the sizes that student and teacher must share."""


def check_start(settings: StudentSettings, arch: str, teacher: Path) -> None:
    """Raise UserError, with what to set, where the student cannot start from this teacher."""
    config = check_layers(_FLAG, settings, arch, teacher)
    if not (teacher / "huggingface" / WEIGHTS_FILE).exists():
        raise UserError(f"{_FLAG}: {teacher.name} has adapters alone, its layers are those of its encoder")
    if config.get("model_type") != "bert":
        raise UserError(f"{_FLAG}: {teacher.name} is a {config.get('model_type')}; layers can be copied from a bert")
    for theirs, ours in _SHAPE.items():
        if config[theirs] != getattr(settings, ours):
            flag, value = ours.replace("encoder_", "").replace("_", "-"), config[theirs]
            raise UserError(f"{_FLAG}: {theirs} of {teacher.name} is {value}: set --{flag} {value}")


def layers_to_copy(how: Sequence[str], depth: int, teacher: Path) -> list[int]:
    """Return the numbers of the teacher's layers, counted from 0, for each of the student's `depth` blocks.

    how: every-other, first or last, or the numbers themselves. Raises UserError for a map that does not fit.
    """
    there = teacher_config(teacher)["num_hidden_layers"]
    named = {"every-other": range(0, there, 2), "first": range(depth), "last": range(there - depth, there)}
    return chosen_layers(_FLAG, how, depth, there, named)


def start_from_teacher(student: Student, settings: StudentSettings, layers: Sequence[int], teacher: Path) -> None:
    """Copy a teacher's embedding and layers into a fresh student, in place.

    layers: the teacher's layer for each of the student's blocks. The teacher's model folder was checked by
    `check_start`.
    """
    tensors, _ = load_tensors(teacher / "huggingface" / WEIGHTS_FILE)
    own = {name.removeprefix("bert."): tensor.float() for name, tensor in tensors.items() if name.startswith("bert.")}
    encoder = student.encoder
    with torch.no_grad():
        _start_embedding(student, settings, own, teacher)
        _copy(encoder.positions.weight.value, own["embeddings.position_embeddings.weight"])
        _copy(encoder.segments.weight.value, own["embeddings.token_type_embeddings.weight"])
        _copy_norm(encoder.norm, own, "embeddings.LayerNorm")
        for block, layer in zip(encoder.blocks, layers, strict=True):
            _copy_layer(block, own, f"encoder.layer.{layer}")


def _start_embedding(student: Student, settings: StudentSettings, own: Tensors, teacher: Path) -> None:
    vocabulary = teacher_vocabulary(teacher)
    rows, special = torch.from_numpy(vocabulary.rows), torch.tensor(vocabulary.marks)
    vectors = own["embeddings.word_embeddings.weight"]
    if settings.embedding_dim < settings.encoder_hidden_dim:
        _, _, right = torch.linalg.svd(vectors[rows], full_matrices=False)
        basis = right[: settings.embedding_dim]
        student.encoder.projection.weight.value.copy_(basis.T)
        student.encoder.projection.bias.zero_()
        vectors = vectors @ basis.T
    student.embedding.table.weight.value.copy_(vectors[rows])
    student.encoder.marks.weight.value.copy_(vectors[special])


def _copy(to: torch.Tensor, rows: torch.Tensor) -> None:
    """Copy the first rows; where the teacher has fewer, the others keep their initial values."""
    count = min(len(to), len(rows))
    to[:count].copy_(rows[:count])


def _copy_norm(norm: nn.LayerNorm, own: Tensors, name: str) -> None:
    norm.weight.copy_(own[f"{name}.weight"])
    norm.bias.copy_(own[f"{name}.bias"])


def _copy_layer(block: Block, own: Tensors, name: str) -> None:
    attention = block.attention
    linears = {
        "attention.self.query": attention.query,
        "attention.self.key": attention.key,
        "attention.self.value": attention.value,
        "attention.output.dense": attention.output,
        "intermediate.dense": block.up,
        "output.dense": block.down,
    }
    for key, linear in linears.items():
        linear.weight.value.copy_(own[f"{name}.{key}.weight"])
        linear.bias.copy_(own[f"{name}.{key}.bias"])
    _copy_norm(block.attention_norm, own, f"{name}.attention.output.LayerNorm")
    _copy_norm(block.output_norm, own, f"{name}.output.LayerNorm")
