"""Hooks into the training of a student: pruning, quantization and alignment take part in it through them."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Callback:
    """Hooks into training, for pruning and quantizing while a student learns. These do nothing."""

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Runs before the first step, with the `state` of a stopped attempt or an empty dict."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors that `start` needs to resume, under names that no other callback uses."""
        return {}

    def step(self, before: float, after: float) -> None:
        """Runs after an optimizer step that took training's progress in [0, 1] from `before` to `after`."""

    def eligible(self, progress: float) -> bool:
        """Return whether weights at this progress may be chosen as the best."""
        return True


class Pruner(Callback):
    """A callback that prunes the student it was created for."""

    def finish(self) -> dict[str, float]:
        """Leave the student with plain dense weights, after training. Return the sparsity of each part."""
        raise NotImplementedError


class CallbackList(Callback):
    """Several callbacks as one; each runs after the other."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Start each."""
        for callback in self.callbacks:
            callback.start(state)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors of all."""
        return {name: tensor for callback in self.callbacks for name, tensor in callback.state().items()}

    def step(self, before: float, after: float) -> None:
        """Run each one's step."""
        for callback in self.callbacks:
            callback.step(before, after)

    def eligible(self, progress: float) -> bool:
        """Return whether weights are eligible for all."""
        return all(callback.eligible(progress) for callback in self.callbacks)
