"""The skyline: a score against size, and the models that no smaller one equals (figures 7.2 to 7.4 of the thesis)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from common.tables import human_bytes
from compression.experiments.report.families import Group
from compression.experiments.report.point_labels import FAR, MARKER, NEAR, box, place_column, place_label
from compression.experiments.report.points import PACKED, SIZE, Panel, Point, panels, skyline
from compression.experiments.report.record import Quote
from compression.experiments.report.tables import metric_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_GREEN, _GREY, _BLUE, _ORANGE, _PURPLE = "#009e73", "#9a9a9a", "#0072b2", "#d55e00", "#8a3d75"
_MEASURES = {
    SIZE: f"Size of the gzipped weights ({SIZE}), logarithmic",
    PACKED: f"Size of the packed file, all in ({PACKED}; teachers, quoted: the weights), logarithmic",
}
_SIZE_INCHES = (8.6, 5.9)
_FEW = 24
"""With more points than this in a panel, only those of the skyline are named and have error bars."""


def draw_skylines(groups: Sequence[Group], quote: Quote | None = None, size: str = SIZE) -> Figure:
    """One panel for each task, split and metric, one below the other. quote: whether to draw the thesis's models too.

    size: which size, SIZE or PACKED. Every point's marker has `point_id` as its gid, by which SVG knows it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wanted = panels(groups, quote, size)
    figure = Figure(figsize=(_SIZE_INCHES[0], _SIZE_INCHES[1] * max(1, len(wanted))), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    if not wanted:
        figure.text(0.5, 0.5, "no model has both a size and a score", ha="center")
        return figure
    drawn = figure.subplots(len(wanted), 1, squeeze=False)[:, 0]
    for number, (axes, panel) in enumerate(zip(drawn, wanted, strict=True)):
        _draw_panel(axes, panel, number)
    # The layout moves the axes; labels are placed by pixels and so come after it, on axes that stay.
    canvas.draw()
    figure.set_layout_engine("none")
    for axes, panel in zip(drawn, wanted, strict=True):
        _place_labels(axes, panel)
    return figure


def point_id(panel: int, point: int) -> str:
    """The gid of a point's marker: the panel's number, and the point's among those found and then those quoted."""
    return f"point-{panel}-{point}"


def _draw_panel(axes: Axes, panel: Panel, number: int) -> None:
    best = skyline(panel.found)
    axes.set_xscale("log")
    axes.plot(
        [point.size for point in best],
        [100 * point.score for point in best],
        drawstyle="steps-post",
        color=_GREEN,
        linewidth=1.8,
        zorder=2.5,
        label="skyline: best up to a size",
    )
    _draw_points(axes, panel, number, best)
    _draw_spreads(axes, panel, best)
    _set_limits(axes, panel)
    axes.set_ylabel(metric_heading(panel.metric))
    axes.set_title(panel.title, loc="left", fontsize=11, parse_math=False)
    axes.grid(color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncols=3,
        frameon=False,
        fontsize=8.5,
        columnspacing=1.6,
        handletextpad=0.5,
    )


def _style(point: Point, best: Sequence[Point], few: bool) -> tuple[str, dict[str, object]]:
    """What the legend says of a point, and how its marker looks."""
    if point.kind == "teacher":
        return "teacher", {"marker": "D", "color": _ORANGE, "markersize": 7, "zorder": 4}
    if point.kind == "peer":
        return "another library's model", {"marker": "^", "color": _ORANGE, "markersize": 6.5, "zorder": 3.5}
    if point.kind in ("quoted", "baseline"):
        hollow = {"color": _PURPLE, "markerfacecolor": "none", "markeredgewidth": 0.9, "zorder": 2}
        size = 6.5 if point.kind == "baseline" else 4.5
        return "thesis (quoted)", {"marker": "s", "markersize": size, **hollow}
    if point in best:
        return "student on the skyline", {"marker": "o", "color": _BLUE, "markersize": 6.5, "zorder": 4}
    said = "dominated student (named where there is room)" if few else "dominated student"
    return said, {"marker": "o", "color": _GREY, "markersize": 6 if few else 4.5, "zorder": 3, "markeredgewidth": 0.4}


def _draw_points(axes: Axes, panel: Panel, number: int, best: Sequence[Point]) -> None:
    """Each point is a line of one marker, so that each has an id; the first of a kind stands in the legend."""
    told = set()
    for index, point in enumerate(panel.every):
        said, look = _style(point, best, _is_few(panel))
        label = "_nolegend_" if said in told else said
        told.add(said)
        edge = {} if "markerfacecolor" in look else {"markeredgecolor": "white"}
        at, gid = ([point.size], [100 * point.score]), point_id(number, index)
        axes.plot(*at, linestyle="none", label=label, gid=gid, in_layout=False, **edge, **look)


def _draw_spreads(axes: Axes, panel: Panel, best: Sequence[Point]) -> None:
    """A standard deviation up and down."""
    for point in panel.found:
        if point.spread and (point in best or _is_few(panel)):
            colour = _style(point, best, True)[1]["color"]
            low, high = 100 * (point.score - point.spread), 100 * (point.score + point.spread)
            axes.plot([point.size, point.size], [low, high], color=colour, linewidth=0.9, zorder=2.8, in_layout=False)


def _is_few(panel: Panel) -> bool:
    return len(panel.found) <= _FEW


def _set_limits(axes: Axes, panel: Panel) -> None:
    """Room on the left and above for names, where no points are: up there, a model would be smaller and better."""
    shown = panel.every
    sizes = [point.size for point in shown]
    scores = [100 * (point.score + side * (point.spread or 0)) for point in shown for side in (-1, 1)]
    span = max(sizes) / min(sizes)
    axes.set_xlim(min(sizes) / (2 * span**0.2), max(sizes) * 2 * span**0.04)
    pad = max(0.12 * (max(scores) - min(scores)), 1.0)
    axes.set_ylim(min(scores) - pad, max(scores) + pad)
    axes.set_yticks([tick for tick in axes.get_yticks() if min(scores) - pad <= tick <= min(100, max(scores) + pad)])
    _size_axis(axes, span, panel.size)


def _size_axis(axes: Axes, span: float, field: str) -> None:
    """Ticks such as 100 KB; more of them within a power of ten where the sizes span little."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if span > 1000 else (1, 3) if span > 10 else (1, 2, 3, 5, 7)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_bytes(value)))
    axes.set_xlabel(_MEASURES[field])


def _place_labels(axes: Axes, panel: Panel) -> None:
    """Name points where their names cover nothing and are not cut off. The teacher and the skyline choose first.

    Of few points, dominated ones are named where there is room beside them: far from their points, many names confuse.
    """
    best = skyline(panel.found)
    column = [(p.label, (p.size, 100 * p.score)) for p in best if p.kind != "teacher"]
    if column and not _is_few(panel):
        place_column(axes, column, min(point.size for point in panel.every))
    obstacles = list(_obstacles(axes, panel, best))
    labels: list[Bbox] = []

    def name(point: Point, distances: Sequence[int], colour: str) -> None:
        at = (point.size, 100 * point.score)
        labels.extend(place_label(axes, point.label, at, obstacles, labels, distances, colour))

    for point in sorted(panel.found, key=lambda p: (p.kind != "teacher", p not in best, -p.score)):
        if point.kind == "teacher" or (_is_few(panel) and point in best):
            name(point, (*NEAR, *FAR), "black")
        elif _is_few(panel):
            name(point, NEAR, "#666666")
    for point in panel.beside:
        if point.kind != "quoted":
            name(point, NEAR, _PURPLE if point.kind == "baseline" else _ORANGE)


def _obstacles(axes: Axes, panel: Panel, best: list[Point]) -> Iterator[Bbox]:
    """Boxes, in pixels, of markers, error bars and the skyline's steps."""
    for point in panel.every:
        spread = point.spread if point in best or _is_few(panel) else 0.0
        low, high = 100 * (point.score - spread), 100 * (point.score + spread)
        yield box(axes.transData.transform([(point.size, low), (point.size, high)]), MARKER)
    for left, right in itertools.pairwise(best):
        corner = (right.size, 100 * left.score)
        yield box(axes.transData.transform([(left.size, 100 * left.score), corner]), margin=1)
        yield box(axes.transData.transform([corner, (right.size, 100 * right.score)]), margin=1)
