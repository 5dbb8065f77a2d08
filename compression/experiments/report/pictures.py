"""Pictures of results: skylines (figures 7.2 to 7.4 of the thesis) and reliability diagrams.

A skyline is the non-dominated models by score and size or time. A reliability diagram is the accuracy of answers by
their probability, before and after calibration.
"""

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from common.tables import human_bytes, shortened
from compression.analysis.pictures import style_size_axes
from compression.evaluation.rows import Row
from compression.experiments.report.columns import compared_text, metric_heading
from compression.experiments.report.record import Quote
from compression.experiments.report.reference import quoted_rows, tolerable_scores
from compression.experiments.report.results import (
    ECE_BEFORE,
    GZIPPED,
    MEASURED,
    MILLISECONDS,
    PACKED,
    SeedGroup,
    SplitResults,
    field,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DIAGRAMS = 6
"""Maximum number of reliability diagrams of a split."""
_GREEN, _GREY, _BLUE, _ORANGE, _PURPLE, _LIGHT = "#009e73", "#9a9a9a", "#0072b2", "#d55e00", "#8a3d75", "#d4d4d4"
_MEASURES = {
    GZIPPED: f"Size of the gzipped weights ({GZIPPED}), logarithmic",
    PACKED: f"Size of the packed file, all in ({PACKED}; teachers, quoted: the weights), logarithmic",
    MILLISECONDS: "Milliseconds for one text, CPU time on one thread (teachers: in PyTorch), logarithmic",
}
_LABEL = {"textcoords": "offset points", "ha": "right", "va": "bottom", "rotation": -30, "rotation_mode": "anchor"}
_LABEL |= {"fontsize": 8, "zorder": 6, "parse_math": False}
_LEGEND = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 3, "frameon": False, "fontsize": 8.5}
_LEGEND |= {"columnspacing": 1.6, "handletextpad": 0.5}
_QUOTED = {"marker": "s", "color": _PURPLE, "markerfacecolor": "none", "markeredgewidth": 0.9, "zorder": 2}
_LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "teacher": ("teacher", {"marker": "D", "color": _ORANGE, "markersize": 7, "zorder": 4}),
    "peer": ("another library's model", {"marker": "^", "color": _ORANGE, "markersize": 6.5, "zorder": 3.5}),
    "quoted": ("thesis (quoted)", {"markersize": 4.5, **_QUOTED}),
    "baseline": ("thesis (quoted)", {"markersize": 6.5, **_QUOTED}),
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

    @property
    def at(self) -> tuple[float, float]:
        """Where it is drawn: cost and percent."""
        return self.cost, 100 * self.score


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

    def points_of(self, *kinds: str) -> list[Point]:
        """Return the points of these kinds."""
        return [point for point in self.points if point.kind in kinds]

    @functools.cached_property
    def best(self) -> list[Point]:
        """Our models on the skyline."""
        return skyline(self.points_of("student", "teacher"))


def panels(splits: Sequence[SplitResults], quote: Quote | None = None) -> list[Panel]:
    """Return a panel for each task, split and metric for which one of our models has both a score and a size.

    If students were timed, a second panel follows, by milliseconds per text; no times are quoted. Only test splits
    have quoted models, because the thesis reports no other scores.
    """
    drawn = []
    for results in splits:
        on_test = results.split.startswith("test")
        quoted = quoted_rows(quote.task or results.task) if quote and on_test else []
        tolerable = tolerable_scores(results.task) if on_test else {}
        timed = any(group.mean("speed", MILLISECONDS) for group in results.groups if not group.is_teacher)
        for metric in results.metrics:
            for cost in (results.size_field, *([MILLISECONDS] if timed else [])):
                points = _points(results, metric, cost)
                points += [] if cost == MILLISECONDS else _quoted(quoted, metric)
                title = f"{results.task}, {results.split}"
                drawn.append(Panel(title, metric, tuple(points), cost, tolerable.get(metric)))
    return [panel for panel in drawn if panel.best]


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
            size = "bytes_model" if group.is_teacher and cost == PACKED else cost
            value, measured = group.mean(size), MEASURED[size]
            ratio, words = group.times_smaller(teacher, size), ("smaller", "larger")
        if value and score:
            stage = group.first["stage"]
            kind = stage if stage in ("teacher", "peer") else "student"
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


def _quoted(rows: Iterable[Row], metric: str) -> list[Point]:
    """Return the thesis's models with this metric, from small to large."""
    points = []
    for row in rows:
        if (score := row["metrics"].get(metric)) is not None:
            name, size = row["model"], row["bytes_model"]
            text = f"{name}\nthesis, {row['task'].upper()} (quoted)\n{metric_heading(metric)}: {100 * score:.2f}"
            text += f"\n{human_bytes(size)} on disk"
            points.append(Point(name, size, score, kind=row["stage"], description=text))
    return sorted(points, key=lambda point: point.cost)


def skyline(candidates: Sequence[Point]) -> list[Point]:
    """Return the points that no other point dominates, sorted by cost.

    A point dominates another if its cost is not higher and its score not lower, and one of the two is strictly better
    (Börzsönyi et al., 2001).
    """
    best: list[Point] = []
    for point in sorted(candidates, key=lambda point: (point.cost, -point.score)):
        if not best or point.score > best[-1].score or point.at == best[-1].at:
            best.append(point)
    return best


def draw_skylines(splits: Sequence[SplitResults], quote: Quote | None = None) -> "Figure":
    """Return a figure with a pair of axes for each of `panels`. quote: the thesis's models to draw too.

    The gid of a point's marker, and thus its id in SVG, is `point_id`.
    """
    from matplotlib.figure import Figure

    shown = panels(splits, quote)
    figure = Figure(figsize=(8.6, 5.9 * max(1, len(shown))), layout="constrained")
    if not shown:
        figure.text(0.5, 0.5, "no model has both a size and a score", ha="center")
    for number, panel in enumerate(shown):
        _draw_panel(figure.add_subplot(len(shown), 1, number + 1), panel, number)
    return figure


