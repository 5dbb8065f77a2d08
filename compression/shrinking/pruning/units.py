"""Structured pruning: removes units of encoders and of the classifier, with every weight that reads or feeds them.

Of transformers, it also removes whole attention heads and whole layers.

Units are removed by importance: how much the logits would change without them. To first order (Molchanov et al., 2017):
if a unit's output is multiplied by a gate m, then d logit / dm at m = 1 is the sum of weight * gradient over weights
that read the unit. A unit's importance is the sum of the squares of this derivative over outputs and training rows.
Attention between texts reads units without a weight: the derivative is then the sum of the unit's outputs times their
gradients.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from common.errors import UserError
from compression.runtime.shapes import GATES
from compression.students.batch import EncodedRows
from compression.students.layers import Linear, Recurrent
from compression.students.scoring import without_padding
from compression.students.student import Student
from compression.students.weights import Dense, Matrix, Product

_BATCH = 16
"""Rows per random draw of signs; more draws give a better estimate."""
Gates = dict[nn.Module, torch.Tensor]
"""Layer -> a value for each of its units, [units]."""
Layers = list[Recurrent | Linear]
"""The layers of an encoder that have units: a recurrent layer per direction, a convolution's linear map, or none."""


def remove_units(student: Student, share: float, encoded: EncodedRows) -> dict[str, int]:
    """Remove a share of the encoder's units and of the classifier's hidden units, in place.

    Each direction of a recurrent encoder loses the same number; a transformer loses units of each layer's feed-forward
    part. If texts are aligned, the comparison's output becomes as wide as a token's state or, with a second encoder, as
    its units. encoded: a sample of training text. Returns the widths left, by their names in the student's settings.
    Raises UserError if a layer would have no unit left.
    """
    first, last = (layer for layer in student.classifier if isinstance(layer, Linear))
    blocks = student.encoder.blocks if student.reads_together else []
    feed_forward = [(block.up, block.down) for block in blocks if block.has_units]
    hidden = [*feed_forward, (first, last)]  # pairs of a layer whose outputs are units, and the layer that reads them
    layers = [] if student.reads_together else _layers_of(student.encoder)
    composition = _layers_of(student.encoder.alignment.composition) if student.aligns else []
    scores = _importance(student, encoded, layers, composition, hidden)

    def to_keep(layer: nn.Module) -> torch.Tensor:
        return most_important(scores[layer], share, "--prune-units", "units")

    kept, composed = list(map(to_keep, layers)), list(map(to_keep, composition))
    widths = list(map(_units, layers))
    if student.aligns:
        fusion, vector = student.encoder.alignment.fusion, torch.arange(student.embedding.table.weight.dense().shape[1])
        compared = best(scores[fusion], len(composed[0]) if composed else sum(map(len, kept)))
        keep_rows(fusion, compared)
        fusion.weight = take_columns(fusion.weight, _columns([*widths, len(vector)], [*kept, vector], 4))
        for layer in composition:
            name = _input_name(layer)
            matrix, inputs = getattr(layer, name), len(scores[fusion])
            tokens = matrix.dense().shape[1] // inputs  # a convolution reads several
            setattr(layer, name, take_columns(matrix, _columns([inputs], [compared], tokens)))
        read = (list(map(_units, composition)), composed) if composed else ([sum(widths)], [compared])
        first.weight = take_columns(first.weight, _columns(*read, student.blocks))
    elif layers:
        first.weight = take_columns(first.weight, _columns(widths, kept, student.blocks))
    for layer, units in zip([*layers, *composition], [*kept, *composed], strict=True):
        _shrink(layer, units)
    for up, down in hidden:
        units = to_keep(up)
        keep_rows(up, units)
        down.weight = take_columns(down.weight, units)
    widths_left = {}
    if layers:
        widths_left["encoder_hidden_dim"] = _units(layers[0])
    if feed_forward:
        widths_left["intermediate_dim"] = len(feed_forward[0][0].bias)
    return {**widths_left, "cls_hidden_dim": len(first.bias)}


def remove_heads(student: Student, share: float, encoded: EncodedRows) -> dict[str, int]:
    """Remove a share of the attention heads, the same number in each layer, in place (Michel et al., 2019).

    A head's importance is computed as that of a single unit read by `attention.output`. encoded: a sample of training
    text. Returns the sizes left, by their names in the student's settings. Raises UserError if the student has no
    heads, or if a layer would have none left.
    """
    if not student.reads_together:
        raise UserError("--prune-heads: only transformers have attention heads")
    encoder = student.encoder
    attentions = [block.attention for block in encoder.blocks if hasattr(block, "attention")]
    width = encoder.size.attention // encoder.size.heads

    def gradients() -> Gates:
        return {attention: column_sums(attention.output.weight).view(-1, width).sum(1) for attention in attentions}

    for attention, of_heads in importance(student, encoded, gradients).items():
        heads = most_important(of_heads, share, "--prune-heads", "heads")
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


