"""Structured pruning: whole units of encoders and of the classifier go, with every weight that reads or feeds them.

A unit's importance is how much the logits would change without it, to first order (Molchanov et al., 2017): were its
output multiplied by a gate m, then d logit / dm at m = 1 is the sum of weight * gradient over the weights that read the
unit. Squares of it are summed over outputs and training rows. What reads a unit without a weight, as attention between
texts does, counts by the unit itself: d logit / dm is the sum of the unit's outputs times their gradients.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from common.errors import UserError
from compression.students.batch import EncodedRows
from compression.students.layers import GATES, Linear, Recurrent
from compression.students.scoring import without_padding
from compression.students.student import Student
from compression.students.weights import Dense, Matrix, Product

Layers = list[Recurrent | Linear]
"""The layers of an encoder with units: a recurrent one for each direction, a convolution's linear map, or none."""
_BATCH = 16
"""Rows whose gradients are one draw; the more draws, the better the estimate."""


def remove_units(student: Student, share: float, encoded: EncodedRows) -> dict[str, int]:
    """Remove a share of the encoder's units, as many in each direction, and of the classifier's hidden ones, in place.

    A transformer loses units within each layer's feed-forward part; where texts are aligned, what a token is compared
    to has as many numbers as its state. encoded: a sample of training text. Returns the widths left, by their names in
    the student's settings. Raises UserError when a layer would have no unit left.
    """
    first, last = (layer for layer in student.classifier if isinstance(layer, Linear))
    feed_forward = []
    if student.reads_together:
        feed_forward = [(block.up, block.down) for block in student.encoder.blocks if block.has_units]
    hidden = [*feed_forward, (first, last)]
    """Pairs of layers: units are the outputs of the one and the inputs of the other."""
    children = [] if student.reads_together else student.encoder.children()
    layers = [layer for layer in children if isinstance(layer, Recurrent | Linear)]
    scores = _importance(student, encoded, layers, hidden)
    kept = [_best(each, _left(each, share)) for each in scores.layers]
    widths = list(map(_units, layers))
    if student.aligns:
        fusion, vector = student.encoder.alignment.fusion, torch.arange(student.embedding.table.weight.dense().shape[1])
        compared = _best(scores.compared, sum(map(len, kept)))
        _keep_rows(fusion, compared)
        fusion.weight = _take_columns(fusion.weight, _columns([*widths, len(vector)], [*kept, vector], 4))
        first.weight = _take_columns(first.weight, _columns([sum(widths)], [compared], student.blocks))
    elif layers:
        first.weight = _take_columns(first.weight, _columns(widths, kept, student.blocks))
    for layer, units in zip(layers, kept, strict=True):
        _shrink(layer, units)
    for (up, down), each in zip(hidden, scores.hidden, strict=True):
        units = _best(each, _left(each, share))
        _keep_rows(up, units)
        down.weight = _take_columns(down.weight, units)
    left = {"encoder_hidden_dim": _units(layers[0])} if layers else {}
    left |= {"intermediate_dim": len(feed_forward[0][0].bias)} if feed_forward else {}
    return {**left, "cls_hidden_dim": len(first.bias)}


def _units(layer: Recurrent | Linear) -> int:
    """Return the units of a layer of the encoder. A convolution has two rows for each: its value and its gate."""
    return layer.hidden_dim if isinstance(layer, Recurrent) else len(layer.bias) // 2


@dataclasses.dataclass
class _Importance:
    """Importances [units] of each layer of the encoder, of what texts are compared by, and of each hidden layer."""

    layers: list[torch.Tensor]
    compared: torch.Tensor | None
    hidden: list[torch.Tensor]


