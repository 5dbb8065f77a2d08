"""Structured pruning of transformers: removes whole attention heads and whole layers."""

from __future__ import annotations

import torch

from common.errors import UserError
from compression.shrinking.pruning.importance import (
    Gates,
    best,
    column_sums,
    importance,
    keep_rows,
    left,
    take_columns,
)
from compression.students.batch import EncodedRows
from compression.students.student import Student

_FLAG = "--prune-heads"


def remove_heads(student: Student, share: float, encoded: EncodedRows) -> dict[str, int]:
    """Remove a share of the attention heads, the same number in each layer, in place (Michel et al., 2019).

    A head's importance is computed as that of a single unit read by `attention.output`. encoded: a sample of training
    text. Returns the sizes left, by their names in the student's settings. Raises UserError if the student has no
    heads, or if a layer would have none left.
    """
    if not student.reads_together:
        raise UserError(f"{_FLAG}: only transformers have attention heads")
    encoder = student.encoder
    attentions = [block.attention for block in encoder.blocks if hasattr(block, "attention")]
    width = encoder.size.attention // encoder.size.heads

    def gradients() -> Gates:
        return {attention: column_sums(attention.output.weight).view(-1, width).sum(1) for attention in attentions}

    for attention, of_heads in importance(student, encoded, gradients).items():
        heads = best(of_heads, left(of_heads, share, _FLAG, "heads"))
        units = (heads[:, None] * width + torch.arange(width)).flatten()
        for layer in (attention.query, attention.key, attention.value):
            keep_rows(layer, units)
        attention.output.weight = take_columns(attention.output.weight, units)
        attention.heads = len(heads)
    encoder.size = encoder.size._replace(heads=attentions[0].heads, head_dim=width)
    return {"heads": encoder.size.heads, "head_dim": width}


def drop_layers(student: Student, count: int) -> dict[str, int]:
    """Remove the last layers, or iterations of a recursive student, in place.

    Removing the last layers costs less accuracy than removing others (Sajjad et al., 2020). Returns the depth left, by
    its name in the student's settings. Raises UserError if no layer would be left.
    """
    if not student.reads_together:
        raise UserError("--drop-layers: only transformers have layers that can be removed")
    encoder = student.encoder
    depth = encoder.depth - count
    if depth < 1:
        raise UserError(f"--drop-layers {count}: none of {encoder.depth} layers would be left")
    encoder.blocks, encoder.adapters = encoder.blocks[:depth], encoder.adapters[:depth]
    encoder.depth, encoder.size = depth, encoder.size._replace(depth=depth)
    return {"iterations" if encoder.size.arch == "recursive" else "layers": depth}
