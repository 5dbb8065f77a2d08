"""Pruning: zeros where weights are small, as many as asked for in each part, biases left alone.

Magnitude pruning takes a threshold on absolute values, Top-V a share of weights (section 4.2 of the thesis); local
pruning treats every matrix apart, global pruning all together. The weights themselves are set to zero: there are no
masks beside them, and what the optimizer trains is what is saved.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from common.errors import UserError
from common.models import ModelConfig
from compression.matrices import Dense, matrices
from compression.settings import CompressSettings
from compression.students.student import Student

if TYPE_CHECKING:
    from compression.work import Work

# Table 6.3 of the thesis: sparsity targets of local Top-V pruning.
TARGETS = {"bilstm": 0.5, "rnn": 0.1, "linear": 0.125, "hash": 0.0, "char": 0.3, "bpe": 0.4}
DEFAULT_MAGNITUDE = 0.05
RAMP = (0.1, 0.6)
"""Shares of training at which gradual pruning starts and reaches its target."""
CHOICES = 200
"""How often the weights to prune are chosen anew: sorting them at every step would double its time."""


@dataclasses.dataclass
class Prunable:
    """One weight matrix and the row of table 6.3 it belongs to."""

    name: str
    kind: str
    weight: nn.Parameter


def prunable(student: Student, arch: str, embedding_type: str) -> list[Prunable]:
    """Every float matrix of a student, no biases. Hash importance scalars count as `hash`."""
    kinds = {"embedding": embedding_type, "encoder": arch, "classifier": "linear"}
    return [
        Prunable(name, kinds[name.split(".")[0]], matrix.value)
        for name, matrix in matrices(student)
        if isinstance(matrix, Dense)
    ]


def smallest(weight: torch.Tensor, share: float) -> torch.Tensor:
    """Mask of the round(share * n) weights of least magnitude: exactly that many, ties broken by place."""
    count = round(share * weight.numel())
    mask = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    mask[torch.argsort(weight.detach().abs().flatten(), stable=True)[:count]] = True
    return mask.view_as(weight)


def masks(parts: list[Prunable], settings: CompressSettings, progress: float = 1.0) -> list[torch.Tensor]:
    """What to set to zero, one mask a part. `progress` scales the target while pruning is under way."""
    if settings.prune_magnitude:
        threshold = (DEFAULT_MAGNITUDE if settings.prune_threshold is None else settings.prune_threshold) * progress
        return [part.weight.detach().abs() < threshold for part in parts]
    share = settings.prune_threshold
    if share is None:
        return [smallest(part.weight, TARGETS[part.kind] * progress) for part in parts]
    if settings.prune_local:
        return [smallest(part.weight, share * progress) for part in parts]
    joined = smallest(torch.cat([part.weight.detach().flatten() for part in parts]), share * progress)
    pieces = joined.split([part.weight.numel() for part in parts])
    return [piece.view_as(part.weight) for piece, part in zip(pieces, parts, strict=True)]


def set_zero(parts: list[Prunable], zeros: list[torch.Tensor]) -> None:
    """Set masked weights to zero in place."""
    with torch.no_grad():
        for part, mask in zip(parts, zeros, strict=True):
            part.weight.masked_fill_(mask, 0.0)


def sparsity_by_part(parts: list[Prunable]) -> dict[str, float]:
    """Share of zeros reached: of each matrix, of embedding, encoder and classifier, and of all weights."""
    groups: dict[str, list[torch.Tensor]] = {}
    for part in parts:
        for group in (part.name, part.name.split(".")[0], "total"):
            groups.setdefault(group, []).append(part.weight.detach().flatten() == 0)
    return {name: round(torch.cat(zeros).float().mean().item(), 6) for name, zeros in groups.items()}


class GradualPruner:
    """Prunes while training: sparsity rises from 0 to its target along a cubic (Zhu and Gupta, 2017, equation 1)."""

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
        if int(before * CHOICES) != int(after * CHOICES):
            self.zeros = masks(self.parts, self.settings, share_of_target(after))
        set_zero(self.parts, self.zeros)

    def finished(self, progress: float) -> bool:
        """Whether the target is reached: weights from before may not be chosen as the best."""
        return progress >= RAMP[1]


def share_of_target(progress: float) -> float:
    """Cubic from 0 to 1 between the ends of RAMP."""
    start, end = RAMP
    done = min(max((progress - start) / (end - start), 0.0), 1.0)
    return 1 - (1 - done) ** 3


def pruning_companion(student: Student, settings: CompressSettings) -> GradualPruner:
    """A pruner of the student being trained, with the targets `prune` would use."""
    return GradualPruner(prunable(student, settings.student_arch, settings.embedding_type), settings)


def prune_student(student: Student, config: ModelConfig, settings: CompressSettings) -> dict[str, float]:
    """Prune a trained student in place. Returns the sparsity reached by part. Raises UserError when it is quantized."""
    if config.stage == "quantized":
        raise UserError(f"{config.name} is quantized; prune it before quantizing")
    parts = prunable(student, config.arch, config.student["embedding_type"])
    set_zero(parts, masks(parts, settings))
    return sparsity_by_part(parts)


def suffix(settings: CompressSettings) -> str:
    """What pruning adds to a model's name."""
    return "+p"


def apply(work: Work) -> dict[str, Any]:
    """Prune a student in place. Returns the sparsity reached, for its config."""
    return {"sparsity": prune_student(work.student, work.parent, work.settings)}
