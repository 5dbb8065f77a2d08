"""A callback of training that keeps zeros at zero."""

from __future__ import annotations

import torch

from compression.distillation.callbacks import Callback
from compression.shrinking.pruning.weights import Prunable, set_zero


class SparsityMask(Callback):
    """Keeps weights at zero that are zero before training: pruned ones, and rows that no text needs."""

    def __init__(self, parts: list[Prunable]) -> None:
        self.parts = parts
        self.zeros = [part.weight.detach() == 0 for part in parts]

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Before the first step. The zeros are those of the student as it was loaded, after a stop too."""
        self.zeros = [zeros.to(part.weight.device) for part, zeros in zip(self.parts, self.zeros, strict=True)]

    def step(self, before: float, after: float) -> None:
        """Set the weights to zero again."""
        set_zero(self.parts, self.zeros)
