"""Companions of training that keep what is zero at zero, and that go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from compression.shrinking.pruning.weights import Prunable, set_zero

if TYPE_CHECKING:
    from compression.distillation.trainer import Companion


class ZeroKeeper:
    """Keeps weights at zero that are zero before training: pruned ones, and rows that no text needs."""

    def __init__(self, parts: list[Prunable]) -> None:
        self.parts = parts
        self.zeros = [part.weight.detach() == 0 for part in parts]

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Before the first step. The zeros are those of the student as it was loaded, after a stop too."""
        self.zeros = [zeros.to(part.weight.device) for part, zeros in zip(self.parts, self.zeros, strict=True)]

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing: the zeros are found again in the student."""
        return {}

    def step(self, before: float, after: float) -> None:
        """After an optimizer step."""
        set_zero(self.parts, self.zeros)

    def finished(self, progress: float) -> bool:
        """At any time."""
        return True


class Together:
    """Several companions as one, each after the other."""

    def __init__(self, companions: Sequence[Companion]) -> None:
        self.companions = companions

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Each takes what it knows from the state of a stopped attempt."""
        for companion in self.companions:
            companion.start(state)

    def state(self) -> dict[str, torch.Tensor]:
        """What all of them keep. Their names must differ."""
        return {name: tensor for companion in self.companions for name, tensor in companion.state().items()}

    def step(self, before: float, after: float) -> None:
        """After an optimizer step between two points of progress."""
        for companion in self.companions:
            companion.step(before, after)

    def finished(self, progress: float) -> bool:
        """Whether all of them let weights be chosen."""
        return all(companion.finished(progress) for companion in self.companions)
