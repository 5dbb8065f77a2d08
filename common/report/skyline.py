"""The skyline: a score against size, and the models that no smaller one equals (figures 7.2 to 7.4 of the thesis)."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from common.report.families import Group
from common.report.tables import human_bytes, metric_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

SIZE = "bytes_gzip"
"""The thesis's measure of size. Zeros stay in the weights file, so bytes_model would not show what pruning is worth."""

_GREEN, _GREY, _BLUE, _ORANGE = "#009e73", "#8a8a8a", "#0072b2", "#d55e00"
_PANEL = (8.0, 5.6)
_MARKER = 7
"""Pixels around a point that are its marker's."""
_RINGS = (7, 10, 14, 25, 37, 51, 67, 85, 105, 127, 151)
"""Distances of a label from its point, in points, tried from near to far."""
_NEAR = 3
"""How many of them are so near that a label needs no line to its point."""
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 158, 202, 22, 338, 112, 68, 248, 292)


@dataclasses.dataclass(frozen=True)
class Point:
    """A model family. size: bytes; score: as in results.json; spread: its sample standard deviation, 0 for one seed."""

    label: str
    size: float
    score: float
    spread: float = 0.0
    is_teacher: bool = False


def points(group: Group, metric: str) -> list[Point]:
    """The families of a group whose size and score are known."""
    found = []
    for family in group.families:
        size, score = family.size(SIZE), family.metric(metric)
        if size and score:
            found.append(Point(family.label, size, score.mean, score.sd or 0.0, family.is_teacher))
    return found


def skyline(candidates: Sequence[Point]) -> list[Point]:
    """The points that no other dominates, by size.

    A point is dominated when another is no larger and no worse, and smaller or better (Börzsönyi et al., 2001).
    """
    best: list[Point] = []
    for point in sorted(candidates, key=lambda point: (point.size, -point.score)):
        if not best or point.score > best[-1].score or (point.score, point.size) == (best[-1].score, best[-1].size):
            best.append(point)
    return best


def draw_skylines(groups: Sequence[Group]) -> Figure:
    """One panel for each task, split and metric, one below the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wanted = [
        (group, metric, found) for group in groups for metric in group.metrics if (found := points(group, metric))
    ]
    figure = Figure(figsize=(_PANEL[0], _PANEL[1] * max(1, len(wanted))), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    if not wanted:
        figure.text(0.5, 0.5, "no model has both a size and a score", ha="center")
        return figure
    panels = figure.subplots(len(wanted), 1, squeeze=False)[:, 0]
    for axes, (group, metric, found) in zip(panels, wanted, strict=True):
        _draw_panel(axes, f"{group.task}, {group.split}", metric, found)
    # The layout moves the axes; labels are placed by pixels and so come after it, on axes that stay.
    canvas.draw()
    figure.set_layout_engine("none")
    for axes, (_, _, found) in zip(panels, wanted, strict=True):
        _place_labels(axes, found)
    return figure


def _draw_panel(axes: Axes, title: str, metric: str, found: list[Point]) -> None:
    best = skyline(found)
    axes.set_xscale("log")
    axes.plot(
        [point.size for point in best],
        [100 * point.score for point in best],
        drawstyle="steps-post",
        color=_GREEN,
        linewidth=1.5,
        zorder=1,
        label="skyline: best up to a size",
    )
    students = [point for point in found if not point.is_teacher]
    _draw_points(axes, [p for p in students if p in best], "o", _BLUE, "student on the skyline")
    _draw_points(
        axes, [p for p in students if p not in best], "o", _GREY, "dominated student (named where there is room)"
    )
    _draw_points(axes, [p for p in found if p.is_teacher], "D", _ORANGE, "teacher")
    sizes = [point.size for point in found]
    scores = [100 * point.score for point in found]
    # Room on the left for the names of small models, whose neighbours on the skyline are at their right.
    span = max(sizes) / min(sizes)
    axes.set_xlim(min(sizes) / (2 * span**0.2), max(sizes) * 2)
    pad = max(0.15 * (max(scores) - min(scores)), 1.0)
    axes.set_ylim(min(scores) - pad, max(scores) + pad)
    _size_axis(axes, span)
    axes.set_ylabel(metric_heading(metric))
    axes.set_title(title.replace("$", r"\$"), loc="left", fontsize=11)
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncols=4,
        frameon=False,
        fontsize=8,
        columnspacing=1.2,
        handletextpad=0.4,
    )


def _draw_points(axes: Axes, chosen: list[Point], marker: str, colour: str, label: str) -> None:
    if chosen:
        axes.errorbar(
            [point.size for point in chosen],
            [100 * point.score for point in chosen],
            yerr=[100 * point.spread for point in chosen] if any(point.spread for point in chosen) else None,
            fmt=marker,
            color=colour,
            markersize=6,
            elinewidth=0.9,
            label=label,
        )


def _size_axis(axes: Axes, span: float) -> None:
    """Ticks such as 100 KB; more of them within a power of ten where the sizes span little."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if span > 1000 else (1, 3) if span > 10 else (1, 2, 3, 5, 7)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_bytes(value)))
    axes.set_xlabel(f"Size of the gzipped weights ({SIZE}), logarithmic")


