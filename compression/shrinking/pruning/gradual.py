"""Pruning while training: sparsity rises along a cubic from nothing to its target."""

from __future__ import annotations

import torch

from compression.distillation.callbacks import Pruner
from compression.settings import CompressSettings
from compression.shrinking.pruning.weights import Prunable, masks, set_zero, sparsity_by_part

RAMP = (0.1, 0.6)
"""Shares of training at which pruning starts and reaches its target."""
CHOICES = 200
"""How often the weights to prune are chosen anew: sorting them at every step would double its time."""


def share_of_target(progress: float) -> float:
    """Cubic from 0 to 1 between the ends of RAMP (Zhu and Gupta, 2017, equation 1)."""
    start, end = RAMP
    done = min(max((progress - start) / (end - start), 0.0), 1.0)
    return 1 - (1 - done) ** 3


def is_choice(before: float, after: float) -> bool:
    """Whether the weights to prune are chosen anew between two points of progress."""
    return int(before * CHOICES) != int(after * CHOICES)


class GradualPruner(Pruner):
    """Sets the smallest weights to zero, more and more of them."""

    def __init__(self, parts: list[Prunable], settings: CompressSettings) -> None:
        self.parts, self.settings = parts, settings
        self.zeros: list[torch.Tensor] = []

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Before the first step: nothing is kept at zero, or what the state of a stopped attempt says."""
        none = [torch.zeros_like(part.weight, dtype=torch.bool) for part in self.parts]
        self.zeros = [state.get(part.name, mask) for part, mask in zip(self.parts, none, strict=True)]

    def state(self) -> dict[str, torch.Tensor]:
        """Name of weight -> mask of what is kept at zero, for `start` after a stop."""
        return {part.name: mask for part, mask in zip(self.parts, self.zeros, strict=True)}

    def step(self, before: float, after: float) -> None:
        """After an optimizer step between two points of progress: choose anew now and then, then set to zero.

        Weights that are zero take part in the next step's gradient, so one chosen wrongly can come back.
        """
        if is_choice(before, after):
            self.zeros = masks(self.parts, self.settings, share_of_target(after))
        set_zero(self.parts, self.zeros)

    def eligible(self, progress: float) -> bool:
        """Whether the target is reached: weights from before may not be chosen as the best."""
        return progress >= RAMP[1]

    def finish(self) -> dict[str, float]:
        """After training. Returns the sparsity reached by part."""
        return sparsity_by_part(self.parts)
