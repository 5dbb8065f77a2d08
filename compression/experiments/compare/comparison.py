"""Settings and result of a comparison, and the result as text for a terminal. `compare` computes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import pydantic

from common.store.settings import QuerySettings
from common.tables import text_table
from compression.experiments.report import filled
from compression.experiments.report.columns import metric_heading
from compression.experiments.report.models_table import TERMINAL_WIDTH
from compression.experiments.report.seed_groups import DASH


class CompareSettings(QuerySettings):
    """Comparison."""

    task: str | None = None
    """Task, needed if several tasks have models of these names."""
    split: str | None = None
    """Compare on this test split only; unset means all test splits."""
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
    """One metric of A and B: means over seeds, the scores for each seed, and the interval of A - B or None.

    An overall effect whose lines have no common seed has only the means. p_holm: the interval's p-value, adjusted for
    the number of lines if there are several.
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

    @property
    def p_value(self) -> float | None:
        """The interval's p-value."""
        return self.interval.p_value if self.interval else None


@dataclasses.dataclass(frozen=True)
class PairTest:
    """McNemar's exact test of one pair of models. b: rows that only A gets right; c: rows that only B gets right.

    p_holm: the p-value, adjusted for the number of tests in all lines if there are several lines.
    """

    seed: int | str
    b: int
    c: int
    p_value: float
    p_holm: float | None = None


@dataclasses.dataclass(frozen=True)
class Line:
    """A and B on one task and split; for experiments, also one stage and cell. effects: the main metric comes first."""

    task: str
    split: str
    stage: str
    cell: dict[str, str]
    seeds: tuple[int | str, ...]
    effects: tuple[Effect, ...]
    tests: tuple[PairTest, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Comparison of A and B. overall: mean over all lines by seed; None for a single line. notes: omitted rows."""

    a: str
    b: str
    confidence: float
    lines: tuple[Line, ...]
    overall: Effect | None
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Effect:
        """Effect that the verdict is based on: the overall one, or that of the only line."""
        return self.overall or self.lines[0].effects[0]


def comparison_text(comparison: Comparison) -> str:
    """Return the comparison as text, at most 110 columns wide, with the verdict last. Scores are multiplied by 100."""
    first = comparison.lines[0]
    tables = [_metrics(comparison, first), _seeds(first)] if len(comparison.lines) == 1 else [_lines(comparison)]
    last = f"{filled(_notes(comparison))}\n{verdict(comparison)}"
    return "\n\n".join([f"A: {comparison.a}\nB: {comparison.b}", *tables, last])


def verdict(comparison: Comparison) -> str:
    """Return a sentence that states which one is better and by how much."""
    effect = comparison.verdict
    interval, points = effect.interval, 100 * effect.mean
    over = ", mean over all lines" if comparison.overall else ""
    if interval is None:
        why = "a single seed has none" if effect.scores else "no seed is in all lines"
        return f"A − B: {points:+.1f} points{over}, without an interval: {why}"
    winner, loser = ("A", "B") if points > 0 else ("B", "A")
    rows = interval.method == "bootstrap over test rows"
    source = ("1 seed, over test rows" if rows else f"{len(effect.scores)} seeds") + over
    low, high = 100 * interval.low, 100 * interval.high
    if low <= 0 <= high:
        seen = f"A − B: {points:+.1f} points, {_certain(comparison)} {low:+.1f} to {high:+.1f}, {source}"
        return f"no significant difference over these {'test rows' if rows else 'seeds'} ({seen})"
    least, most = sorted((abs(low), abs(high)))
    size = f"{winner} is better than {loser} by {abs(points):.1f} points"
    return f"{size} ({_certain(comparison)} {least:.1f} to {most:.1f}, {source})"


def _table(header: Sequence[str], body: Sequence[Sequence[str]], names: int = 1) -> str:
    return text_table(header, body, [i >= names for i in range(len(header))], TERMINAL_WIDTH)


def _metrics(comparison: Comparison, line: Line) -> str:
    header = [f"{line.task}, {line.split}", "A", "B", "A − B", _certain(comparison), "p"]
    return _table(header, [[metric_heading(e.metric), *_numbers(e), _p(e.p_value)] for e in line.effects])


def _seeds(line: Line) -> str:
    """Return a table with a line for each pair of models."""
    tests = {test.seed: [str(test.b), str(test.c), _p(test.p_value)] for test in line.tests}
    pairs = zip(line.seeds, line.effects[0].scores, strict=True)
    body = [[str(seed), *_scores(a, b), *tests.get(seed, [DASH] * 3)] for seed, (a, b) in pairs]
    return _table(["seed", "A", "B", "A − B", "only A right", "only B right", "McNemar's p"], body)


def _lines(comparison: Comparison) -> str:
    alpha = 1 - comparison.confidence
    header = ["", "metric", "A", "B", "A − B", _certain(comparison), "seeds", "p", f"McNemar p < {alpha:.2g}"]
    fields = [{**o.cell, "stage": o.stage, "task": o.task, "split": o.split} for o in comparison.lines]
    body = []
    for line, of_line in zip(comparison.lines, fields, strict=True):
        main, tests = line.effects[0], line.tests
        counted = f"{sum((test.p_holm or 0) < alpha for test in tests)} of {len(tests)}" if tests else DASH
        # A line's name holds only the fields that differ between lines.
        differing = [text for name, text in of_line.items() if any(other.get(name) != text for other in fields)]
        seeds = str(len(line.seeds))
        body.append([", ".join(differing), main.metric, *_numbers(main), seeds, _p(main.p_holm), counted])
    if overall := comparison.overall:
        seeds = str(len(overall.scores) or DASH)
        body.append(["all", overall.metric, *_numbers(overall), seeds, _p(overall.p_value), ""])
    return _table(header, body, names=2)


def _numbers(effect: Effect) -> list[str]:
    interval = effect.interval
    shown = f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}" if interval else DASH
    return [*_scores(effect.a, effect.b), shown]


def _scores(a: float, b: float) -> list[str]:
    return [f"{100 * a:.2f}", f"{100 * b:.2f}", f"{100 * (a - b):+.2f}"]


def _p(value: float | None) -> str:
    return DASH if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def _certain(comparison: Comparison) -> str:
    return f"{100 * comparison.confidence:g} % CI"


def _notes(comparison: Comparison) -> Iterator[str]:
    """Yield how the numbers are computed, then the rows that are left out."""
    methods = {e.interval.method for line in comparison.lines for e in line.effects if e.interval}
    if "paired t over seeds" in methods:
        yield "Intervals and p over several seeds: Student's t of the differences for each seed."
    if "bootstrap over test rows" in methods:
        yield "Intervals of one seed: 10,000 resamples of the test rows, the same for A and B."
    if any(line.tests for line in comparison.lines):
        yield "McNemar's test is exact; it counts the rows that only one of the models has right."
    if len(comparison.lines) > 1:
        yield "p-values of several lines are adjusted by Holm's method; intervals are not."
    yield from (f"Note: {note}." for note in comparison.notes)
