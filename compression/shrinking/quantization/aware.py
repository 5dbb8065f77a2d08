"""Quantization-aware training: the student computes with quantized weights, its gradients go straight through.

The forward pass sees exactly what will be saved; its gradient is given to the float weights as it is (the
straight-through estimator; Bengio, Leonard and Courville, 2013). Ranges are fitted anew now and then, since weights
move out of them.
"""

from __future__ import annotations

import torch
from torch import nn

from compression.distillation.callbacks import Callback
from compression.shrinking.quantization.scheme import Scheme
from compression.students.student import Student
from compression.students.weights import Matrix, matrices, replace_matrix

FITS = 20
"""How often ranges are fitted anew in the course of training."""


class Aware(Matrix):
    """Float weights that are trained, seen through a quantizer. What is zero at the start (pruned) stays zero."""

    def __init__(self, weight: torch.Tensor, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme
        self.value = nn.Parameter(weight.clone())
        self.register_buffer("pruned", weight == 0)
        ranges = scheme.fit(weight)
        self.ranges = tuple(ranges)
        for name, tensor in ranges.items():
            self.register_buffer(name, tensor)

    def dense(self) -> torch.Tensor:
        """The quantized weights' values, with the float weights' gradient."""
        through = self.value - self.value.detach()  # zeros, with a gradient
        return self.rounded().dense() + through.masked_fill(self.pruned, 0.0)

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows by number; embedding's gradient is faster than indexing's."""
        return nn.functional.embedding(ids, self.dense())

    def rounded(self) -> Matrix:
        """The matrix to be saved."""
        return self.scheme.code(self.value.detach(), {name: getattr(self, name) for name in self.ranges})

    def fit(self) -> None:
        """Ranges anew, for the weights as they have become."""
        for name, tensor in self.scheme.fit(self.value.detach()).items():
            setattr(self, name, tensor)


class RangeUpdater(Callback):
    """Fits ranges again while a student trains. They are buffers of the student, so a stopped run finds them."""

    def __init__(self, student: Student) -> None:
        self.aware = [matrix for _, matrix in matrices(student) if isinstance(matrix, Aware)]

    def step(self, before: float, after: float) -> None:
        """After an optimizer step between two points of progress."""
        if int(before * FITS) != int(after * FITS):
            for matrix in self.aware:
                matrix.fit()


def settle(student: Student) -> None:
    """Replace what was trained by what is saved; the student computes the same."""
    for name, matrix in list(matrices(student)):
        if isinstance(matrix, Aware):
            replace_matrix(student, name, matrix.rounded())
