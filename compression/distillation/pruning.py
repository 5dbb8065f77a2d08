"""Pruning of single weights: selecting them, pruning gradually during training, and keeping them at zero.

Magnitude pruning takes a threshold on absolute values, Top-V a share of weights (section 4.2 of the thesis); local
pruning ranks the weights of each matrix separately, global pruning those of all matrices together. Biases are never
pruned.

Movement pruning (Sanh, Wolf and Rush, 2020) prunes weights that training moves towards zero, however large they are.
A weight's score is S = -sum over steps of dL/dW' * W (equation 3 of the paper), W' being the masked weight: it rises
where the weight grows and falls where it shrinks. Weights with the highest scores are used ("top-v"), the others count
as zero. The mask's gradient is passed on to the scores unchanged, so scores of unused weights are learned too and such
a weight can come back. Here S is exactly this sum, with the same weight for every step: it needs neither an optimizer
nor a learning rate, which does not change the order. Scores trained by Adam, as the paper's authors do, were no better
in our runs.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from common.training.loop import Callback
from compression.distillation.settings import PruneSettings
from compression.students.student import Student
from compression.students.weights import Dense, matrices, replace_matrix

TARGETS = {
    **{"bilstm": 0.5, "rnn": 0.1, "linear": 0.125, "hash": 0.0, "char": 0.3, "bpe": 0.4},
    **{"wordpiece": 0.4, "ngrams": 0.4, "conv": 0.3, "transformer": 0.3, "recursive": 0.1, "gru": 0.5},
}
"""Sparsity of local Top-V pruning without --prune-threshold: table 6.3 of the thesis; the last six are ours."""
DEFAULT_MAGNITUDE = 0.05
RAMP = (0.1, 0.6)
"""Shares of training at which gradual pruning starts and reaches its target."""
UPDATES = 200
"""How often the weights to prune are selected in a training run: sorting them at every step would double its time."""


@dataclasses.dataclass
class Prunable:
    """One weight matrix."""

    name: str
    kind: str
    """Its key in TARGETS."""
    weight: nn.Parameter
    scores: torch.Tensor | None = None
    """In movement pruning, the learned importance of each weight."""

    @property
    def importance(self) -> torch.Tensor:
        """Values that weights are ranked by, the lowest pruned first: learned scores, or else absolute values."""
        return self.weight.detach().abs() if self.scores is None else self.scores.detach()


def prunable(student: Student) -> list[Prunable]:
    """Return every float matrix of a student.

    Importance scalars of hash embeddings count as `hash`, the layer that compares aligned texts as `linear`.
    """
    kinds = {"embedding": student.embedding_type, "encoder": student.arch, "classifier": "linear"}
    parts = []
    for name, matrix in matrices(student):
        if isinstance(matrix, Dense):
            kind = "linear" if ".fusion." in name else kinds[name.split(".")[0]]
            parts.append(Prunable(name, kind, matrix.value, getattr(matrix, "scores", None)))
    return parts


def smallest(importance: torch.Tensor, share: float) -> torch.Tensor:
    """Return a mask of exactly the round(share * n) least important weights; of equal ones, the first."""
    count = round(share * importance.numel())
    mask = torch.zeros(importance.numel(), dtype=torch.bool, device=importance.device)
    mask[torch.argsort(importance.flatten(), stable=True)[:count]] = True
    return mask.view_as(importance)


def masks(parts: list[Prunable], settings: PruneSettings, progress: float = 1.0) -> list[torch.Tensor]:
    """Return a mask of the weights to prune for each part. progress: share of the target to reach."""
    if settings.prune_magnitude:
        threshold = DEFAULT_MAGNITUDE if settings.prune_threshold is None else settings.prune_threshold
        return [part.weight.detach().abs() < threshold * progress for part in parts]
    share = settings.prune_threshold
    if share is None:
        return [smallest(part.importance, TARGETS[part.kind] * progress) for part in parts]
    if settings.prune_local:
        return [smallest(part.importance, share * progress) for part in parts]
    joined = smallest(torch.cat([part.importance.flatten() for part in parts]), share * progress)
    split = joined.split([part.weight.numel() for part in parts])
    return [mask.view_as(part.weight) for mask, part in zip(split, parts, strict=True)]


def set_zero(parts: list[Prunable], zeros: list[torch.Tensor]) -> None:
    """Set masked weights to zero, in place."""
    with torch.no_grad():
        for part, mask in zip(parts, zeros, strict=True):
            part.weight.masked_fill_(mask, 0.0)


def sparsity_by_part(parts: list[Prunable]) -> dict[str, float]:
    """Return the share of zeros of each matrix, of embedding, encoder and classifier, and of all weights (`total`)."""
    groups: dict[str, list[torch.Tensor]] = {}
    for part in parts:
        for group in (part.name, part.name.split(".")[0], "total"):
            groups.setdefault(group, []).append(part.weight.detach().flatten() == 0)
    return {name: round(torch.cat(zeros).float().mean().item(), 6) for name, zeros in groups.items()}


class SparsityMask(Callback):
    """Keeps weights at zero that are zero when it is created: pruned ones, and rows that no text uses."""

    def __init__(self, parts: list[Prunable]) -> None:
        self.parts = parts
        self.zeros = [part.weight.detach() == 0 for part in parts]

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Move the masks to the weights' device. A resumed run also has the masks of the student as loaded."""
        self.zeros = [zeros.to(part.weight.device) for part, zeros in zip(self.parts, self.zeros, strict=True)]

    def step(self, before: float, after: float) -> None:
        """Set the weights to zero again."""
        set_zero(self.parts, self.zeros)


