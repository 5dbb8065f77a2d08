"""Names beside points of a picture, where they cover neither points nor each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

NEAR = (7, 10, 14)
"""Distances, in points, at which a label needs no line to its point; tried from near to far."""
FAR = (25, 37, 51, 67, 85, 105, 127, 151)
"""Distances of labels that have a line."""
MARKER = 7
"""Pixels around a point that are its marker's."""
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 158, 202, 22, 338, 112, 68, 248, 292)
_FONT = 8
_LABEL = {"fontsize": _FONT, "zorder": 6, "parse_math": False}
_LINE = {"arrowstyle": "-", "color": "#777777", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}


def box(corners: Sequence[Sequence[float]], margin: float) -> Bbox:
    """The box between two corners, wider by a margin on all sides, in pixels."""
    from matplotlib.transforms import Bbox

    return Bbox(corners).padded(margin)


def place_label(
    axes: Axes,
    name: str,
    at: tuple[float, float],
    obstacles: Sequence[Bbox],
    labels: Sequence[Bbox],
    distances: Sequence[int],
    colour: str,
) -> list[Bbox]:
    """Write one label at the nearest free place around its point, with a line to it where that is far.

    at: the point, in the axes' own units. Words cover neither obstacles nor other labels; a line may cross obstacles.
    Returns the boxes of both, in pixels, none when there was no room.
    """
    renderer, pixels = axes.figure.canvas.get_renderer(), axes.figure.dpi / 72
    room, start = axes.get_window_extent().padded(-6), axes.transData.transform(at)
    text = axes.annotate(name, at, (0, 0), textcoords="offset points", color=colour, **_LABEL)
    for distance, angle in itertools.product(distances, _DIRECTIONS):
        across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        offset = (distance * across, distance * up)
        sideways = "left" if across > 0.1 else "right" if across < -0.1 else "center"
        upright = "bottom" if up > 0.1 else "top" if up < -0.1 else "center"
        text.set(position=offset, horizontalalignment=sideways, verticalalignment=upright)
        words = text.get_window_extent(renderer).padded(1)
        line = _line(start, offset, pixels) if distance in FAR else []
        inside = room.x0 <= words.x0 and words.x1 <= room.x1 and room.y0 <= words.y0 and words.y1 <= room.y1
        free = inside and not any(words.overlaps(other) for other in (*obstacles, *labels))
        if free and not any(piece.overlaps(other) for piece in line for other in labels):
            if line:
                axes.annotate("", at, offset, textcoords="offset points", arrowprops=_LINE, zorder=5)
            return [words, *line]
    text.remove()
    return []


def place_column(axes: Axes, named: Sequence[tuple[str, tuple[float, float]]], least: float) -> None:
    """Write names in a column at the left, each with a line to its point; for many points whose neighbours are close.

    named: names and points of a skyline, from its lower left to its upper right. Up and to the left of a skyline there
    is nothing, and names in its own order have lines that do not cross: so names give way upwards only. The axes, whose
    x is logarithmic, are made wider on the left for the names to fit beside all that is drawn, from x = least on.
    """
    renderer, room = axes.figure.canvas.get_renderer(), axes.get_window_extent()
    texts = [axes.text(0.01, 0, name, transform=axes.transAxes, **_LABEL) for name, _ in named]
    widths = [(text.get_window_extent(renderer).x1 - room.x0) / room.width for text in texts]
    share = min(0.6, max(widths) + 0.03)
    axes.set_xlim(left=least * (least / axes.get_xlim()[1]) ** (share / (1 - share)))
    height = 1.35 * _FONT * axes.figure.dpi / 72 / room.height
    ups = _spread([(axes.transData.transform(at)[1] - room.y0) / room.height for _, at in named], height)
    for text, width, up, (_, at) in zip(texts, widths, ups, named, strict=True):
        text.set(y=up, verticalalignment="center")
        axes.annotate("", at, (width + 0.005, up), textcoords="axes fraction", arrowprops=_LINE, zorder=2.2)


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """Rising heights, each at least a gap above the one before; what would stand above 1 goes down again."""
    found: list[float] = []
    for height in heights:
        found.append(max(height, found[-1] + gap) if found else height)
    limit = 1 - gap / 2
    for i in reversed(range(len(found))):
        found[i] = min(found[i], limit)
        limit = found[i] - gap
    return found


def _line(start: Sequence[float], offset: tuple[float, float], pixels: float) -> list[Bbox]:
    """A label's line in boxes small enough to follow it, without the end that lies on the point's own marker."""
    steps = [step / 20 for step in range(20)]
    return [
        box([(start[0] + pixels * step * offset[0], start[1] + pixels * step * offset[1])] * 2, margin=1)
        for step in steps
        if pixels * step * math.hypot(*offset) > MARKER + 3
    ]
