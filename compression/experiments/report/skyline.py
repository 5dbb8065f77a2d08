"""Plots of the skyline, the non-dominated models by score and size or time (figures 7.2 to 7.4 of the thesis)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compression.experiments.report.models_table import metric_heading
from compression.experiments.report.points import Panel, Point, cost_text, panels
from compression.experiments.report.record import Quote
from compression.experiments.report.seed_groups import GZIPPED, MILLISECONDS, PACKED, SplitResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_GREEN, _GREY, _BLUE, _ORANGE, _PURPLE = "#009e73", "#9a9a9a", "#0072b2", "#d55e00", "#8a3d75"
_MEASURES = {
    GZIPPED: f"Size of the gzipped weights ({GZIPPED}), logarithmic",
    PACKED: f"Size of the packed file, all in ({PACKED}; teachers, quoted: the weights), logarithmic",
    MILLISECONDS: "Milliseconds for one text, CPU time on one thread (teachers: in PyTorch), logarithmic",
}
_SIZE_INCHES = (8.6, 5.9)
_MARKER = 7
"""Pixels around a point that its marker covers."""
_DISTANCES = (7, 10, 14)
"""Distances tried between a name and its point, in points of 1/72 inch, from near to far."""
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 158, 202, 22, 338, 112, 68, 248, 292)
_FONT = 8
_LABEL = {"fontsize": _FONT, "zorder": 6, "parse_math": False}
_LINE = {"arrowstyle": "-", "color": "#777777", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
_DOMINATED = {"marker": "o", "color": _GREY, "markeredgewidth": 0.4}
_HOLLOW = {"color": _PURPLE, "markerfacecolor": "none", "markeredgewidth": 0.9, "zorder": 2}
_LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "teacher": ("teacher", {"marker": "D", "color": _ORANGE, "markersize": 7, "zorder": 4}),
    "peer": ("another library's model", {"marker": "^", "color": _ORANGE, "markersize": 6.5, "zorder": 3.5}),
    "quoted": ("thesis (quoted)", {"marker": "s", "markersize": 4.5, **_HOLLOW}),
    "baseline": ("thesis (quoted)", {"marker": "s", "markersize": 6.5, **_HOLLOW}),
    "best": ("student on the skyline", {"marker": "o", "color": _BLUE, "markersize": 6.5, "zorder": 4}),
    "few": ("dominated student (named where there is room)", {"markersize": 6, **_DOMINATED}),
    "many": ("dominated student", {"markersize": 4.5, **_DOMINATED}),
}
"""Kind of a point -> its text in the legend and the style of its marker."""


def draw_skylines(splits: Sequence[SplitResults], quote: Quote | None = None) -> Figure:
    """Return a figure with a pair of axes for each of `panels`. quote: the thesis's models to draw too.

    The gid of a point's marker, and thus its id in SVG, is `point_id`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wanted = panels(splits, quote)
    figure = Figure(figsize=(_SIZE_INCHES[0], _SIZE_INCHES[1] * max(1, len(wanted))), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    if not wanted:
        figure.text(0.5, 0.5, "no model has both a size and a score", ha="center")
        return figure
    drawn = figure.subplots(len(wanted), 1, squeeze=False)[:, 0]
    for number, (axes, panel) in enumerate(zip(drawn, wanted, strict=True)):
        _draw_panel(axes, panel, number)
    # Labels are placed in pixels, so the layout, which moves the axes, must be computed first.
    canvas.draw()
    figure.set_layout_engine("none")
    for axes, panel in zip(drawn, wanted, strict=True):
        _place_labels(axes, panel)
    return figure


def point_id(panel: int, point: int) -> str:
    """Return the gid of a point's marker. panel: number of the panel; point: index in `Panel.points`."""
    return f"point-{panel}-{point}"


def _at(point: Point) -> tuple[float, float]:
    return point.cost, 100 * point.score


def _draw_panel(axes: Axes, panel: Panel, number: int) -> None:
    axes.set_xscale("log")
    steps = {"drawstyle": "steps-post", "color": _GREEN, "linewidth": 1.8, "zorder": 2.5}
    word = "time" if panel.cost == MILLISECONDS else "size"
    axes.plot(*zip(*map(_at, panel.best), strict=True), label=f"skyline: best up to a {word}", **steps)
    if panel.tolerable is not None:
        line = {"color": _PURPLE, "linestyle": ":", "linewidth": 1.1, "zorder": 2}
        axes.axhline(100 * panel.tolerable, label="tolerable: GLUE's BiLSTM (quoted)", **line)
    named = set()
    for index, point in enumerate(panel.points):  # a separate line per marker, so that every marker has an id
        kind = point.kind
        if kind == "student":
            kind = "best" if point in panel.best else "few" if panel.few else "many"
        text, look = _LOOKS[kind]
        look = {"zorder": 3, "markeredgecolor": look["color"] if "markerfacecolor" in look else "white", **look}
        look |= {"label": "_nolegend_" if text in named else text, "gid": point_id(number, index)}
        named.add(text)
        axes.plot(*_at(point), linestyle="none", in_layout=False, **look)
        if point in panel.ours and (spread := panel.shown_spread(point)):
            bar = {"color": look["color"], "linewidth": 0.9, "zorder": 2.8, "in_layout": False}
            axes.plot(*zip(*_ends(point, spread), strict=True), **bar)
    _set_limits(axes, panel)
    axes.set_ylabel(metric_heading(panel.metric))
    axes.set_title(panel.title, loc="left", fontsize=11, parse_math=False)
    axes.grid(color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 3}
    axes.legend(**place, frameon=False, fontsize=8.5, columnspacing=1.6, handletextpad=0.5)


def _ends(point: Point, spread: float) -> list[tuple[float, float]]:
    """Return the lower and the upper end of a point's error bar."""
    return [(point.cost, 100 * (point.score + side * spread)) for side in (-1, 1)]


def _set_limits(axes: Axes, panel: Panel) -> None:
    """Leave room for names at the left and top, where no points are, and set x ticks such as 100 KB."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    costs = [point.cost for point in panel.points]
    scores = [score for point in panel.points for _, score in _ends(point, point.spread)]
    scores += [] if panel.tolerable is None else [100 * panel.tolerable]
    span = max(costs) / min(costs)
    axes.set_xlim(min(costs) / (2 * span**0.2), max(costs) * 2 * span**0.04)
    pad = max(0.12 * (max(scores) - min(scores)), 1.0)
    axes.set_ylim(min(scores) - pad, max(scores) + pad)
    axes.set_yticks([tick for tick in axes.get_yticks() if min(scores) - pad <= tick <= min(100, max(scores) + pad)])
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if span > 1000 else (1, 3) if span > 10 else (1, 2, 3, 5, 7)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: cost_text(panel.cost, value)))
    axes.set_xlabel(_MEASURES[panel.cost])


def _place_labels(axes: Axes, panel: Panel) -> None:
    """Write names of points where they cover nothing; the teacher and the skyline are placed first.

    If there are many points, only those of the skyline are named, in a column.
    """
    column = [(point.label, _at(point)) for point in panel.best if point.kind != "teacher"]
    if column and not panel.few:
        _place_column(axes, column, min(point.cost for point in panel.points))
    obstacles = list(_obstacles(axes, panel))
    ours = sorted(panel.ours, key=lambda point: (point.kind != "teacher", point not in panel.best, -point.score))
    for point in (*ours, *panel.of("peer", "baseline")):
        if point.kind != "student" or panel.few:
            colour = {"peer": _ORANGE, "baseline": _PURPLE, "teacher": "black"}.get(point.kind)
            colour = colour or ("black" if point in panel.best else "#666666")
            obstacles += _place_label(axes, point.label, _at(point), obstacles, colour)


def _obstacles(axes: Axes, panel: Panel) -> Iterator[Bbox]:
    """Yield the boxes, in pixels, of markers, error bars and the skyline's steps."""
    from matplotlib.transforms import Bbox

    for point in panel.points:
        yield Bbox(axes.transData.transform(_ends(point, panel.shown_spread(point)))).padded(_MARKER)
    for left, right in itertools.pairwise(panel.best):
        corner = (right.cost, 100 * left.score)
        for ends in ([_at(left), corner], [corner, _at(right)]):
            yield Bbox(axes.transData.transform(ends)).padded(1)


def _place_label(axes: Axes, name: str, at: tuple[float, float], obstacles: Sequence[Bbox], colour: str) -> list[Bbox]:
    """Write a name at the nearest free place around its point. at: the point, in data coordinates.

    Returns the name's box, in pixels; empty if there is no room without covering an obstacle.
    """
    renderer, room = axes.figure.canvas.get_renderer(), axes.get_window_extent().padded(-6)
    text = axes.annotate(name, at, (0, 0), textcoords="offset points", color=colour, **_LABEL)
    for distance, angle in itertools.product(_DISTANCES, _DIRECTIONS):
        across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        sideways = "left" if across > 0.1 else "right" if across < -0.1 else "center"
        upright = "bottom" if up > 0.1 else "top" if up < -0.1 else "center"
        offset = (distance * across, distance * up)
        text.set(position=offset, horizontalalignment=sideways, verticalalignment=upright)
        words = text.get_window_extent(renderer).padded(1)
        within = room.x0 <= words.x0 and words.x1 <= room.x1 and room.y0 <= words.y0 and words.y1 <= room.y1
        if within and not any(words.overlaps(other) for other in obstacles):
            return [words]
    text.remove()
    return []


def _place_column(axes: Axes, named: Sequence[tuple[str, tuple[float, float]]], least: float) -> None:
    """Write names in a column at the left, each with a line to its point; for many points that are close together.

    named: names and points of a skyline, from its lower left to its upper right. The area above and to the left of a
    skyline is free, and lines to names in the same order do not cross, so names only move upwards. The axes, whose x is
    logarithmic, are extended to the left so that the names fit next to everything from x = least on.
    """
    renderer, room = axes.figure.canvas.get_renderer(), axes.get_window_extent()
    texts = [axes.text(0.01, 0, name, transform=axes.transAxes, **_LABEL) for name, _ in named]
    widths = [(text.get_window_extent(renderer).x1 - room.x0) / room.width for text in texts]
    share = min(0.6, max(widths) + 0.03)
    axes.set_xlim(left=least * (least / axes.get_xlim()[1]) ** (share / (1 - share)))
    gap = 1.35 * _FONT * axes.figure.dpi / 72 / room.height
    heights = [(axes.transData.transform(at)[1] - room.y0) / room.height for _, at in named]
    heights = list(itertools.accumulate(heights, lambda below, height: max(height, below + gap)))
    for i in reversed(range(len(heights))):  # move names that would be above the axes down again
        heights[i] = min(heights[i], 1 - gap / 2 if i == len(heights) - 1 else heights[i + 1] - gap)
    for text, width, height, (_, at) in zip(texts, widths, heights, named, strict=True):
        text.set(y=height, verticalalignment="center")
        axes.annotate("", at, (width + 0.005, height), textcoords="axes fraction", arrowprops=_LINE, zorder=2.2)