def share_of_target(progress: float) -> float:
    """Return a cubic that rises from 0 to 1 between the ends of RAMP (Zhu and Gupta, 2017, equation 1)."""
    start, end = RAMP
    done = min(max((progress - start) / (end - start), 0.0), 1.0)
    return 1 - (1 - done) ** 3


def is_update(before: float, after: float, updates: int) -> bool:
    """Return whether one of the `updates` of a training run is between two points of its progress."""
    return int(before * updates) != int(after * updates)


class Pruner(Callback):
    """Prunes the student it was created for to the target that its settings ask for. parts: the student's matrices."""

    parts: list[Prunable]

    def eligible(self, progress: float) -> bool:
        """Return whether the target is reached."""
        return progress >= RAMP[1]

    def finish(self) -> dict[str, float]:
        """Convert the trained student to plain dense weights, and return the sparsity of each part."""
        return sparsity_by_part(self.parts)


def pruning_callback(student: Student, settings: PruneSettings) -> Pruner:
    """Return the callback that prunes a student while it is trained, to the targets `prune` would use."""
    if settings.prune_movement:
        return MovementPruner(student, settings)
    return GradualPruner(prunable(student), settings)


class GradualPruner(Pruner):
    """Sets a growing share of the smallest weights to zero, without masks in the student's weights.

    Zeros still receive gradients in the next step, so a weight pruned too early can come back.
    """

    def __init__(self, parts: list[Prunable], settings: PruneSettings) -> None:
        self.parts, self.settings = parts, settings
        self.zeros: list[torch.Tensor] = []

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Restore the masks of a stopped run, or start with nothing pruned."""
        self.zeros = [state.get(part.name, torch.zeros_like(part.weight, dtype=torch.bool)) for part in self.parts]

    def state(self) -> dict[str, torch.Tensor]:
        """Return the mask of each matrix by its name."""
        return {part.name: mask for part, mask in zip(self.parts, self.zeros, strict=True)}

    def step(self, before: float, after: float) -> None:
        """Select the weights to prune at each update, and set them to zero after every step."""
        if is_update(before, after, UPDATES):
            self.zeros = masks(self.parts, self.settings, share_of_target(after))
        set_zero(self.parts, self.zeros)


class Scored(Dense):
    """A matrix with learned scores. Scores and mask are buffers, so a resumed run restores them."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__(value.detach().clone())
        self.register_buffer("scores", torch.zeros_like(value))
        self.register_buffer("used", torch.ones_like(value, dtype=torch.bool))

    def dense(self) -> torch.Tensor:
        """Return the weights, zero where they are not used. The backward pass adds to the scores."""
        masked = self.value * self.used
        if masked.requires_grad:
            masked.register_hook(self._learn)
        return masked

    def _learn(self, gradient: torch.Tensor) -> None:
        self.scores.sub_(gradient * self.value.detach())

    def select(self, ids: torch.Tensor) -> torch.Tensor:
        """Return rows by index. ids: int64 [...] -> float32 [..., columns]."""
        return nn.functional.embedding(ids, self.dense())


class MovementPruner(Pruner):
    """Replaces a student's matrices by scored ones before training, and by dense ones with zeros after it."""

    def __init__(self, student: Student, settings: PruneSettings) -> None:
        self.student, self.settings = student, settings
        for part in prunable(student):
            replace_matrix(student, part.name, Scored(part.weight))

    @property
    def parts(self) -> list[Prunable]:
        """The scored matrices, looked up each time: a student's tensors change when it moves to another device."""
        return prunable(self.student)

    def _scored(self) -> list[tuple[str, Scored]]:
        return [(name, matrix) for name, matrix in matrices(self.student) if isinstance(matrix, Scored)]

    def step(self, before: float, after: float) -> None:
        """Select at each update which weights are used."""
        if is_update(before, after, UPDATES):
            zeros = masks(self.parts, self.settings, share_of_target(after))
            for (_, matrix), mask in zip(self._scored(), zeros, strict=True):
                matrix.used.copy_(~mask)

    def finish(self) -> dict[str, float]:
        """Replace the scored matrices by dense ones with exact zeros. Return the sparsity of each part."""
        for name, matrix in self._scored():
            replace_matrix(self.student, name, Dense(matrix.dense().detach()))
        return super().finish()
