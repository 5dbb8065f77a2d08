"""Movement pruning (Sanh, Wolf and Rush, 2020): weights that training moves towards zero go, however large they are.

A weight's score is S = -sum over steps of dL/dW' * W (their equation 3), W' being the masked weight: it rises where the
weight grows and falls where it shrinks. The weights of the highest scores are used ("top-v"), the others count as zero;
the gradient of the mask reaches the scores straight through, so those of weights left out are learned too and a weight
can come back. Here S is that very sum, over all steps alike: it needs neither an optimizer nor a learning rate, which
cancels out where only the order counts. Scores trained by Adam, as the paper's authors do, were no better in our runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from compression.distillation.callbacks import Pruner
from compression.settings import CompressSettings
from compression.shrinking.pruning.gradual import RAMP, is_choice, share_of_target
from compression.shrinking.pruning.weights import Prunable, kind_of, masks, prunable, sparsity_by_part
from compression.students.student import Student
from compression.students.weights import Dense, Matrix, matrices, replace_matrix


class Scored(Matrix):
    """A matrix while its scores are learned. Scores and mask are buffers, so that a stopped run finds them again."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value.detach().clone())
        self.register_buffer("scores", torch.zeros_like(value))
        self.register_buffer("used", torch.ones_like(value, dtype=torch.bool))

    def dense(self) -> torch.Tensor:
        """Weights, zero where they are not used."""
        return _Masked.apply(self.value, self.used, self.scores)

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows by number."""
        return nn.functional.embedding(ids, self.dense())


class _Masked(torch.autograd.Function):
    """value * used. Going backwards it adds to the scores, in place: nothing else sees the whole gradient of W'."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, used: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(value, used)
        ctx.scores = scores
        return value * used

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        value, used = ctx.saved_tensors
        ctx.scores.sub_(gradient * value)
        return gradient * used, None, None


class MovementPruner(Pruner):
    """Puts scored matrices into a student that is about to be trained, and dense ones with zeros back afterwards."""

    def __init__(self, student: Student, arch: str, embedding_type: str, settings: CompressSettings) -> None:
        self.student, self.arch, self.embedding_type, self.settings = student, arch, embedding_type, settings
        for part in prunable(student, arch, embedding_type):
            replace_matrix(student, part.name, Scored(part.weight))

    @property
    def parts(self) -> list[Prunable]:
        """The scored matrices; looked up anew, since a student's tensors move with it to another device."""
        return [
            Prunable(name, kind_of(name, self.arch, self.embedding_type), matrix.value, matrix.scores)
            for name, matrix in self._scored()
        ]

    def _scored(self) -> list[tuple[str, Scored]]:
        return [(name, matrix) for name, matrix in matrices(self.student) if isinstance(matrix, Scored)]

    def step(self, before: float, after: float) -> None:
        """After an optimizer step between two points of progress: choose anew now and then which weights are used."""
        if is_choice(before, after):
            zeros = masks(self.parts, self.settings, share_of_target(after))
            for (_, matrix), mask in zip(self._scored(), zeros, strict=True):
                matrix.used.copy_(~mask)

    def eligible(self, progress: float) -> bool:
        """Whether the target is reached: weights from before may not be chosen as the best."""
        return progress >= RAMP[1]

    def finish(self) -> dict[str, float]:
        """After training: dense matrices with exact zeros. Returns the sparsity reached by part."""
        for name, matrix in self._scored():
            replace_matrix(self.student, name, Dense(matrix.dense().detach()))
        return sparsity_by_part(prunable(self.student, self.arch, self.embedding_type))
