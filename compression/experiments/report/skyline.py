"""Plots of the skyline, the non-dominated models by score and size or time (figures 7.2 to 7.4 of the thesis)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from common.tables import human_bytes
from compression.experiments.report.columns import compared_text, metric_heading
from compression.experiments.report.record import Quote
from compression.experiments.report.reference import quoted_points, tolerable_scores
from compression.experiments.report.seed_groups import GZIPPED, MEASURED, MILLISECONDS, PACKED, SplitResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREEN, _GREY, _BLUE, _ORANGE, _PURPLE = "#009e73", "#9a9a9a", "#0072b2", "#d55e00", "#8a3d75"
_MEASURES = {
    GZIPPED: f"Size of the gzipped weights ({GZIPPED}), logarithmic",
    PACKED: f"Size of the packed file, all in ({PACKED}; teachers, quoted: the weights), logarithmic",
    MILLISECONDS: "Milliseconds for one text, CPU time on one thread (teachers: in PyTorch), logarithmic",
}
_SIZE_INCHES = (8.6, 5.9)
_LABEL = {"textcoords": "offset points", "ha": "right", "va": "bottom", "rotation": -30, "rotation_mode": "anchor"}
_LABEL |= {"fontsize": 8, "zorder": 6, "parse_math": False}
_LEGEND = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 3, "frameon": False, "fontsize": 8.5}
_LEGEND |= {"columnspacing": 1.6, "handletextpad": 0.5}
_HOLLOW = {"color": _PURPLE, "markerfacecolor": "none", "markeredgewidth": 0.9, "zorder": 2}
_LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "teacher": ("teacher", {"marker": "D", "color": _ORANGE, "markersize": 7, "zorder": 4}),
    "peer": ("another library's model", {"marker": "^", "color": _ORANGE, "markersize": 6.5, "zorder": 3.5}),
    "quoted": ("thesis (quoted)", {"marker": "s", "markersize": 4.5, **_HOLLOW}),
    "baseline": ("thesis (quoted)", {"marker": "s", "markersize": 6.5, **_HOLLOW}),
    "best": ("student on the skyline", {"marker": "o", "color": _BLUE, "markersize": 6.5, "zorder": 4}),
    "student": ("dominated student", {"marker": "o", "color": _GREY, "markeredgewidth": 0.4, "markersize": 4.5}),
}
"""Kind of a point -> its text in the legend and the style of its marker."""


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

    cost: a size field of results.json, or MILLISECONDS. points: our models, then other libraries', then the thesis's,
    each from small to large, or from fast to slow; only our own models form the skyline. tolerable: the score from
    which on the thesis calls a student of this task tolerable.
    """

    title: str
    metric: str
    points: tuple[Point, ...]
    cost: str
    tolerable: float | None = None

    def of(self, *kinds: str) -> list[Point]:
        """Return the points of these kinds."""
        return [point for point in self.points if point.kind in kinds]

    @property
    def ours(self) -> list[Point]:
        """Our models."""
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
        timed = any(group.mean("speed", MILLISECONDS) for group in results.groups if not group.is_teacher)
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
            value, measured = group.mean("speed", cost), "for one text"
            ratio, words = group.times_faster(teacher), ("faster", "slower")
        else:
            # A teacher has no packed file, so its weights file is used instead.
            field = "bytes_model" if group.is_teacher and cost == PACKED else cost
            value, measured = group.mean(field), MEASURED[field]
            ratio, words = group.times_smaller(field, teacher), ("smaller", "larger")
        if value and score:
            kind = "teacher" if group.is_teacher else "peer" if group.is_peer else "student"
            text = f"{group.label}\n{metric_heading(metric)}: {score.text}, {score.n} seed{'s' * (score.n > 1)}"
            text += f"\n{cost_text(cost, value)} {measured}"
            if teacher and ratio and teacher is not group:
                text += f", {compared_text(ratio, *words)} than {teacher.name}"
            points.append(Point(group.label, value, score.mean, score.sd or 0.0, kind, text))
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
        if (score := point.metrics.get(metric)) is not None:
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


def draw_skylines(splits: Sequence[SplitResults], quote: Quote | None = None) -> Figure:
    """Return a figure with a pair of axes for each of `panels`. quote: the thesis's models to draw too.

    The gid of a point's marker, and thus its id in SVG, is `point_id`.
    """
    from matplotlib.figure import Figure

    shown = panels(splits, quote)
    figure = Figure(figsize=(_SIZE_INCHES[0], _SIZE_INCHES[1] * max(1, len(shown))), layout="constrained")
    if not shown:
        figure.text(0.5, 0.5, "no model has both a size and a score", ha="center")
        return figure
    for number, panel in enumerate(shown):
        _draw_panel(figure.add_subplot(len(shown), 1, number + 1), panel, number)
    return figure


def point_id(panel: int, point: int) -> str:
    """Return the gid of a point's marker. panel: number of the panel; point: index in `Panel.points`."""
    return f"point-{panel}-{point}"


def _at(point: Point) -> tuple[float, float]:
    return point.cost, 100 * point.score


def _draw_panel(axes: Axes, panel: Panel, number: int) -> None:
    from matplotlib.patheffects import withStroke

    axes.set_xscale("log")
    axes.plot(
        *zip(*map(_at, panel.best), strict=True),
        label=f"skyline: best up to a {'time' if panel.cost == MILLISECONDS else 'size'}",
        drawstyle="steps-post",
        color=_GREEN,
        linewidth=1.8,
        zorder=2.5,
    )
    if panel.tolerable is not None:
        label = "tolerable: GLUE's BiLSTM (quoted)"
        axes.axhline(100 * panel.tolerable, label=label, color=_PURPLE, linestyle=":", linewidth=1.1, zorder=2)
    named = set()
    for index, point in enumerate(panel.points):  # a separate line per marker, so that every marker has an id
        on_skyline = point in panel.best
        text, look = _LOOKS["best" if on_skyline and point.kind == "student" else point.kind]
        look = {"zorder": 3, "markeredgecolor": look["color"] if "markerfacecolor" in look else "white", **look}
        look |= {"label": "_nolegend_" if text in named else text, "gid": point_id(number, index)}
        named.add(text)
        axes.plot(*_at(point), linestyle="none", in_layout=False, **look)
        if on_skyline and point.spread:
            ends = [100 * (point.score - point.spread), 100 * (point.score + point.spread)]
            axes.plot([point.cost] * 2, ends, color=look["color"], linewidth=0.9, zorder=2.8, in_layout=False)
    for point in panel.best:  # the area above and to the left of a skyline is free
        around = [withStroke(linewidth=2, foreground="white")]  # no line crosses a label
        axes.annotate(point.label, _at(point), (-3, 3), **_LABEL, path_effects=around)
    _set_limits(axes, panel)
    axes.set_ylabel(metric_heading(panel.metric))
    axes.set_title(panel.title, loc="left", fontsize=11, parse_math=False)
    axes.grid(color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(**_LEGEND)


def _set_limits(axes: Axes, panel: Panel) -> None:
    """Leave room for names at the left, where no points are, and set x ticks such as 100 KB."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    costs = [point.cost for point in panel.points]
    span = max(costs) / min(costs)
    axes.margins(0.12)
    axes.set_xlim(left=min(costs) / (2 * span**0.2))
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if span > 1000 else (1, 3) if span > 10 else (1, 2, 3, 5, 7)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: cost_text(panel.cost, value)))
    axes.set_xlabel(_MEASURES[panel.cost])
