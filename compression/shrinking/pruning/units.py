"""Structured pruning: whole units of encoders and of the classifier go, with every weight that reads or feeds them.

A unit's worth is how much the logits would change without it, to first order (Molchanov et al., 2017): were its output
multiplied by a gate m, then d logit / dm at m = 1 is the sum of weight * gradient over the weights that read the unit.
Squares of it are summed over outputs and training rows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from common.errors import UserError
from compression.shrinking.pruning.cut import columns_of, last_factor, rows_of
from compression.students.batch import EncodedRows
from compression.students.layers import GATES, Linear, Recurrent
from compression.students.scoring import without_padding
from compression.students.student import Student
from compression.students.weights import Matrix

Layers = list[Recurrent | Linear]
"""Of an encoder: a recurrent one for each direction, a convolution's linear map, or none."""
_BATCH = 16
"""Few rows at a time: each batch is one draw, and one estimate."""


def remove_units(student: Student, share: float, encoded: EncodedRows, pair: bool) -> dict[str, int]:
    """Remove a share of the encoder's units, as many in each direction, and of the classifier's hidden ones, in place.

    Of a transformer they are the units within each layer's feed-forward part. encoded: a sample of training text.
    Returns the widths left, by their names in the student's settings. Raises UserError when a layer would have no unit
    left.
    """
    first, last = _ends(student.classifier)
    feed_forward = [(block.up, block.down) for block in student.encoder.blocks] if student.reads_together else []
    between = [*feed_forward, (first, last)]
    layers = [] if student.reads_together else list(student.encoder.children())
    blocks = 4 if pair else 1
    for width in [_units(layer) for layer in layers] + [len(one.bias) for one, _ in between]:
        if _left(width, share) < 1:
            raise UserError(f"--prune-units {share:g}: of {width} units none would be left")
    worth = _worth(student, encoded, layers, blocks, [other for _, other in between])
    if layers:
        kept = [_best(scores, share) for scores in worth[: len(layers)]]
        _shrink_inputs(first, _places(layers, kept, blocks))
        for layer, units in zip(layers, kept, strict=True):
            _shrink(layer, units)
    for (one, other), scores in zip(between, worth[len(layers) :], strict=True):
        units = _best(scores, share)
        one.weight, one.bias = rows_of(one.weight, units), _some(one.bias, units)
        _shrink_inputs(other, units)
    widths = {"encoder_hidden_dim": _units(layers[0])} if layers else {}
    widths |= {"intermediate_dim": len(feed_forward[0][0].bias)} if feed_forward else {}
    return {**widths, "cls_hidden_dim": len(first.bias)}


def _units(layer: Recurrent | Linear) -> int:
    """Units of a layer of the encoder. A convolution has two rows for each: one makes its value, the other its gate."""
    return layer.hidden_dim if isinstance(layer, Recurrent) else len(layer.bias) // 2


def _worth(
    student: Student, encoded: EncodedRows, layers: Layers, blocks: int, readers: list[Linear]
) -> list[torch.Tensor]:
    """Worth of each unit, [units]: one tensor a layer of the encoder, and one for the units that each reader reads."""
    first, _ = _ends(student.classifier)
    total: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(0)
    rows = np.arange(len(encoded))
    student.eval()
    for some in np.array_split(rows, -(-len(rows) // _BATCH)):
        student.zero_grad()
        batch = encoded.batch(some, torch.device("cpu"))
        logits = without_padding(student(batch), batch)
        # With random signs, the square of a batch's sum is in the mean the sum of its logits' squares.
        (logits * (torch.randint(0, 2, logits.shape, generator=generator) * 2 - 1)).sum().backward()
        gates = [*_gates(layers, first, blocks), *(_column_sums(reader.weight) for reader in readers)]
        total = [gate**2 + sum_ for gate, sum_ in zip(gates, total or [0.0] * len(gates), strict=True)]
    student.zero_grad()
    return total


def _gates(layers: Layers, first: Linear, blocks: int) -> list[torch.Tensor]:
    """Derivative by each unit's gate, one tensor a layer: by what the classifier reads of it, and its own layer."""
    if not layers:
        return []
    read = _column_sums(first.weight).view(blocks, -1).sum(0).split([_units(layer) for layer in layers])
    return [
        columns + _column_sums(layer.weight_hh) if isinstance(layer, Recurrent) else columns
        for columns, layer in zip(read, layers, strict=True)
    ]


def _column_sums(matrix: Matrix) -> torch.Tensor:
    value = last_factor(matrix).value
    return (value * value.grad).sum(0).detach()


def _left(width: int, share: float) -> int:
    return width - round(share * width)


def _best(worth: torch.Tensor, share: float) -> torch.Tensor:
    """Places of the units to keep, in order."""
    return torch.argsort(worth, descending=True, stable=True)[: _left(len(worth), share)].sort().values


def _places(layers: Layers, kept: list[torch.Tensor], blocks: int) -> torch.Tensor:
    """Places of the kept units in what the classifier reads: layers side by side, for pairs in four blocks."""
    starts = np.cumsum([0] + [_units(layer) for layer in layers]).tolist()
    once = torch.cat([start + units for start, units in zip(starts, kept, strict=False)])
    return torch.cat([block * starts[-1] + once for block in range(blocks)])


def _shrink(layer: Recurrent | Linear, units: torch.Tensor) -> None:
    """Leave a layer of the encoder these units. A unit has a row in each block of the layer's rows."""
    of_each = GATES[layer.kind] if isinstance(layer, Recurrent) else 2
    rows = torch.cat([block * _units(layer) + units for block in range(of_each)])
    if isinstance(layer, Linear):
        layer.weight, layer.bias = rows_of(layer.weight, rows), _some(layer.bias, rows)
        return
    layer.weight_ih = rows_of(layer.weight_ih, rows)
    layer.weight_hh = columns_of(rows_of(layer.weight_hh, rows), units)
    layer.bias_ih, layer.bias_hh = _some(layer.bias_ih, rows), _some(layer.bias_hh, rows)
    layer.hidden_dim = len(units)


def _shrink_inputs(layer: Linear, kept: torch.Tensor) -> None:
    layer.weight = columns_of(layer.weight, kept)


def _some(bias: nn.Parameter, kept: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(bias.detach()[kept].clone())


def _ends(classifier: nn.Module) -> tuple[Linear, Linear]:
    first, last = (layer for layer in classifier if isinstance(layer, Linear))
    return first, last
