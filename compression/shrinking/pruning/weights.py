"""Which single weights to set to zero: as many as asked for in each part, biases left alone.

Magnitude pruning takes a threshold on absolute values, Top-V a share of weights (section 4.2 of the thesis); local
pruning treats every matrix apart, global pruning all together. There are no masks beside the weights: what the
optimizer trains is what is saved.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from compression.settings import CompressSettings
from compression.students.student import Student
from compression.students.weights import Dense, matrices

TARGETS = {"bilstm": 0.5, "rnn": 0.1, "linear": 0.125, "hash": 0.0, "char": 0.3, "bpe": 0.4} | {
    "wordpiece": 0.4,
    "conv": 0.3,
    "transformer": 0.3,
    "recursive": 0.1,
}
"""Sparsity of local Top-V pruning where none is asked for: table 6.3 of the thesis; the last four are ours."""
DEFAULT_MAGNITUDE = 0.05


@dataclasses.dataclass
class Prunable:
    """One weight matrix and the row of table 6.3 it belongs to.

    scores: what weights are worth, of the weight's shape, where that is learned (movement pruning).
    """

    name: str
    kind: str
    weight: nn.Parameter
    scores: torch.Tensor | None = None

    @property
    def importance(self) -> torch.Tensor:
        """What is pruned last: the highest scores, or else the largest absolute values."""
        return self.weight.detach().abs() if self.scores is None else self.scores.detach()


def prunable(student: Student, arch: str, embedding_type: str) -> list[Prunable]:
    """Every float matrix of a student, no biases. Hash importance scalars count as `hash`."""
    return [
        Prunable(name, kind_of(name, arch, embedding_type), matrix.value)
        for name, matrix in matrices(student)
        if isinstance(matrix, Dense)
    ]


def kind_of(name: str, arch: str, embedding_type: str) -> str:
    """The row of table 6.3 for a matrix by its name."""
    return {"embedding": embedding_type, "encoder": arch, "classifier": "linear"}[name.split(".")[0]]


def smallest(importance: torch.Tensor, share: float) -> torch.Tensor:
    """Mask of the round(share * n) least important weights: exactly that many, ties broken by place."""
    count = round(share * importance.numel())
    mask = torch.zeros(importance.numel(), dtype=torch.bool, device=importance.device)
    mask[torch.argsort(importance.flatten(), stable=True)[:count]] = True
    return mask.view_as(importance)


def masks(parts: list[Prunable], settings: CompressSettings, progress: float = 1.0) -> list[torch.Tensor]:
    """What to set to zero, one mask a part. `progress` scales the target while pruning is under way."""
    if settings.prune_magnitude:
        threshold = (DEFAULT_MAGNITUDE if settings.prune_threshold is None else settings.prune_threshold) * progress
        return [part.weight.detach().abs() < threshold for part in parts]
    share = settings.prune_threshold
    if share is None:
        return [smallest(part.importance, TARGETS[part.kind] * progress) for part in parts]
    if settings.prune_local:
        return [smallest(part.importance, share * progress) for part in parts]
    joined = smallest(torch.cat([part.importance.flatten() for part in parts]), share * progress)
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