def _layers_of(encoder: nn.Module | None) -> Layers:
    """Return the layers of an encoder that have units; an empty list for None."""
    children = [] if encoder is None else encoder.children()
    return [layer for layer in children if isinstance(layer, Recurrent | Linear)]


def _input_name(layer: Recurrent | Linear) -> str:
    return "weight_ih" if isinstance(layer, Recurrent) else "weight"


def _units(layer: Recurrent | Linear) -> int:
    # A convolution has two rows for each unit: its value and its gate.
    return layer.hidden_dim if isinstance(layer, Recurrent) else len(layer.bias) // 2


def _importance(
    student: Student, encoded: EncodedRows, layers: Layers, composition: Layers, hidden: list[tuple[Linear, Linear]]
) -> Gates:
    """Return the importances over a sample of text, also of the outputs of alignment."""

    def gradients() -> Gates:
        gates: Gates = {up: column_sums(down.weight) for up, down in hidden}
        if not layers:
            return gates
        read = column_sums(student.classifier[0].weight).view(student.blocks, -1).sum(0)
        if composition:
            gates |= _of_layers(composition, read)
            inputs = [column_sums(getattr(layer, _input_name(layer))) for layer in composition]
            read = sum(sums.view(-1, len(student.encoder.alignment.fusion.bias)).sum(0) for sums in inputs)
        if student.aligns:
            gates[student.encoder.alignment.fusion] = read
            read = torch.stack([(states.detach() * states.grad).sum((0, 1)) for states in tokens]).sum(0)
            tokens.clear()
        return gates | _of_layers(layers, read)

    with _tokens_read(student) as tokens:
        return importance(student, encoded, gradients)


def _of_layers(layers: Layers, read: torch.Tensor) -> Gates:
    """Return each layer's sums from `read`, those of all layers' readers, [units of all layers, or more].

    A recurrent layer also reads its own units.
    """
    units = list(map(_units, layers))
    return {
        layer: sums + column_sums(layer.weight_hh) if isinstance(layer, Recurrent) else sums
        for layer, sums in zip(layers, read[: sum(units)].split(units), strict=True)
    }


@contextlib.contextmanager
def _tokens_read(student: Student) -> Iterator[list[torch.Tensor]]:
    """Yield a list to which every forward pass appends the tokens of both aligned texts."""
    tokens: list[torch.Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        for states, _ in inputs[:2]:  # the texts
            states.retain_grad()
            tokens.append(states)

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


def importance(student: Student, encoded: EncodedRows, gradients: Callable[[], Gates]) -> Gates:
    """Return the importances of units over a sample of text.

    gradients: called after each backward pass; returns the gradients of the units' gates.
    """
    total: Gates = {}
    generator = torch.Generator().manual_seed(0)
    rows = np.arange(len(encoded))
    student.eval()
    for some in np.array_split(rows, math.ceil(len(rows) / _BATCH)):
        student.zero_grad()
        batch = encoded.batch(some, torch.device("cpu"))
        logits = without_padding(student(batch), batch)
        # With random signs, the expected square of a batch's sum is the sum of its logits' squares.
        (logits * (torch.randint(0, 2, logits.shape, generator=generator) * 2 - 1)).sum().backward()
        for layer, gates in gradients().items():
            total[layer] = gates**2 + total.get(layer, 0.0)
    student.zero_grad()
    return total


def column_sums(matrix: Matrix) -> torch.Tensor:
    """Return weight * gradient summed over rows, [columns]. Raises UserError for a sum of Kronecker products."""
    if isinstance(matrix, Product):
        matrix.check_low_rank()
    value = getattr(matrix, "right", matrix).value
    return (value * value.grad).sum(0).detach()


def most_important(importances: torch.Tensor, share: float, flag: str, kind: str) -> torch.Tensor:
    """Return the indices of the units of a layer to keep, ascending, to remove a share of them.

    flag, kind: for the message of the UserError that is raised if none would be left.
    """
    width = len(importances)
    count = width - round(share * width)
    if count < 1:
        raise UserError(f"{flag} {share:g}: none of {width} {kind} would be left")
    return best(importances, count)


def best(importances: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices of the `count` most important units, ascending."""
    return torch.argsort(importances, descending=True, stable=True)[:count].sort().values


def keep_rows(layer: Linear, rows: torch.Tensor) -> None:
    """Keep only these outputs of a layer, in place. rows: int64 [outputs to keep]."""
    layer.weight, layer.bias = layer.weight.take_rows(rows), select(layer.bias, rows)


def select(bias: nn.Parameter, kept: torch.Tensor) -> nn.Parameter:
    """Return a bias with these values only. kept: int64 [values to keep]."""
    return nn.Parameter(bias.detach()[kept].clone())


def take_columns(matrix: Matrix, kept: torch.Tensor) -> Matrix:
    """Return a float matrix, or one of low rank, with these columns only. kept: int64 [columns to keep].

    Raises UserError for a sum of Kronecker products.
    """
    if isinstance(matrix, Product):
        matrix.check_low_rank()
        return Product(matrix.left, take_columns(matrix.right, kept))
    return Dense(matrix.dense().detach()[:, kept])
