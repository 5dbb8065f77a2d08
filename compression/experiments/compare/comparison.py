"""The result of a comparison: `compare` builds it, `text` renders it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compression.experiments.compare.significance import Interval


@dataclasses.dataclass(frozen=True)
class Effect:
    """One metric of A and B: means over the seeds, the scores for each, and A - B's interval or None.

    An overall effect whose lines have no seed in common has means alone.
    """

    metric: str
    a: float
    b: float
    scores: tuple[tuple[float, float], ...]
    interval: Interval | None
    p_holm: float | None = None
    """The interval's p-value adjusted for the number of lines, where there are several."""

    @property
    def mean(self) -> float:
        """Mean of A - B."""
        return self.a - self.b


@dataclasses.dataclass(frozen=True)
class PairTest:
    """McNemar's exact test of one pair of models. b: rows that only A has right; c: only B."""

    seed: int | str
    b: int
    c: int
    p_value: float
    p_holm: float | None = None
    """Adjusted for the number of these tests in all lines, where there are several lines."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A and B on one task and split, in experiments also in one stage and cell. effects: the main metric's first."""

    task: str
    split: str
    stage: str
    cell: dict[str, str]
    seeds: tuple[int | str, ...]
    effects: tuple[Effect, ...]
    tests: tuple[PairTest, ...]

    @property
    def names(self) -> dict[str, str]:
        """What it is of: axes and their labels, and what comes with every row."""
        return {**self.cell, "stage": self.stage, "task": self.task, "split": self.split}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A beside B. overall: the mean over all lines, seed by seed; None for a single line. notes: what was left out."""

    a: str
    b: str
    confidence: float
    lines: tuple[Line, ...]
    overall: Effect | None
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Effect:
        """The effect that the last word is about."""
        return self.overall or self.lines[0].effects[0]

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain types."""
        return dataclasses.asdict(self)