def _importance(
    student: Student, encoded: EncodedRows, layers: Layers, hidden: list[tuple[Linear, Linear]]
) -> _Importance:
    """Return the importances over a sample of text."""
    total: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(0)
    rows = np.arange(len(encoded))
    student.eval()
    with _tokens_read(student) as tokens:
        for some in np.array_split(rows, -(-len(rows) // _BATCH)):
            student.zero_grad()
            tokens.clear()
            batch = encoded.batch(some, torch.device("cpu"))
            logits = without_padding(student(batch), batch)
            # With random signs, the expected square of a batch's sum is the sum of its logits' squares.
            (logits * (torch.randint(0, 2, logits.shape, generator=generator) * 2 - 1)).sum().backward()
            gates = [_column_sums(down.weight) for _, down in hidden]
            if layers:
                units, by_classifier = list(map(_units, layers)), _column_sums(student.classifier[0].weight)
                read = by_classifier.view(student.blocks, -1).sum(0)
                if student.aligns:
                    gates = [read, *gates]
                    read = torch.stack([(each.detach() * each.grad).sum((0, 1)) for each in tokens]).sum(0)
                # A recurrent layer reads its own units too.
                own = [_column_sums(layer.weight_hh) if isinstance(layer, Recurrent) else 0.0 for layer in layers]
                gates = [*map(operator.add, read[: sum(units)].split(units), own), *gates]
            total = [gate**2 + sum_ for gate, sum_ in zip(gates, total or [0.0] * len(gates), strict=True)]
    student.zero_grad()
    compared = total.pop(len(layers)) if student.aligns else None
    return _Importance(total[: len(layers)], compared, total[len(layers) :])


@contextlib.contextmanager
def _tokens_read(student: Student) -> Iterator[list[torch.Tensor]]:
    """Yield a list of the tokens of both texts that are aligned, to which every forward pass adds its own."""
    tokens: list[torch.Tensor] = []

    def keep(_: nn.Module, texts: tuple[tuple[torch.Tensor, torch.Tensor], ...]) -> None:
        for each, _ in texts:
            each.retain_grad()
            tokens.append(each)

    hook = student.encoder.alignment.register_forward_pre_hook(keep) if student.aligns else None
    try:
        yield tokens
    finally:
        if hook is not None:
            hook.remove()


def _column_sums(matrix: Matrix) -> torch.Tensor:
    """Return weight * gradient summed over rows, [columns]."""
    value = getattr(matrix, "right", matrix).value
    return (value * value.grad).sum(0).detach()


def _left(importance: torch.Tensor, share: float) -> int:
    """Return how many units stay. Raises UserError when none would."""
    width = len(importance)
    left = width - round(share * width)
    if left < 1:
        raise UserError(f"--prune-units {share:g}: of {width} units none would be left")
    return left


def _best(importance: torch.Tensor, left: int) -> torch.Tensor:
    """Return the indices of the units to keep, ascending."""
    return torch.argsort(importance, descending=True, stable=True)[:left].sort().values


def _columns(widths: list[int], kept: list[torch.Tensor], blocks: int) -> torch.Tensor:
    """Return the indices of a layer's inputs that stay, of blocks that each have all parts of these widths."""
    starts = np.cumsum([0, *widths]).tolist()
    once = torch.cat([start + units for start, units in zip(starts, kept, strict=False)])
    return torch.cat([block * starts[-1] + once for block in range(blocks)])


def _shrink(layer: Recurrent | Linear, units: torch.Tensor) -> None:
    """Keep these units of a layer of the encoder. A unit has a row in each block of the layer's rows."""
    blocks = GATES[layer.kind] if isinstance(layer, Recurrent) else 2
    rows = torch.cat([block * _units(layer) + units for block in range(blocks)])
    if isinstance(layer, Linear):
        _keep_rows(layer, rows)
        return
    layer.weight_ih = layer.weight_ih.take_rows(rows)
    layer.weight_hh = _take_columns(layer.weight_hh.take_rows(rows), units)
    layer.bias_ih, layer.bias_hh = _select(layer.bias_ih, rows), _select(layer.bias_hh, rows)
    layer.hidden_dim = len(units)


def _keep_rows(layer: Linear, rows: torch.Tensor) -> None:
    layer.weight, layer.bias = layer.weight.take_rows(rows), _select(layer.bias, rows)


def _select(bias: nn.Parameter, kept: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(bias.detach()[kept].clone())


def _take_columns(matrix: Matrix, kept: torch.Tensor) -> Matrix:
    """Return a float matrix, or a product, with these columns only. kept: int64 [columns that stay]."""
    if isinstance(matrix, Product):
        return Product(matrix.left, _take_columns(matrix.right, kept))
    return Dense(matrix.dense().detach()[:, kept])
