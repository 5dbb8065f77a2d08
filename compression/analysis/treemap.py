"""A treemap of bytes: rectangles whose areas are sizes, groups of them side by side.

The layout is Bruls, Huizing and van Wijk's squarified treemap (2000): rows are filled as long as that brings their
rectangles nearer to squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compression.analysis.pictures import COLOURS, share, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Box = tuple[float, float, float, float]
"""Left, bottom, width, height."""
Groups = dict[str, dict[str, int]]
"""Name of a group -> what it consists of -> bytes."""
_WIDTH, _HEIGHT = 10.0, 6.0
"""Of the picture's map, in inches."""
_LETTER, _LINE = 0.085, 0.17
"""Room that a letter and a line of text take, in inches."""
_DARK_TEXT = ("#e69f00", "#56b4e9", "#cc79a7")
"""Colours too light for white letters."""


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """A rectangle for each size, which must be positive: together they fill the box, areas in proportion to sizes.

    The largest comes first where sizes fall; other orders give worse shapes.
    """
    boxes: list[Box] = []
    start = 0
    while start < len(sizes):
        left, bottom, width, height = box
        side, scale = min(width, height), width * height / sum(sizes[start:])
        end = start + 1
        while end < len(sizes) and _worst(sizes[start : end + 1], side, scale) <= _worst(sizes[start:end], side, scale):
            end += 1
        depth, along = sum(sizes[start:end]) * scale / side, 0.0
        for size in sizes[start:end]:
            length = size * scale / depth
            upright = width >= height
            boxes.append((left, bottom + along, depth, length) if upright else (left + along, bottom, length, depth))
            along += length
        wide = width >= height
        box = (left + depth, bottom, width - depth, height) if wide else (left, bottom + depth, width, height - depth)
        start = end
    return boxes


def _worst(row: Sequence[float], side: float, scale: float) -> float:
    """The largest ratio of sides in a row of rectangles along `side` (the paper's section 3.2)."""
    total = sum(row) * scale
    return max(side**2 * max(row) * scale / total**2, total**2 / (side**2 * min(row) * scale))


def byte_treemap(title: str, groups: Groups) -> Figure:
    """Where bytes go. A group has a colour and a line in the legend; what has no bytes is left out."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shown = {name: {k: v for k, v in of.items() if v} for name, of in groups.items() if sum(of.values())}
    sums = {name: sum(of.values()) for name, of in shown.items()}
    total = sum(sums.values())
    order = sorted(shown, key=lambda name: -sums[name])
    colours = dict(zip(groups, COLOURS * len(groups), strict=False))
    figure = Figure(figsize=(_WIDTH + 0.5, _HEIGHT + 1.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, _WIDTH), ylim=(_HEIGHT, 0), aspect="equal")
    axes.set_axis_off()
    for name, box in zip(order, squarify([sums[name] for name in order], (0, 0, _WIDTH, _HEIGHT)), strict=True):
        items = sorted(shown[name].items(), key=lambda item: -item[1])
        for (item, size), place in zip(items, squarify([size for _, size in items], box), strict=True):
            _draw(axes, place, colours[name], item, [f"{size:,} bytes", share(size / total)])
    legend = [
        Patch(color=colours[name], label=f"{name}: {sums[name]:,} ({share(sums[name] / total)})") for name in shown
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=min(3, len(legend)), frameon=False, fontsize=10)
    figure.suptitle(f"{wrapped(title, 90)}\n{total:,} bytes", fontsize=11)
    return figure


def _draw(axes: Axes, box: Box, colour: str, name: str, said: list[str]) -> None:
    """A rectangle with its name and what is said of it, as far as there is room."""
    from matplotlib.patches import Rectangle

    left, bottom, width, height = box
    axes.add_patch(Rectangle((left, bottom), width, height, facecolor=colour, edgecolor="white", linewidth=1.5))
    letters, room = int(width / _LETTER), int(height / _LINE)
    lines = _broken(name, letters)
    if not lines or len(lines) > room:
        return
    lines += [line for line in said if len(line) <= letters][: room - len(lines)]
    ink = "black" if colour in _DARK_TEXT else "white"
    axes.text(left + width / 2, bottom + height / 2, "\n".join(lines), color=ink, fontsize=9, ha="center", va="center")


def _broken(name: str, letters: int) -> list[str]:
    """A dotted name in lines of at most so many letters, broken after dots; none where a word is longer."""
    lines = [""]
    for word in name.replace(".", ".\n").replace(" ", " \n").split("\n"):
        if len(lines[-1]) + len(word.strip()) > letters:
            lines.append("")
        lines[-1] += word
    return [] if any(len(line.strip()) > letters for line in lines) else [line.strip() for line in lines if line]
