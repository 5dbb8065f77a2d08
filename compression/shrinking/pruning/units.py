"""Structured pruning: removes units of encoders and of the classifier, with every weight that reads or feeds them.

Attention between texts reads units without a weight. Their derivative d logit / dm (see
compression.shrinking.pruning.importance) is then the sum of the unit's outputs times their gradients.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from compression.runtime.shapes import GATES
from compression.shrinking.pruning.importance import (
    best,
    column_sums,
    importance,
    keep_rows,
    left,
    select,
    take_columns,
)
from compression.students.batch import EncodedRows
from compression.students.layers import Linear, Recurrent
from compression.students.student import Student

Layers = list[Recurrent | Linear]
"""The layers of an encoder that have units: a recurrent one for each direction, a convolution's linear map, or none."""


def remove_units(student: Student, share: float, encoded: EncodedRows) -> dict[str, int]:
    """Remove a share of the encoder's units and of the classifier's hidden units, in place.

    Each direction of a recurrent encoder loses the same number; a transformer loses units of each layer's feed-forward
    part. If texts are aligned, the comparison's output becomes as wide as a token's state or, with a second encoder, as
    its units. encoded: a sample of training text. Returns the widths left, by their names in the student's settings.
    Raises UserError if a layer would have no unit left.
    """
    first, last = (layer for layer in student.classifier if isinstance(layer, Linear))
    feed_forward = []
    if student.reads_together:
        feed_forward = [(block.up, block.down) for block in student.encoder.blocks if block.has_units]
    hidden = [*feed_forward, (first, last)]
    """Pairs of layers: units are the outputs of the first and the inputs of the second."""
    layers = [] if student.reads_together else _layers_of(student.encoder)
    composition = _layers_of(student.encoder.alignment.composition) if student.aligns else []
    scores = _importance(student, encoded, layers, composition, hidden)

    def to_keep(importances: list[torch.Tensor]) -> list[torch.Tensor]:
        return [best(each, left(each, share, "--prune-units", "units")) for each in importances]

    kept, composed = to_keep(scores.layers), to_keep(scores.composition)
    widths = list(map(_units, layers))
    if student.aligns:
        fusion, vector = student.encoder.alignment.fusion, torch.arange(student.embedding.table.weight.dense().shape[1])
        compared = best(scores.compared, len(composed[0]) if composed else sum(map(len, kept)))
        keep_rows(fusion, compared)
        fusion.weight = take_columns(fusion.weight, _columns([*widths, len(vector)], [*kept, vector], 4))
        for layer in composition:
            name = _input_name(layer)
            matrix, inputs = getattr(layer, name), len(scores.compared)
            blocks = matrix.dense().shape[1] // inputs  # a convolution reads several tokens
            setattr(layer, name, take_columns(matrix, _columns([inputs], [compared], blocks)))
        read = (list(map(_units, composition)), composed) if composed else ([sum(widths)], [compared])
        first.weight = take_columns(first.weight, _columns(*read, student.blocks))
    elif layers:
        first.weight = take_columns(first.weight, _columns(widths, kept, student.blocks))
    for layer, units in zip([*layers, *composition], [*kept, *composed], strict=True):
        _shrink(layer, units)
    for (up, down), units in zip(hidden, to_keep(scores.hidden), strict=True):
        keep_rows(up, units)
        down.weight = take_columns(down.weight, units)
    widths_left = {"encoder_hidden_dim": _units(layers[0])} if layers else {}
    widths_left |= {"intermediate_dim": len(feed_forward[0][0].bias)} if feed_forward else {}
    return {**widths_left, "cls_hidden_dim": len(first.bias)}


def _layers_of(encoder: nn.Module | None) -> Layers:
    """Return the layers of an encoder that have units; an empty list for None."""
    children = [] if encoder is None else encoder.children()
    return [layer for layer in children if isinstance(layer, Recurrent | Linear)]


def _input_name(layer: Recurrent | Linear) -> str:
    """Return the name of the matrix that a layer's inputs are multiplied with."""
    return "weight_ih" if isinstance(layer, Recurrent) else "weight"


