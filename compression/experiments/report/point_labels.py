"""Names next to points of a picture, where they cover neither points nor each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_DISTANCES = (7, 10, 14)
"""Distances of a name from its point, in points of 1/72 inch, from near to far."""
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 158, 202, 22, 338, 112, 68, 248, 292)
_FONT = 8
_LABEL = {"fontsize": _FONT, "zorder": 6, "parse_math": False}
_LINE = {"arrowstyle": "-", "color": "#777777", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}


def place_label(axes: Axes, name: str, at: tuple[float, float], obstacles: Sequence[Bbox], colour: str) -> list[Bbox]:
    """Write one name at the nearest free place around its point, which is in the axes' own units.

    Returns the name's box, in pixels; none when there was no room without covering an obstacle.
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


def place_column(axes: Axes, named: Sequence[tuple[str, tuple[float, float]]], least: float) -> None:
    """Write names in a column at the left, each with a line to its point; for many points whose neighbours are close.

    named: names and points of a skyline, from its lower left to its upper right. Up and to the left of a skyline is
    free room, and lines of names in its own order do not cross: so names only move upwards. The axes, whose x is
    logarithmic, become wider on the left for the names to fit next to everything from x = least on.
    """
    renderer, room = axes.figure.canvas.get_renderer(), axes.get_window_extent()
    texts = [axes.text(0.01, 0, name, transform=axes.transAxes, **_LABEL) for name, _ in named]
    widths = [(text.get_window_extent(renderer).x1 - room.x0) / room.width for text in texts]
    share = min(0.6, max(widths) + 0.03)
    axes.set_xlim(left=least * (least / axes.get_xlim()[1]) ** (share / (1 - share)))
    gap = 1.35 * _FONT * axes.figure.dpi / 72 / room.height
    heights = [(axes.transData.transform(at)[1] - room.y0) / room.height for _, at in named]
    heights = list(itertools.accumulate(heights, lambda below, height: max(height, below + gap)))
    for i in reversed(range(len(heights))):  # names that would be above the axes move down again
        heights[i] = min(heights[i], 1 - gap / 2 if i == len(heights) - 1 else heights[i + 1] - gap)
    for text, width, height, (_, at) in zip(texts, widths, heights, named, strict=True):
        text.set(y=height, verticalalignment="center")
        axes.annotate("", at, (width + 0.005, height), textcoords="axes fraction", arrowprops=_LINE, zorder=2.2)
