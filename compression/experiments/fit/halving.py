"""Successive halving (Jamieson and Talwalkar, 2016): trains many candidates briefly and the better ones for longer.

Pure functions. All rungs take about the same time, and all candidates of a rung train for the same number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from common.config import Settings

KEPT = 3
"""One in this many candidates is promoted to the next rung."""
FINALISTS = 2


class Cost(Settings):
    """Estimated seconds of training a candidate."""

    fixed: float
    """Seconds before the first epoch: loading, building byte pairs."""
    epoch: float
    tokens: float = 0.0
    """Seconds for tokenizing all rows."""
    threads: int = 1
    """Fastest number of threads: on a busy machine, small students are slower with several."""

    def of(self, epochs: int, share: float = 1.0) -> float:
        """Return the seconds of a number of epochs on a share of the rows."""
        return self.fixed + share * (self.tokens + epochs * self.epoch)

    def slowed(self, factor: float) -> Cost:
        """Return the cost scaled by a factor, for a machine that has become slower (above 1) or faster."""
        slower = {name: getattr(self, name) * factor for name in ("fixed", "epoch", "tokens")}
        return self.model_copy(update=slower)


class Rung(Settings):
    """A rung: the candidates, and how long each is trained."""

    names: tuple[str, ...]
    epochs: int
    share: float = 1.0
    """Share of the training rows."""
    seconds: float = 0.0
    """Estimated seconds of the rung."""


class Trained(Settings):
    """One training of a candidate, and its result on validation."""

    name: str
    model: str
    """Name of the student in the workspace."""
    rung: int
    epochs: int
    share: float
    """Share of the training rows."""
    bytes: int
    """Estimated bytes of its packed file."""
    score: float | None = None
    """The task's metric, higher is better; None if training was stopped or failed."""
    loss: float = 0.0
    """Cross-entropy (for multilabel, the mean over labels), or mean squared error."""
    seconds: float = 0.0
    """Seconds that training took."""
    note: str = ""


def rung_sizes(candidates: int) -> list[int]:
    """Return the number of candidates of each rung: a third is promoted, down to two finalists that are quantized."""
    sizes = [candidates]
    while sizes[-1] > FINALISTS:
        sizes.append(max(FINALISTS, math.ceil(sizes[-1] / KEPT)))
    return sizes


def plan_rung(
    costs: Mapping[str, Cost], seconds: float, left: int, most_epochs: int, least_share: float = 0.1, trained: int = 0
) -> Rung:
    """Return a rung of the candidates that can be trained in the rung's part of the time, at least one, in order.

    costs: costs of the remaining candidates, the most promising first; seconds: time for this rung and the `left - 1`
    rungs after it; most_epochs: epochs of the last rung. If there is no time for an epoch on all rows, a share of them
    is used; if even the least share takes too long, the last candidates are left out.

    trained: epochs of the previous rung, 0 if it had only a share of the rows. A rung has at least as many: if there is
    no time for them, the previous rung is repeated, which takes no time, and the last rung has fewer candidates.
    """
    part = max(seconds, 0.0) / left
    epochs = max(1, round(most_epochs / KEPT ** (left - 1)))
    names = list(costs)
    while True:
        fixed, tokens, epoch = (
            sum(getattr(costs[name], kind) for name in names) for kind in ("fixed", "tokens", "epoch")
        )
        fitting = int((part - fixed - tokens) / epoch) if epoch > 0 else epochs
        if trained and min(epochs, fitting) < trained:
            if left > 1 or len(names) == 1:
                return Rung(names=tuple(names), epochs=trained)
            names.pop()
            continue
        if fitting >= 1:
            epochs = min(epochs, fitting)
            return _rung(names, epochs, 1.0, costs)
        share = math.floor(100 * (part - fixed) / (tokens + epoch)) / 100 if epoch > 0 else 1.0
        if share >= least_share or len(names) == 1:
            return _rung(names, 1, max(least_share, min(1.0, share)), costs)
        names.pop()


def _rung(names: Sequence[str], epochs: int, share: float, costs: Mapping[str, Cost]) -> Rung:
    return Rung(
        names=tuple(names), epochs=epochs, share=share, seconds=sum(costs[name].of(epochs, share) for name in names)
    )


def best_first(trained: Iterable[Trained]) -> list[Trained]:
    """Return students sorted by validation score, the best first; ties by lower loss, then by smaller file."""
    return sorted(trained, key=lambda student: (-round(student.score, 6), student.loss, student.bytes))