def _place_labels(axes: Axes, found: list[Point]) -> None:
    """Name points where their names cover nothing and are not cut off. The teacher and the skyline choose first.

    Dominated points are named only where there is room beside them: far from their points, many names confuse.
    """
    best = skyline(found)
    obstacles = list(_obstacles(axes, found, best))
    labels: list[Bbox] = []
    for point in sorted(found, key=lambda point: (not point.is_teacher, point not in best, -point.score)):
        if point in best or point.is_teacher:
            labels += _place(axes, point, obstacles, labels, _RINGS, "black")
        else:
            labels += _place(axes, point, obstacles, labels, _RINGS[:_NEAR], "#666666")


def _obstacles(axes: Axes, found: list[Point], best: list[Point]) -> Iterator[Bbox]:
    """Boxes, in pixels, of markers, error bars and the skyline's steps."""
    for point in found:
        low, high = 100 * (point.score - point.spread), 100 * (point.score + point.spread)
        yield _box(axes.transData.transform([(point.size, low), (point.size, high)]), _MARKER)
    for left, right in itertools.pairwise(best):
        corner = (right.size, 100 * left.score)
        yield _box(axes.transData.transform([(left.size, 100 * left.score), corner]), margin=1)
        yield _box(axes.transData.transform([corner, (right.size, 100 * right.score)]), margin=1)


def _box(corners: Sequence[Sequence[float]], margin: float) -> Bbox:
    from matplotlib.transforms import Bbox

    return Bbox(corners).padded(margin)


def _place(
    axes: Axes, point: Point, obstacles: list[Bbox], labels: list[Bbox], rings: Sequence[int], colour: str
) -> list[Bbox]:
    """Write one label at the nearest free place around its point, with a line to it where that is far.

    Words cover neither obstacles nor other labels; a line may cross obstacles. Returns the boxes of both, in pixels,
    none when there was no room.
    """
    at = (point.size, 100 * point.score)
    renderer, pixels = axes.figure.canvas.get_renderer(), axes.figure.dpi / 72
    room, start = axes.get_window_extent().padded(-6), axes.transData.transform(at)
    text = axes.annotate(
        point.label.replace("$", r"\$"), at, (0, 0), textcoords="offset points", fontsize=7.5, color=colour
    )
    for ring, angle in itertools.product(rings, _DIRECTIONS):
        across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        offset = (ring * across, ring * up)
        sideways = "left" if across > 0.1 else "right" if across < -0.1 else "center"
        upright = "bottom" if up > 0.1 else "top" if up < -0.1 else "center"
        text.set(position=offset, horizontalalignment=sideways, verticalalignment=upright)
        words = text.get_window_extent(renderer).padded(1)
        line = _line(start, offset, pixels) if ring > _RINGS[_NEAR - 1] else []
        inside = room.x0 <= words.x0 and words.x1 <= room.x1 and room.y0 <= words.y0 and words.y1 <= room.y1
        free = not any(words.overlaps(other) for other in (*obstacles, *labels))
        if inside and free and not any(piece.overlaps(other) for piece in line for other in labels):
            if line:
                leader = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
                axes.annotate("", at, offset, textcoords="offset points", arrowprops=leader)
            return [words, *line]
    text.remove()
    return []


def _line(start: Sequence[float], offset: tuple[float, float], pixels: float) -> list[Bbox]:
    """A label's line in boxes small enough to follow it, without the end that lies on the point's own marker."""
    steps = [step / 20 for step in range(20)]
    return [
        _box([(start[0] + pixels * step * offset[0], start[1] + pixels * step * offset[1])] * 2, margin=1)
        for step in steps
        if pixels * step * math.hypot(*offset) > _MARKER + 3
    ]
