"""Quantization-aware training: the student computes with quantized weights, and its gradients go straight through.

The forward pass uses exactly what will be saved; its gradient goes to the float weights unchanged (the straight-through
estimator; Bengio, Leonard and Courville, 2013). Ranges are updated now and then, since weights move out of them.
"""

from __future__ import annotations

import torch
from torch import nn

from compression.distillation.callbacks import Callback
from compression.shrinking.quantization.scheme import Scheme
from compression.students.student import Student
from compression.students.weights import Matrix, matrices, replace_matrix

UPDATES = 20
"""How often ranges are fitted in the course of training."""


class FakeQuantized(Matrix):
    """Float weights in training, used through a quantizer. Weights that are zero at the start (pruned) stay zero."""

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
        """Return the quantized weights' values, with the gradient of the float weights."""
        through = self.value - self.value.detach()  # zeros, with a gradient
        return self.quantized().dense() + through.masked_fill(self.pruned, 0.0)

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows by number, ids [...] -> [..., columns]; embedding's gradient is faster here than indexing's."""
        return nn.functional.embedding(ids, self.dense())

    def quantized(self) -> Matrix:
        """Return the matrix to be saved."""
        return self.scheme.code(self.value.detach(), {name: getattr(self, name) for name in self.ranges})

    def update_ranges(self) -> None:
        """Fit the ranges to the weights as they are now."""
        for name, tensor in self.scheme.fit(self.value.detach()).items():
            setattr(self, name, tensor)


class RangeUpdater(Callback):
    """Updates ranges while a student trains. They are buffers of the student, so a stopped run finds them again."""

    def __init__(self, student: Student) -> None:
        self.matrices = [matrix for _, matrix in matrices(student) if isinstance(matrix, FakeQuantized)]

    def step(self, before: float, after: float) -> None:
        """Update the ranges UPDATES times in all."""
        if int(before * UPDATES) != int(after * UPDATES):
            for matrix in self.matrices:
                matrix.update_ranges()


def convert(student: Student) -> None:
    """Replace what was trained by what is saved, in place; the student computes the same."""
    for name, matrix in list(matrices(student)):
        if isinstance(matrix, FakeQuantized):
            replace_matrix(student, name, matrix.quantized())
