"""Points of the skyline: seed groups and quoted models by cost (size or time) and score, and those not dominated."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

from common.tables import human_bytes
from compression.experiments.report.models_table import metric_heading
from compression.experiments.report.record import Quote
from compression.experiments.report.reference import quoted_points, tolerable_scores
from compression.experiments.report.seed_groups import MEASURED, MILLISECONDS, SplitResults
from compression.experiments.report.speed_columns import ratio_entry

_MEASURED = {**MEASURED, "bytes_model": "of weights"}


@dataclasses.dataclass(frozen=True)
class Point:
    """A seed group, or a model of the thesis.

    cost: bytes, or milliseconds per text; score: as in results.json; spread: sample standard deviation of the score, 0
    for one seed; description: of several lines. kind: a peer is another library's model, a baseline a quoted
    model that the thesis compares its own with.
    """

    label: str
    cost: float
    score: float
    spread: float = 0.0
    kind: Literal["student", "teacher", "peer", "quoted", "baseline"] = "student"
    description: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """Contents of one pair of axes: a metric on a split against a cost.

    cost: a size field of results.json, or MILLISECONDS. points: our models, then other libraries', then the thesis's;
    only our own models form the skyline. tolerable: the score from which on the thesis calls a student of this task
    tolerable.
    """

    title: str
    metric: str
    points: tuple[Point, ...]
    cost: str
    tolerable: float | None = None

    def of(self, *kinds: str) -> list[Point]:
        """Return the points of these kinds."""
        return [point for point in self.points if point.kind in kinds]

    @functools.cached_property
    def ours(self) -> list[Point]:
        """Our models, sorted from small to large, or from fast to slow."""
        return self.of("student", "teacher")

    @functools.cached_property
    def best(self) -> list[Point]:
        """Our models on the skyline."""
        return skyline(self.ours)


def panels(splits: Sequence[SplitResults], quote: Quote | None = None) -> list[Panel]:
    """Return a panel for each task, split and metric for which one of our models has both a score and a size.

    If students were timed, a second panel follows, by milliseconds per text; no times are quoted.
    """
    drawn = []
    for results in splits:
        timed = any(group.speed(MILLISECONDS) for group in results.groups if not group.is_teacher)
        for metric in results.metrics:
            tolerable = tolerable_scores(results.task).get(metric) if results.split.startswith("test") else None
            title = f"{results.task}, {results.split}"
            sized = (*_points(results, metric, results.size_field), *_quoted(results, metric, quote))
            drawn.append(Panel(title, metric, sized, results.size_field, tolerable))
            if timed:
                points = tuple(_points(results, metric, MILLISECONDS))
                drawn.append(Panel(title, metric, points, MILLISECONDS, tolerable))
    return [panel for panel in drawn if panel.ours]


def _points(results: SplitResults, metric: str, cost: str) -> list[Point]:
    """Return the groups whose cost and score are known, sorted by cost; other libraries' models last."""
    points = []
    for group in results.groups:
        score, teacher = group.metric(metric), results.teacher_of(group)
        if cost == MILLISECONDS:
            value, ratio, word = group.speed(cost), results.times_faster(group), "faster"
            amount = f"{cost_text(cost, value)} for one text" if value else ""
        else:
            field = results.size_field_of(group)
            value, ratio, word = group.size(field), results.times_smaller(group, field), "smaller"
            amount = f"{cost_text(cost, value)} {_MEASURED[field]}" if value else ""
        if value and score:
            kind = "teacher" if group.is_teacher else "peer" if group.is_peer else "student"
            seeds = "1 seed" if score.n == 1 else f"{score.n} seeds"
            lines = [group.label, f"{metric_heading(metric)}: {score.text}, {seeds}", amount]
            if teacher and ratio and teacher is not group:
                lines[-1] += f", {ratio_entry(ratio).text} times {word} than {teacher.name}"
            points.append(Point(group.label, value, score.mean, score.sd or 0.0, kind, "\n".join(lines)))
    return sorted(points, key=lambda point: (point.kind == "peer", point.cost))


def cost_text(cost: str, value: float) -> str:
    """Return '25 KB', or '0.52 ms' for a panel by milliseconds."""
    if cost != MILLISECONDS:
        return human_bytes(value)
    return f"{value:,.0f} ms" if value >= 999.5 else f"{value:.3g} ms"


def _quoted(results: SplitResults, metric: str, quote: Quote | None) -> list[Point]:
    """Return the thesis's models with a size and this metric, from small to large; empty if nothing is quoted.

    Only test splits have quoted models, because the thesis reports no other scores.
    """
    if quote is None or not results.split.startswith("test"):
        return []
    points, task = [], quote.task or results.task
    for point in quoted_points(task):
        if metric in point.metrics:
            score = point.metrics[metric]
            text = f"{point.name}\nthesis, {task.upper()} (quoted)\n{metric_heading(metric)}: {100 * score:.2f}"
            text += f"\n{human_bytes(point.size_bytes)} on disk"
            kind = "baseline" if point.baseline else "quoted"
            points.append(Point(point.name, point.size_bytes, score, kind=kind, description=text))
    return sorted(points, key=lambda point: point.cost)


def skyline(candidates: Sequence[Point]) -> list[Point]:
    """Return the points that no other point dominates, sorted by cost.

    A point dominates another if its cost is not higher and its score not lower, and one of the two is strictly better
    (Börzsönyi et al., 2001).
    """
    best: list[Point] = []
    for point in sorted(candidates, key=lambda point: (point.cost, -point.score)):
        if not best or point.score > best[-1].score or (point.score, point.cost) == (best[-1].score, best[-1].cost):
            best.append(point)
    return best
