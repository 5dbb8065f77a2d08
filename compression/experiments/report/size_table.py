"""The table of a task by size: the smallest number of bytes that a model fits, and how good it is.

Teachers, then classes of size with our students, other libraries' models and the thesis's, each marked as what it is.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import pydantic

from common.config import nearest
from common.errors import UserError
from common.tables import human_bytes
from compression.experiments.report.families import Family, Group
from compression.experiments.report.pivot_columns import averaged
from compression.experiments.report.reference import QUOTED_TEACHER, QuotedPoint, quoted_points
from compression.experiments.report.tables import (
    DASH,
    SELECTED_ON_TEST,
    escape_markdown,
    markdown_lines,
    metric_heading,
    percent,
)

LIMITS = (12_000, 32_000, 100_000, 400_000)
"""Classes of size, in bytes, each up to and including its number."""
Targets = Mapping[str, Mapping[str, Annotated[float, pydantic.Field(gt=0, le=1)]]]
"""Class, as '12 KB', to metric to what the mean over seeds is to be at least, from 0 to 1."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A row of the table. place: 0 for teachers, then the classes, then what is larger than all; scores: as shown."""

    place: int
    name: str
    size: str
    parameters: float | None
    scores: tuple[str, ...]
    target: str = ""


def size_table(
    group: Group, targets: Targets | None = None, quotes: Sequence[str] = (), limits: Sequence[int] = LIMITS
) -> str:
    """The table in Markdown. quotes: models of the thesis's table 7.5, under its teacher's row.

    A family is in the smallest class that all its seeds fit, by the packed file. Raises UserError for a target of no
    class or metric here, and a model that the thesis has not.
    """
    targets = targets or {}
    classes = ["teachers", *map(human_bytes, limits), "larger"]
    _check_targets(targets, classes[1:-1], group.metrics)
    lines = [_line(group, family, limits, classes, targets) for family in group.families]
    lines += [_quoted(group, point, limits) for point in _points(group.task, quotes)]
    held = {classes[line.place] for line in lines if line.target}
    nobody = [name for name in targets if name not in held]
    dashes = tuple(DASH for _ in group.metrics)
    lines += [Line(classes.index(name), DASH, DASH, None, dashes, _wanted(targets[name])) for name in nobody]
    lines.sort(key=lambda line: line.place)
    header = ["Size class", "Model", "Packed file", "Parameters", *_headings(group), *(["Target"] if targets else [])]
    body = [_cells(line, classes, line.place != above, bool(targets)) for line, above in _with_above(lines)]
    numeric = [False, False, *[True] * (2 + len(group.metrics)), False][: len(header)]
    table = markdown_lines(header, body, numeric)
    return f"{table}\n\n{SELECTED_ON_TEST}" if any(f.selected_on_test for f in group.families) else table


def _check_targets(targets: Targets, classes: Sequence[str], metrics: Sequence[str]) -> None:
    for name, wanted in targets.items():
        if name not in classes:
            raise UserError(f"targets: no class {name!r}{nearest(name, classes)} (classes: {', '.join(classes)})")
        for metric in wanted:
            if metric not in metrics:
                raise UserError(f"targets: no metric {metric!r}{nearest(metric, metrics)}")


def _headings(group: Group) -> list[str]:
    splits = group.split.split(" and ")
    return [escape_markdown(averaged(metric_heading(name), splits)) for name in group.metrics]


def _with_above(lines: Sequence[Line]) -> zip[tuple[Line, int]]:
    """Each line, and the class of the line above it."""
    return zip(lines, [-1, *(line.place for line in lines)], strict=False)


def _cells(line: Line, classes: Sequence[str], first: bool, with_target: bool) -> list[str]:
    """A line's cells; its class is told in the first line of each."""
    parameters = DASH if line.parameters is None else f"{line.parameters:,.0f}"
    name = classes[line.place] if first else ""
    cells = [name, escape_markdown(line.name), line.size, parameters, *line.scores]
    return [*cells, line.target] if with_target else cells


def _line(group: Group, family: Family, limits: Sequence[int], classes: Sequence[str], targets: Targets) -> Line:
    scores = [family.metric(name) for name in group.metrics]
    shown = tuple(percent(score) if score else DASH for score in scores)
    size, packed = family.size("bytes_packed"), [row.get("bytes_packed") for row in family.rows]
    parameters = family.size("parameters")
    if family.is_teacher:
        return Line(0, family.label, _of_weights(family.size("bytes_model")), parameters, shown)
    if size is None or None in packed:
        raise UserError(f"{family.name}: a row has no bytes_packed, and the table is by the packed file")
    place = 1 + bisect.bisect_left(limits, max(packed))
    wanted = {} if family.is_peer else targets.get(classes[place], {})
    means = {name: score.mean for name, score in zip(group.metrics, scores, strict=True) if score}
    return Line(place, family.label, human_bytes(size), parameters, shown, _wanted(wanted, means))


def _of_weights(size: float | None) -> str:
    return DASH if size is None else f"{human_bytes(size)}, weights"


def _wanted(targets: Mapping[str, float], means: Mapping[str, float] | None = None) -> str:
    """'≥ 81.00: reached', or by how much it is missed; of several metrics, each by its name."""
    texts = []
    for metric, wanted in targets.items():
        text = f"{metric} ≥ {100 * wanted:.2f}" if len(targets) > 1 else f"≥ {100 * wanted:.2f}"
        if means is not None and metric in means:
            short = wanted - means[metric]
            text += ": reached" if short <= 0 else f": missed by {100 * short:.2f}"
        texts.append(text)
    return "; ".join(texts)


def _points(task: str, quotes: Sequence[str]) -> list[QuotedPoint]:
    """The thesis's models asked for, its teacher first."""
    known = {point.name: point for point in quoted_points(task)}
    for name in quotes:
        if name not in known:
            raise UserError(f"quotes: the thesis's table 7.5 has no {name!r} on {task}{nearest(name, known)}")
    return [known[name] for name in dict.fromkeys([QUOTED_TEACHER, *quotes])] if quotes else []


def _quoted(group: Group, point: QuotedPoint, limits: Sequence[int]) -> Line:
    """A line of the thesis's. Its sizes are of weights alone, gzipped where pruned or quantized."""
    place = 0 if point.name == QUOTED_TEACHER else 1 + bisect.bisect_left(limits, point.size_bytes)
    scores = tuple(f"{100 * point.metrics[name]:.2f}" if name in point.metrics else DASH for name in group.metrics)
    return Line(place, f"{point.name} (quoted)", _of_weights(point.size_bytes), point.parameters, scores)