def point_id(panel: int, point: int) -> str:
    """Return the gid of a point's marker. panel: number of the panel; point: index in `Panel.points`."""
    return f"point-{panel}-{point}"


def _draw_panel(axes: "Axes", panel: Panel, number: int) -> None:
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import LogLocator

    costs = [point.cost for point in panel.points]
    span = max(costs) / min(costs)
    marked = (1, 2, 3, 5, 7)  # of each power of ten
    if span > 10:
        marked = (1,) if span > 1000 else (1, 3)
    style_size_axes(axes, LogLocator(subs=marked), functools.partial(cost_text, panel.cost))
    name = f"skyline: best up to a {'time' if panel.cost == MILLISECONDS else 'size'}"
    sizes, scores = zip(*(point.at for point in panel.best), strict=True)
    axes.plot(sizes, scores, label=name, drawstyle="steps-post", color=_GREEN, linewidth=1.8, zorder=2.5)
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
        axes.plot(*point.at, linestyle="none", in_layout=False, **look)
        if on_skyline and point.spread:
            ends = [100 * (point.score - point.spread), 100 * (point.score + point.spread)]
            axes.plot([point.cost] * 2, ends, color=look["color"], linewidth=0.9, zorder=2.8, in_layout=False)
    for at, equal in itertools.groupby(panel.best, lambda point: point.at):
        names = "\n".join(point.label for point in equal)  # the area above and to the left of a skyline is free
        around = [withStroke(linewidth=2, foreground="white")]  # no line crosses a label
        axes.annotate(names, at, (-3, 3), **_LABEL, path_effects=around)
    axes.margins(0.12)
    axes.set_xlim(left=min(costs) / (2 * span**0.2))  # room for names, since no points are at the left
    axes.set_xlabel(_MEASURES[panel.cost])
    axes.set_ylabel(metric_heading(panel.metric))
    axes.set_title(panel.title, loc="left", fontsize=11, parse_math=False)
    axes.legend(**_LEGEND)


def calibrated_groups(results: SplitResults) -> list[SeedGroup]:
    """Return the students with probabilities; of more than MOST_DIAGRAMS, the best on the skyline by packed size."""
    groups = [group for group in results.groups if not group.is_teacher and _bins(group, "bins")]
    if len(groups) <= MOST_DIAGRAMS:
        return groups
    best = {point.label for panel in panels([results])[:1] for point in panel.best}
    on_skyline = [group for group in groups if group.label in best]
    return sorted(on_skyline, key=lambda group: group.metric(results.metrics[0]).mean)[-MOST_DIAGRAMS:]


def draw_reliability(results: SplitResults) -> "Figure | None":
    """Return a figure with a diagram for each of `calibrated_groups`; None if there are none.

    A point is a bin that is not empty: the mean probability of its answers and their accuracy. Its area grows with the
    number of rows. The rows of all seeds are counted together.
    """
    groups = calibrated_groups(results)
    if not groups:
        return None
    from matplotlib.figure import Figure

    columns = min(len(groups), 3)  # empty columns would not be laid out
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(2.9 * columns, 3.2 * rows), layout="constrained")
    for number, group in enumerate(groups, 1):
        _draw_diagram(figure.add_subplot(rows, columns, number, box_aspect=1), group)
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _draw_diagram(axes: "Axes", group: SeedGroup) -> None:
    axes.plot([0, 100], [0, 100], color=_LIGHT, linewidth=1, zorder=1)
    before, after = _bins(group, "bins_before"), _bins(group, "bins")
    looks = [(before, "softmax", _GREY, "none")] if before else []
    for bins, name, colour, inside in (*looks, (after, "with temperature" if before else "softmax", _BLUE, _BLUE)):
        counts, across, up = zip(*bins, strict=True)
        across, up = [100 * share for share in across], [100 * share for share in up]
        areas = [8 + 160 * count / sum(counts) for count in counts]
        axes.plot(across, up, color=colour, linewidth=1, zorder=2)
        axes.scatter(
            across, up, areas, label=name, facecolors=inside, edgecolors=colour, linewidths=1, zorder=3, clip_on=False
        )
    title = f"{shortened(group.label, 44)}\n{calibration_text(group)}"
    axes.set_title(title, fontsize=8.5, loc="left", parse_math=False)
    axes.set(xlim=(0, 102), ylim=(0, 102))
    axes.set_xlabel("probability, %", fontsize=9)
    axes.set_ylabel("right, %", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def calibration_text(group: SeedGroup) -> str:
    """Return 'ECE 5.12 → 1.03 %', before and after calibration, or 'ECE 5.12 %' if there is no temperature."""
    before, after = group.stat(*ECE_BEFORE), group.stat("ece")
    shown = f"{100 * after.mean:.2f} %" if after else ""
    return f"ECE {100 * before.mean:.2f} → {shown}" if before else f"ECE {shown}"


def _bins(group: SeedGroup, name: str) -> list[tuple[int, float, float]]:
    """Return the non-empty bins of a group's rows together; empty if one of the rows has no bins.

    name: of the bins, as in compression.evaluation.calibration.
    """
    by_row = [field(row, "calibration", name) for row in group.rows]
    if not all(by_row):
        return []
    joined = []
    for same in zip(*by_row, strict=True):
        counts, probabilities, accuracies = zip(*same, strict=True)
        if count := int(sum(counts)):
            joined.append((count, *(statistics.fmean(values, counts) for values in (probabilities, accuracies))))
    return joined
