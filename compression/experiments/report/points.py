"""Points of the skyline: every family of a group by size and score, the thesis's own, and which nothing dominates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from common.tables import human_bytes
from compression.experiments.report.families import Family, Group
from compression.experiments.report.record import Quote
from compression.experiments.report.reference import quoted_points
from compression.experiments.report.tables import metric_heading, percent

SIZE = "bytes_gzip"
"""The thesis's measure of size. Zeros stay in the weights file, so bytes_model would not show what pruning is worth."""
PACKED = "bytes_packed"
"""The size of all that a prediction needs. Teachers have no packed file; theirs is the weights file."""
_MEASURED = {SIZE: "gzipped", PACKED: "packed", "bytes_model": "of weights"}


@dataclasses.dataclass(frozen=True)
class Point:
    """A model family, or a model of the thesis.

    size: bytes; score: as in results.json; spread: its sample standard deviation, 0 for one seed; about: all that is
    to say of it, in lines. kind: a peer is another library's, a baseline a quoted model that the thesis compares its
    own with.
    """

    label: str
    size: float
    score: float
    spread: float = 0.0
    kind: Literal["student", "teacher", "peer", "quoted", "baseline"] = "student"
    about: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """What one pair of axes shows: a metric of a group, by the size in a field of its rows.

    found: our models; peers: other libraries'; quoted: the thesis's. The skyline is of our own alone.
    """

    group: Group
    metric: str
    found: tuple[Point, ...]
    quoted: tuple[Point, ...]
    peers: tuple[Point, ...] = ()
    size: str = SIZE

    @property
    def title(self) -> str:
        """'sst-2, test'."""
        return f"{self.group.task}, {self.group.split}"

    @property
    def beside(self) -> tuple[Point, ...]:
        """The points that are not ours."""
        return (*self.peers, *self.quoted)

    @property
    def every(self) -> tuple[Point, ...]:
        """All points, in the order of their ids."""
        return (*self.found, *self.beside)


def panels(groups: Sequence[Group], quote: Quote | None = None, size: str = SIZE) -> list[Panel]:
    """A panel for each task, split and metric of which a model of ours has both a score and a size in this field."""
    made = []
    for group in groups:
        for metric in group.metrics:
            every = points(group, metric, size)
            found = tuple(point for point in every if point.kind != "peer")
            peers = tuple(point for point in every if point.kind == "peer")
            if found:
                made.append(Panel(group, metric, found, tuple(quoted(group, metric, quote)), peers, size))
    return made


def points(group: Group, metric: str, size: str = SIZE) -> list[Point]:
    """The families of a group whose size and score are known, from small to large."""
    found = []
    for family in group.families:
        bytes_, score = family.size(_field(family, size)), family.metric(metric)
        if bytes_ and score:
            kind = "teacher" if family.is_teacher else "peer" if family.is_peer else "student"
            about = _about(group, family, metric, size)
            found.append(Point(family.label, bytes_, score.mean, score.sd or 0.0, kind, about))
    return sorted(found, key=lambda point: point.size)


def _field(family: Family, size: str) -> str:
    return "bytes_model" if size == PACKED and family.is_teacher else size


def quoted(group: Group, metric: str, quote: Quote | None) -> list[Point]:
    """The thesis's models with a size and this metric, from small to large; none where the experiment quotes nothing.

    Only test splits get them: the thesis scored no other.
    """
    if quote is None or not group.split.startswith("test"):
        return []
    found, task = [], quote.task or group.task
    for point in quoted_points(task):
        if point.size_bytes and metric in point.metrics:
            score = point.metrics[metric]
            about = f"{point.name}\nthesis, {task.upper()} (quoted)\n{metric_heading(metric)}: {100 * score:.2f}"
            about += f"\n{human_bytes(point.size_bytes)} on disk"
            kind = "baseline" if point.baseline else "quoted"
            found.append(Point(point.name, point.size_bytes, score, kind=kind, about=about))
    return sorted(found, key=lambda point: point.size)


def skyline(candidates: Sequence[Point]) -> list[Point]:
    """The points that no other dominates, by size.

    A point is dominated when another is no larger and no worse, and smaller or better (Börzsönyi et al., 2001).
    """
    best: list[Point] = []
    for point in sorted(candidates, key=lambda point: (point.size, -point.score)):
        if not best or point.score > best[-1].score or (point.score, point.size) == (best[-1].score, best[-1].size):
            best.append(point)
    return best


def _about(group: Group, family: Family, metric: str, field: str) -> str:
    size, score = family.size(_field(family, field)), family.metric(metric)
    assert size is not None
    assert score is not None
    seeds = "1 seed" if score.n == 1 else f"{score.n} seeds"
    lines = [family.label, f"{metric_heading(metric)}: {percent(score).rpartition(' ')[0]}, {seeds}"]
    teacher, ratio = group.teacher_of(family), group.times_smaller(family, field)
    smaller = f", {ratio:,.0f} times smaller than {teacher.name}" if teacher and ratio and teacher is not family else ""
    return "\n".join([*lines, f"{human_bytes(size)} {_MEASURED[_field(family, field)]}{smaller}"])
