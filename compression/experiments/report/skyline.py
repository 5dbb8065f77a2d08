"""The skyline: a score against size, and the models that no smaller one equals (figures 7.2 to 7.4 of the thesis)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from common.tables import human_bytes
from compression.experiments.report.models_table import metric_heading
from compression.experiments.report.point_labels import place_column, place_label
from compression.experiments.report.points import PACKED, SIZE, Panel, Point, panels, skyline
from compression.experiments.report.record import Quote
from compression.experiments.report.seed_groups import SplitResults

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
"""With more points than this in a panel, only those of the skyline have names and error bars."""
_MARKER = 7
"""Pixels around a point that its marker fills."""
_DOMINATED = {"marker": "o", "color": _GREY, "markeredgewidth": 0.4}
_HOLLOW = {"color": _PURPLE, "markerfacecolor": "none", "markeredgewidth": 0.9, "zorder": 2}
_LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "teacher": ("teacher", {"marker": "D", "color": _ORANGE, "markersize": 7, "zorder": 4}),
    "peer": ("another library's model", {"marker": "^", "color": _ORANGE, "markersize": 6.5, "zorder": 3.5}),
    "quoted": ("thesis (quoted)", {"marker": "s", "markersize": 4.5, **_HOLLOW}),
    "baseline": ("thesis (quoted)", {"marker": "s", "markersize": 6.5, **_HOLLOW}),
    "best": ("student on the skyline", {"marker": "o", "color": _BLUE, "markersize": 6.5, "zorder": 4}),
    "few": (
        "dominated student (named where there is room)",
        {"markersize": 6, **_DOMINATED},
    ),
    "many": ("dominated student", {"markersize": 4.5, **_DOMINATED}),
}
"""Kind of a point -> its text in the legend, and how its marker looks."""


def draw_skylines(splits: Sequence[SplitResults], quote: Quote | None = None, size: str = SIZE) -> Figure:
    """Return a figure with a panel for each task, split and metric. quote: whether to draw the thesis's models too.

    size: which size, SIZE or PACKED. Every point's marker has `point_id` as its gid, by which SVG knows it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wanted = panels(splits, quote, size)
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
    """Return the gid of a point's marker: the panel's number, and the point's in `Panel.every`."""
    return f"point-{panel}-{point}"


def _at(point: Point) -> tuple[float, float]:
    return point.size, 100 * point.score


def _is_few(panel: Panel) -> bool:
    return len(panel.found) <= _FEW


def _draw_panel(axes: Axes, panel: Panel, number: int) -> None:
    best = skyline(panel.found)
    axes.set_xscale("log")
    steps = {"drawstyle": "steps-post", "color": _GREEN, "linewidth": 1.8, "zorder": 2.5}
    axes.plot(*zip(*map(_at, best), strict=True), label="skyline: best up to a size", **steps)
    named = set()
    for index, point in enumerate(panel.every):  # a line of one marker each, so that each has an id
        dominated = "few" if _is_few(panel) else "many"
        text, look = _LOOKS[point.kind if point.kind != "student" else "best" if point in best else dominated]
        look = {"zorder": 3, "markeredgecolor": look["color"] if "markerfacecolor" in look else "white", **look}
        look |= {"label": "_nolegend_" if text in named else text, "gid": point_id(number, index)}
        named.add(text)
        axes.plot(*_at(point), linestyle="none", in_layout=False, **look)
        if point in panel.found and point.spread and (point in best or _is_few(panel)):
            low, high = 100 * (point.score - point.spread), 100 * (point.score + point.spread)
            bar = {"color": look["color"], "linewidth": 0.9, "zorder": 2.8, "in_layout": False}
            axes.plot([point.size, point.size], [low, high], **bar)
    _set_limits(axes, panel)
    axes.set_ylabel(metric_heading(panel.metric))
    axes.set_title(panel.title, loc="left", fontsize=11, parse_math=False)
    axes.grid(color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 3}
    axes.legend(**place, frameon=False, fontsize=8.5, columnspacing=1.6, handletextpad=0.5)


def _set_limits(axes: Axes, panel: Panel) -> None:
    """Leave room for names on the left and above, where no points are, and put ticks such as 100 KB on the x axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    sizes = [point.size for point in panel.every]
    scores = [100 * (point.score + side * point.spread) for point in panel.every for side in (-1, 1)]
    span = max(sizes) / min(sizes)
    axes.set_xlim(min(sizes) / (2 * span**0.2), max(sizes) * 2 * span**0.04)
    pad = max(0.12 * (max(scores) - min(scores)), 1.0)
    axes.set_ylim(min(scores) - pad, max(scores) + pad)
    axes.set_yticks([tick for tick in axes.get_yticks() if min(scores) - pad <= tick <= min(100, max(scores) + pad)])
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if span > 1000 else (1, 3) if span > 10 else (1, 2, 3, 5, 7)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_bytes(value)))
    axes.set_xlabel(_MEASURES[panel.size])


def _place_labels(axes: Axes, panel: Panel) -> None:
    """Name points where their names cover nothing. The teacher and the skyline choose first.

    Of many points only the skyline's are named, in a column.
    """
    best = skyline(panel.found)
    column = [(point.label, _at(point)) for point in best if point.kind != "teacher"]
    if column and not _is_few(panel):
        place_column(axes, column, min(point.size for point in panel.every))
    obstacles = list(_obstacles(axes, panel, best))
    for point in sorted(panel.found, key=lambda p: (p.kind != "teacher", p not in best, -p.score)):
        if point.kind == "teacher" or _is_few(panel):
            colour = "black" if point.kind == "teacher" or point in best else "#666666"
            obstacles += place_label(axes, point.label, _at(point), obstacles, colour)
    for point in (*panel.peers, *panel.quoted):
        if point.kind != "quoted":
            colour = _PURPLE if point.kind == "baseline" else _ORANGE
            obstacles += place_label(axes, point.label, _at(point), obstacles, colour)


def _obstacles(axes: Axes, panel: Panel, best: list[Point]) -> Iterator[Bbox]:
    """Boxes, in pixels, of markers, error bars and the skyline's steps."""
    from matplotlib.transforms import Bbox

    for point in panel.every:
        spread = point.spread if point in best or _is_few(panel) else 0.0
        ends = [(point.size, 100 * (point.score + side * spread)) for side in (-1, 1)]
        yield Bbox(axes.transData.transform(ends)).padded(_MARKER)
    for left, right in itertools.pairwise(best):
        corner = (right.size, 100 * left.score)
        for ends in ([_at(left), corner], [corner, _at(right)]):
            yield Bbox(axes.transData.transform(ends)).padded(1)
