"""Structured pruning: whole units of encoders and of the classifier go, with every weight that reads or feeds them.

A unit's importance is how much the logits would change without it, to first order (Molchanov et al., 2017): were its
output multiplied by a gate m, then d logit / dm at m = 1 is the sum of weight * gradient over the weights that read the
unit. Squares of it are summed over outputs and training rows.
"""

from __future__ import annotations

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


def remove_units(student: Student, share: float, encoded: EncodedRows, pair: bool) -> dict[str, int]:
    """Remove a share of the encoder's units, as many in each direction, and of the classifier's hidden ones, in place.

    A transformer loses units within each layer's feed-forward part. encoded: a sample of training text. Returns the
    widths left, by their names in the student's settings. Raises UserError when a layer would have no unit left.
    """
    first, last = (layer for layer in student.classifier if isinstance(layer, Linear))
    feed_forward = [(block.up, block.down) for block in student.encoder.blocks] if student.reads_together else []
    hidden = [*feed_forward, (first, last)]
    """Pairs of layers: units are the outputs of the one and the inputs of the other."""
    layers = [] if student.reads_together else list(student.encoder.children())
    blocks = 4 if pair else 1  # the classifier reads [u; v; |u - v|; u * v]
    kept = [_best(scores, share) for scores in _importance(student, encoded, layers, blocks, hidden)]
    if layers:
        first.weight = _take_columns(first.weight, _inputs_of(layers, kept[: len(layers)], blocks))
    for layer, units in zip(layers, kept, strict=False):
        _shrink(layer, units)
    for (up, down), units in zip(hidden, kept[len(layers) :], strict=True):
        up.weight, up.bias = up.weight.take_rows(units), _select(up.bias, units)
        down.weight = _take_columns(down.weight, units)
    widths = {"encoder_hidden_dim": _units(layers[0])} if layers else {}
    widths |= {"intermediate_dim": len(feed_forward[0][0].bias)} if feed_forward else {}
    return {**widths, "cls_hidden_dim": len(first.bias)}


def _units(layer: Recurrent | Linear) -> int:
    """Return the units of a layer of the encoder. A convolution has two rows for each: its value and its gate."""
    return layer.hidden_dim if isinstance(layer, Recurrent) else len(layer.bias) // 2


def _importance(
    student: Student, encoded: EncodedRows, layers: Layers, blocks: int, hidden: list[tuple[Linear, Linear]]
) -> list[torch.Tensor]:
    """Return importances [units]: a tensor for each layer of the encoder, and for each pair of hidden layers."""
    total: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(0)
    rows = np.arange(len(encoded))
    student.eval()
    for some in np.array_split(rows, -(-len(rows) // _BATCH)):
        student.zero_grad()
        batch = encoded.batch(some, torch.device("cpu"))
        logits = without_padding(student(batch), batch)
        # With random signs, the expected square of a batch's sum is the sum of its logits' squares.
        (logits * (torch.randint(0, 2, logits.shape, generator=generator) * 2 - 1)).sum().backward()
        gates = [_column_sums(down.weight) for _, down in hidden]
        if layers:  # the classifier reads their units, and a recurrent layer its own
            read = _column_sums(student.classifier[0].weight).view(blocks, -1).sum(0).split(list(map(_units, layers)))
            recurrent = [_column_sums(layer.weight_hh) if isinstance(layer, Recurrent) else 0.0 for layer in layers]
            gates = [*(own + columns for columns, own in zip(read, recurrent, strict=True)), *gates]
        total = [gate**2 + sum_ for gate, sum_ in zip(gates, total or [0.0] * len(gates), strict=True)]
    student.zero_grad()
    return total


def _column_sums(matrix: Matrix) -> torch.Tensor:
    """Return weight * gradient summed over rows, [columns]."""
    value = getattr(matrix, "right", matrix).value
    return (value * value.grad).sum(0).detach()


def _best(importance: torch.Tensor, share: float) -> torch.Tensor:
    """Return the indices of the units to keep, ascending. Raises UserError when none would be left."""
    width = len(importance)
    left = width - round(share * width)
    if left < 1:
        raise UserError(f"--prune-units {share:g}: of {width} units none would be left")
    return torch.argsort(importance, descending=True, stable=True)[:left].sort().values


def _inputs_of(layers: Layers, kept: list[torch.Tensor], blocks: int) -> torch.Tensor:
    """Return the indices of the classifier's inputs that stay: layer after layer, and that in each block."""
    starts = np.cumsum([0] + [_units(layer) for layer in layers]).tolist()
    once = torch.cat([start + units for start, units in zip(starts, kept, strict=False)])
    return torch.cat([block * starts[-1] + once for block in range(blocks)])


def _shrink(layer: Recurrent | Linear, units: torch.Tensor) -> None:
    """Keep these units of a layer of the encoder. A unit has a row in each block of the layer's rows."""
    blocks = GATES[layer.kind] if isinstance(layer, Recurrent) else 2
    rows = torch.cat([block * _units(layer) + units for block in range(blocks)])
    if isinstance(layer, Linear):
        layer.weight, layer.bias = layer.weight.take_rows(rows), _select(layer.bias, rows)
        return
    layer.weight_ih = layer.weight_ih.take_rows(rows)
    layer.weight_hh = _take_columns(layer.weight_hh.take_rows(rows), units)
    layer.bias_ih, layer.bias_hh = _select(layer.bias_ih, rows), _select(layer.bias_hh, rows)
    layer.hidden_dim = len(units)


def _select(bias: nn.Parameter, kept: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(bias.detach()[kept].clone())


def _take_columns(matrix: Matrix, kept: torch.Tensor) -> Matrix:
    """Return a float matrix, or a product, with these columns only. kept: int64 [columns that stay]."""
    if isinstance(matrix, Product):
        return Product(matrix.left, _take_columns(matrix.right, kept))
    return Dense(matrix.dense().detach()[:, kept])
