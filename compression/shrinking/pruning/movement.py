"""Movement pruning (Sanh, Wolf and Rush, 2020): weights that training moves towards zero go, however large they are.

A weight's score is S = -sum over steps of dL/dW' * W (equation 3 of the paper), W' being the masked weight: it rises
where the weight grows and falls where it shrinks. Weights with the highest scores are used ("top-v"), the others count
as zero. The gradient of the mask reaches the scores straight through, so scores of unused weights are learned too and
such a weight can come back. Here S is that very sum, over all steps alike: it needs neither an optimizer nor a learning
rate, which cancels out where only the order counts. Scores trained by Adam, as the paper's authors do, were no better
in our runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from compression.distillation.callbacks import Pruner
from compression.distillation.settings import PruneSettings
from compression.shrinking.pruning.weights import (
    RAMP,
    Prunable,
    is_update,
    masks,
    prunable,
    share_of_target,
    sparsity_by_part,
)
from compression.students.student import Student
from compression.students.weights import Dense, matrices, replace_matrix


class Scored(Dense):
    """A matrix while its scores are learned. Scores and mask are buffers, so a stopped run finds them again."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__(value.detach().clone())
        self.register_buffer("scores", torch.zeros_like(value))
        self.register_buffer("used", torch.ones_like(value, dtype=torch.bool))

    def dense(self) -> torch.Tensor:
        """Return the weights, zero where they are not used."""
        return _Masked.apply(self.value, self.used, self.scores)

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows by number. ids: int64 [...] -> float32 [..., columns]."""
        return nn.functional.embedding(ids, self.dense())


class _Masked(torch.autograd.Function):
    """value * used. The backward pass adds to the scores in place: nothing else sees the whole gradient of W'."""

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
    """Gives a student scored matrices before training, and dense ones with zeros after it."""

    def __init__(self, student: Student, arch: str, embedding_type: str, settings: PruneSettings) -> None:
        self.student, self.arch, self.embedding_type, self.settings = student, arch, embedding_type, settings
        for part in prunable(student, arch, embedding_type):
            replace_matrix(student, part.name, Scored(part.weight))

    @property
    def parts(self) -> list[Prunable]:
        """The scored matrices, looked up each time: a student's tensors change when it moves to another device."""
        return prunable(self.student, self.arch, self.embedding_type)

    def _scored(self) -> list[tuple[str, Scored]]:
        return [(name, matrix) for name, matrix in matrices(self.student) if isinstance(matrix, Scored)]

    def step(self, before: float, after: float) -> None:
        """Select now and then which weights are used."""
        if is_update(before, after):
            zeros = masks(self.parts, self.settings, share_of_target(after))
            for (_, matrix), mask in zip(self._scored(), zeros, strict=True):
                matrix.used.copy_(~mask)

    def eligible(self, progress: float) -> bool:
        """Return whether the target is reached."""
        return progress >= RAMP[1]

    def finish(self) -> dict[str, float]:
        """Replace the scored matrices by dense ones with exact zeros. Return the sparsity of each part."""
        for name, matrix in self._scored():
            replace_matrix(self.student, name, Dense(matrix.dense().detach()))
        return sparsity_by_part(self.parts)
