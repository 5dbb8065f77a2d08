"""Points of the skyline: every seed group by size and score, the thesis's own, and which of them nothing dominates."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

from common.tables import human_bytes
from compression.experiments.report.models_table import metric_heading
from compression.experiments.report.record import Quote
from compression.experiments.report.reference import quoted_points, tolerable_scores
from compression.experiments.report.seed_groups import MEASURED, SplitResults

_FEW = 24
"""With more points than this in a panel, only those of the skyline have names and error bars."""
_MEASURED = {**MEASURED, "bytes_model": "of weights"}


@dataclasses.dataclass(frozen=True)
class Point:
    """A seed group, or a model of the thesis.

    size: bytes; score: as in results.json; spread: its sample standard deviation, 0 for one seed; about: a description
    in lines. kind: a peer is another library's, a baseline a quoted model that the thesis compares its own with.
    """

    label: str
    size: float
    score: float
    spread: float = 0.0
    kind: Literal["student", "teacher", "peer", "quoted", "baseline"] = "student"
    about: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """Contents of one pair of axes: a metric on a split, by the size in a field of its rows.

    points: our models, then other libraries', then the thesis's; the skyline is of our own alone. tolerable: the score
    from which the thesis calls a student of this task tolerable.
    """

    title: str
    metric: str
    points: tuple[Point, ...]
    size: str
    tolerable: float | None = None

    def of(self, *kinds: str) -> list[Point]:
        """Return the points of these kinds."""
        return [point for point in self.points if point.kind in kinds]

    @functools.cached_property
    def ours(self) -> list[Point]:
        """Our models, from small to large."""
        return self.of("student", "teacher")

    @functools.cached_property
    def best(self) -> list[Point]:
        """The skyline."""
        return skyline(self.ours)

    @property
    def few(self) -> bool:
        """Whether there is room for names and error bars of all our models."""
        return len(self.ours) <= _FEW

    def shown_spread(self, point: Point) -> float:
        """Return a point's spread, or 0 where there is no room for its error bar."""
        return point.spread if self.few or point in self.best else 0.0


def panels(splits: Sequence[SplitResults], quote: Quote | None = None) -> list[Panel]:
    """Return a panel for each task, split and metric of which a model of ours has both a score and a size."""
    found = []
    for results in splits:
        for metric in results.metrics:
            own = sorted(_points(results, metric), key=lambda point: point.kind == "peer")
            every = (*own, *_quoted(results, metric, quote))
            tolerable = tolerable_scores(results.task).get(metric) if results.split.startswith("test") else None
            title = f"{results.task}, {results.split}"
            found.append(Panel(title, metric, every, results.size_field, tolerable))
    return [panel for panel in found if panel.ours]


def _points(results: SplitResults, metric: str) -> list[Point]:
    """The groups whose size and score are known, from small to large."""
    found = []
    for group in results.groups:
        field, score = results.size_field_of(group), group.metric(metric)
        size_bytes = group.size(field)
        if size_bytes and score:
            kind = "teacher" if group.is_teacher else "peer" if group.is_peer else "student"
            seeds = "1 seed" if score.n == 1 else f"{score.n} seeds"
            about = f"{group.label}\n{metric_heading(metric)}: {score.text}, {seeds}"
            about += f"\n{human_bytes(size_bytes)} {_MEASURED[field]}"
            teacher, ratio = results.teacher_of(group), results.times_smaller(group, field)
            if teacher and ratio and teacher is not group:
                about += f", {ratio:,.0f} times smaller than {teacher.name}"
            found.append(Point(group.label, size_bytes, score.mean, score.sd or 0.0, kind, about))
    return sorted(found, key=lambda point: point.size)


def _quoted(results: SplitResults, metric: str, quote: Quote | None) -> list[Point]:
    """The thesis's models with a size and this metric, from small to large; none where nothing is quoted.

    Only test splits get them: the thesis scored no other.
    """
    if quote is None or not results.split.startswith("test"):
        return []
    found, task = [], quote.task or results.task
    for point in quoted_points(task):
        if metric in point.metrics:
            score = point.metrics[metric]
            about = f"{point.name}\nthesis, {task.upper()} (quoted)\n{metric_heading(metric)}: {100 * score:.2f}"
            about += f"\n{human_bytes(point.size_bytes)} on disk"
            kind = "baseline" if point.baseline else "quoted"
            found.append(Point(point.name, point.size_bytes, score, kind=kind, about=about))
    return sorted(found, key=lambda point: point.size)


def skyline(candidates: Sequence[Point]) -> list[Point]:
    """Return the points that no other dominates, by size.

    A point is dominated when another is no larger and no worse, and smaller or better (Börzsönyi et al., 2001).
    """
    best: list[Point] = []
    for point in sorted(candidates, key=lambda point: (point.size, -point.score)):
        if not best or point.score > best[-1].score or (point.score, point.size) == (best[-1].score, best[-1].size):
            best.append(point)
    return best
