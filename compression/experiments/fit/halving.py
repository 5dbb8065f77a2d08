"""Successive halving (Jamieson and Talwalkar, 2016): many candidates for a few epochs, the better ones for more.

Pure functions. Every rung has about the same time, and every candidate of a rung the same number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from common.config import Settings

KEPT = 3
"""One in so many candidates goes on to the next rung."""
FINALISTS = 2


class Cost(Settings):
    """Estimated seconds of training a candidate."""

    fixed: float
    """Before the first epoch: loading, byte pairs."""
    epoch: float
    tokens: float = 0.0
    """Token ids of all rows."""
    threads: int = 1
    """Threads that were the fastest: on a busy machine small students are slower with several."""

    def of(self, epochs: int, share: float = 1.0) -> float:
        """Return the seconds of so many epochs on a share of the rows."""
        return self.fixed + share * (self.tokens + epochs * self.epoch)

    def slowed(self, factor: float) -> Cost:
        """Return the cost on a machine that has become slower, or faster, by a factor."""
        slower = {name: getattr(self, name) * factor for name in ("fixed", "epoch", "tokens")}
        return self.model_copy(update=slower)


class Rung(Settings):
    """A rung: who takes part, and how long each is trained."""

    names: tuple[str, ...]
    epochs: int
    share: float = 1.0
    """Share of the training rows."""
    seconds: float = 0.0
    """Estimate."""


class Score(Settings):
    """A candidate's result on validation."""

    score: float
    """The task's metric, higher is better."""
    loss: float
    """Cross-entropy (of several labels a text the mean of each label's), or mean squared error."""
    bytes: int
    """Estimated bytes of its packed file."""
    seconds: float
    """Seconds that training took."""


def rung_sizes(candidates: int) -> list[int]:
    """Return how many candidates each rung has: a third go on, down to two that are quantized."""
    sizes = [candidates]
    while sizes[-1] > FINALISTS:
        sizes.append(max(FINALISTS, math.ceil(sizes[-1] / KEPT)))
    return sizes


def plan_rung(costs: Mapping[str, Cost], seconds: float, left: int, most_epochs: int, least_share: float = 0.1) -> Rung:
    """Return a rung of those candidates, in their order, that can be trained in its part of the time, at least one.

    costs: of the candidates that are left, the likeliest first; seconds: for this rung and the `left - 1`
    rungs after it; most_epochs: of the last rung. Where there is no time for an epoch on all rows, a share of them is
    used; where even the least share takes too long, the last candidates are left out.
    """
    part = max(seconds, 0.0) / left
    epochs = max(1, round(most_epochs / KEPT ** (left - 1)))
    names = list(costs)
    while True:
        fixed, tokens, epoch = (
            sum(getattr(costs[name], kind) for name in names) for kind in ("fixed", "tokens", "epoch")
        )
        fitting = int((part - fixed - tokens) / epoch) if epoch > 0 else epochs
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


def best_first(scores: Mapping[str, Score]) -> list[str]:
    """Return names by validation score, ties by the lower loss, then by the smaller file."""
    return sorted(scores, key=lambda name: (-round(scores[name].score, 6), scores[name].loss, scores[name].bytes))