def _units(layer: Recurrent | Linear) -> int:
    """Return the units of a layer of the encoder. A convolution has two rows for each: its value and its gate."""
    return layer.hidden_dim if isinstance(layer, Recurrent) else len(layer.bias) // 2


@dataclasses.dataclass
class _Importance:
    """Importances [units] of the encoder's layers, of the outputs of alignment, of the composition's layers, and of
    hidden layers."""

    layers: list[torch.Tensor]
    compared: torch.Tensor | None
    composition: list[torch.Tensor]
    hidden: list[torch.Tensor]


def _importance(
    student: Student, encoded: EncodedRows, layers: Layers, composition: Layers, hidden: list[tuple[Linear, Linear]]
) -> _Importance:
    """Return the importances over a sample of text."""

    def gradients() -> list[torch.Tensor]:
        gates = [column_sums(down.weight) for _, down in hidden]
        if not layers:
            return gates
        read = column_sums(student.classifier[0].weight).view(student.blocks, -1).sum(0)
        if composition:
            gates = [*_with_own(composition, read), *gates]
            compared = student.encoder.alignment.fusion.bias.shape[0]
            read = sum(column_sums(getattr(each, _input_name(each))).view(-1, compared).sum(0) for each in composition)
        if student.aligns:
            gates = [read, *gates]
            read = torch.stack([(each.detach() * each.grad).sum((0, 1)) for each in tokens]).sum(0)
            tokens.clear()
        return [*_with_own(layers, read), *gates]

    with _tokens_read(student) as tokens:
        total = importance(student, encoded, gradients)
    found = iter(total)
    return _Importance(
        [next(found) for _ in layers],
        next(found) if student.aligns else None,
        [next(found) for _ in composition],
        list(found),
    )


def _with_own(layers: Layers, read: torch.Tensor) -> list[torch.Tensor]:
    """Return each layer's sums, [units], from `read`, those of all layers' readers, [units of all layers, or more].

    A recurrent layer also reads its own units.
    """
    units = list(map(_units, layers))
    own = [column_sums(layer.weight_hh) if isinstance(layer, Recurrent) else 0.0 for layer in layers]
    return list(map(operator.add, read[: sum(units)].split(units), own))


@contextlib.contextmanager
def _tokens_read(student: Student) -> Iterator[list[torch.Tensor]]:
    """Yield a list to which every forward pass appends the tokens of both aligned texts."""
    tokens: list[torch.Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        for each, _ in inputs[:2]:  # the texts
            each.retain_grad()
            tokens.append(each)

    hook = student.encoder.alignment.register_forward_pre_hook(keep) if student.aligns else None
    try:
        yield tokens
    finally:
        if hook is not None:
            hook.remove()


def _columns(widths: list[int], kept: list[torch.Tensor], blocks: int) -> torch.Tensor:
    """Return the indices of the inputs to keep of a layer that reads blocks, each made of parts of these widths."""
    starts = np.cumsum([0, *widths]).tolist()
    once = torch.cat([start + units for start, units in zip(starts, kept, strict=False)])
    return torch.cat([block * starts[-1] + once for block in range(blocks)])


def _shrink(layer: Recurrent | Linear, units: torch.Tensor) -> None:
    """Keep only these units of an encoder's layer, in place. A unit has a row in each block of the layer's rows."""
    blocks = len(GATES[layer.arch]) if isinstance(layer, Recurrent) else 2
    rows = torch.cat([block * _units(layer) + units for block in range(blocks)])
    if isinstance(layer, Linear):
        keep_rows(layer, rows)
        return
    layer.weight_ih = layer.weight_ih.take_rows(rows)
    layer.weight_hh = take_columns(layer.weight_hh.take_rows(rows), units)
    layer.bias_ih = select(layer.bias_ih, rows)
    layer.bias_hh = None if layer.bias_hh is None else select(layer.bias_hh, rows)
    layer.hidden_dim = len(units)
