"""Hooks into the training of a student, for pruning, quantization and alignment."""

from __future__ import annotations

import torch


class Callback:
    """Base class of hooks into training; its methods do nothing."""

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Called before the first step, with the `state` of a stopped run or an empty dict."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors that `start` needs to resume, under names that no other callback uses."""
        return {}

    def step(self, before: float, after: float) -> None:
        """Called after an optimizer step that moves training's progress in [0, 1] from `before` to `after`."""

    def eligible(self, progress: float) -> bool:
        """Return whether weights at this progress may be chosen as the best."""
        return True


class Pruner(Callback):
    """A callback that prunes the student it was created for."""

    def finish(self) -> dict[str, float]:
        """Convert the trained student to plain dense weights, and return the sparsity of each part."""
        raise NotImplementedError
