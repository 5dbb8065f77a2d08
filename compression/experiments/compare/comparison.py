"""Settings and result of a comparison: `compare` computes it, `text` shows it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pydantic

from common.store.settings import QuerySettings


class CompareSettings(QuerySettings):
    """Settings of `experiment.py compare A B`."""

    task: str | None = None
    """Task, where models of these names are in several."""
    split: str | None = None
    """Compare on this test split alone; unset means every one."""
    metric: str | None = None
    """Compare by this metric; unset means the task's first."""
    confidence: float = pydantic.Field(0.95, gt=0, lt=1)
    """Confidence of intervals."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean difference with its confidence interval; p_value: two-sided, None for a bootstrap."""

    mean: float
    low: float
    high: float
    method: Literal["paired t over seeds", "bootstrap over test rows"]
    p_value: float | None


@dataclasses.dataclass(frozen=True)
class Effect:
    """One metric of A and B: means over the seeds, the scores for each, and A - B's interval or None.

    An overall effect whose lines have no seed in common has means alone. p_holm: the interval's p-value adjusted for
    the number of lines, where there are several.
    """

    metric: str
    a: float
    b: float
    scores: tuple[tuple[float, float], ...]
    interval: Interval | None
    p_holm: float | None = None

    @property
    def mean(self) -> float:
        """Mean of A - B."""
        return self.a - self.b


@dataclasses.dataclass(frozen=True)
class PairTest:
    """McNemar's exact test of one pair of models. b: rows that only A has right; c: only B.

    p_holm: adjusted for the number of these tests in all lines, where there are several lines.
    """

    seed: int | str
    b: int
    c: int
    p_value: float
    p_holm: float | None = None


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
        """What it is of: axes and their labels, stage, task and split."""
        return {**self.cell, "stage": self.stage, "task": self.task, "split": self.split}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A against B. overall: the mean over all lines, seed by seed; None for a single line. notes: what is left out."""

    a: str
    b: str
    confidence: float
    lines: tuple[Line, ...]
    overall: Effect | None
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Effect:
        """The effect of the verdict."""
        return self.overall or self.lines[0].effects[0]

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain types."""
        return dataclasses.asdict(self)
