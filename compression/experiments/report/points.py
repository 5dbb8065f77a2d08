"""Points of the skyline: every seed group by size and score, the thesis's own, and which of them nothing dominates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from common.tables import human_bytes
from compression.experiments.report.models_table import metric_heading
from compression.experiments.report.record import Quote
from compression.experiments.report.reference import quoted_points
from compression.experiments.report.seed_groups import SeedGroup, SplitResults, Stat

SIZE = "bytes_gzip"
"""The thesis's measure of size. Zeros stay in the weights file, so bytes_model would not show the gain of pruning."""
PACKED = "bytes_packed"
"""The size of the whole file of a prediction. Teachers have no packed file; theirs is the weights file."""
_MEASURED = {SIZE: "gzipped", PACKED: "packed", "bytes_model": "of weights"}


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

    found: our models; peers: other libraries'; quoted: the thesis's. The skyline is of our own alone.
    """

    title: str
    metric: str
    found: tuple[Point, ...]
    quoted: tuple[Point, ...]
    peers: tuple[Point, ...] = ()
    size: str = SIZE

    @property
    def every(self) -> tuple[Point, ...]:
        """All points, in the order of their ids."""
        return (*self.found, *self.peers, *self.quoted)


def panels(splits: Sequence[SplitResults], quote: Quote | None = None, size: str = SIZE) -> list[Panel]:
    """Return a panel for each task, split and metric of which a model of ours has both a score and a size."""
    found: list[Panel] = []
    for results in splits:
        for metric in results.metrics:
            every = points(results, metric, size)
            ours = tuple(point for point in every if point.kind != "peer")
            peers = tuple(point for point in every if point.kind == "peer")
            theirs = tuple(quoted(results, metric, quote))
            found += [Panel(f"{results.task}, {results.split}", metric, ours, theirs, peers, size)] if ours else []
    return found


def points(results: SplitResults, metric: str, size: str = SIZE) -> list[Point]:
    """Return the groups whose size and score are known, from small to large."""
    found = []
    for group in results.groups:
        field = "bytes_model" if size == PACKED and group.is_teacher else size
        size_bytes, score = group.size(field), group.metric(metric)
        if size_bytes and score:
            kind = "teacher" if group.is_teacher else "peer" if group.is_peer else "student"
            about = _about(results, group, metric, score, f"{human_bytes(size_bytes)} {_MEASURED[field]}", size)
            found.append(Point(group.label, size_bytes, score.mean, score.sd or 0.0, kind, about))
    return sorted(found, key=lambda point: point.size)


def quoted(results: SplitResults, metric: str, quote: Quote | None) -> list[Point]:
    """Return the thesis's models with a size and this metric, from small to large; none where nothing is quoted.

    Only test splits get them: the thesis scored no other.
    """
    if quote is None or not results.split.startswith("test"):
        return []
    found, task = [], quote.task or results.task
    for point in quoted_points(task):
        if point.size_bytes and metric in point.metrics:
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


def _about(results: SplitResults, group: SeedGroup, metric: str, score: Stat, size: str, field: str) -> str:
    teacher, ratio = results.teacher_of(group), results.times_smaller(group, field)
    smaller = f", {ratio:,.0f} times smaller than {teacher.name}" if teacher and ratio and teacher is not group else ""
    seeds = "1 seed" if score.n == 1 else f"{score.n} seeds"
    return f"{group.label}\n{metric_heading(metric)}: {score.text}, {seeds}\n{size}{smaller}"
