"""Importance of units, by how much the logits would change without them, and removal of units from matrices.

To first order (Molchanov et al., 2017): if a unit's output is multiplied by a gate m, then d logit / dm at m = 1 is the
sum of weight * gradient over the weights that read the unit. A unit's importance is the sum of the squares of this
derivative over outputs and training rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from common.errors import UserError
from compression.students.batch import EncodedRows
from compression.students.layers import Linear
from compression.students.scoring import without_padding
from compression.students.student import Student
from compression.students.weights import Dense, Matrix, Product

_BATCH = 16
"""Rows per random draw of signs; more draws give a better estimate."""


Gates = dict[nn.Module, torch.Tensor]
"""Layer -> a value for each of its units, [units]."""


def importance(student: Student, encoded: EncodedRows, gradients: Callable[[], Gates]) -> Gates:
    """Return the importances of units over a sample of text.

    gradients: called after each backward pass; returns the gradients of the units' gates.
    """
    total: Gates = {}
    generator = torch.Generator().manual_seed(0)
    rows = np.arange(len(encoded))
    student.eval()
    for some in np.array_split(rows, -(-len(rows) // _BATCH)):
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
