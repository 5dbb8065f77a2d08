"""Treemap of bytes: rectangles whose areas are proportional to sizes, coloured by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compression.analysis.pictures import COLOURS, share, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups = dict[str, dict[str, int]]
"""Name of a group -> name of a part -> bytes."""
_WIDTH, _HEIGHT = 10.0, 6.0
"""Size of the map in the picture, in inches."""
_LETTER, _LINE = 0.085, 0.17
"""Width of a letter and height of a line of text, in inches."""
_DARK_TEXT = ("#e69f00", "#56b4e9", "#cc79a7")
"""Colours that are too light for white text."""


def byte_treemap(title: str, groups: Groups) -> Figure:
    """Return a treemap of bytes, with a colour and a legend line per group. Empty parts are left out.

    The layout is the squarified treemap of Bruls, Huizing and van Wijk (2000).
    """
    import squarify
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    sums = {name: sum(of.values()) for name, of in groups.items() if sum(of.values())}
    total = sum(sums.values())
    order = sorted(sums, key=lambda name: -sums[name])
    colours = dict(zip(groups, COLOURS * len(groups), strict=False))
    figure = Figure(figsize=(_WIDTH + 0.5, _HEIGHT + 1.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, _WIDTH), ylim=(_HEIGHT, 0), aspect="equal")
    axes.set_axis_off()

    def boxes(sizes: list[int], x: float, y: float, dx: float, dy: float) -> list[dict[str, float]]:
        return squarify.squarify(squarify.normalize_sizes(sizes, dx, dy), x, y, dx, dy)

    for name, box in zip(order, boxes([sums[name] for name in order], 0, 0, _WIDTH, _HEIGHT), strict=True):
        parts = sorted(((part, size) for part, size in groups[name].items() if size), key=lambda item: -item[1])
        for (part, size), at in zip(parts, boxes([size for _, size in parts], **box), strict=True):
            corner = at["x"], at["y"]
            axes.add_patch(
                Rectangle(corner, at["dx"], at["dy"], facecolor=colours[name], edgecolor="white", linewidth=1.5)
            )
            _write(axes, at, colours[name], part, [f"{size:,} bytes", share(size / total)])
    legend = [
        Patch(color=colours[name], label=f"{name}: {sums[name]:,} ({share(sums[name] / total)})") for name in sums
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=min(3, len(legend)), frameon=False, fontsize=10)
    figure.suptitle(f"{wrapped(title, 90)}\n{total:,} bytes", fontsize=11)
    return figure


def _write(axes: Axes, box: dict[str, float], colour: str, name: str, facts: list[str]) -> None:
    """Write a rectangle's name, broken after dots and spaces, and facts about it, as far as they fit."""
    letters, room = int(box["dx"] / _LETTER), int(box["dy"] / _LINE)
    lines = [""]
    for word in name.replace(".", ".\n").replace(" ", " \n").split("\n"):
        if len(lines[-1]) + len(word.strip()) > letters:
            lines.append("")
        lines[-1] += word
    lines = [line.strip() for line in lines if line]
    if len(lines) > room or any(len(line) > letters for line in lines):
        return
    lines += [line for line in facts if len(line) <= letters][: room - len(lines)]
    ink = "black" if colour in _DARK_TEXT else "white"
    x, y = box["x"] + box["dx"] / 2, box["y"] + box["dy"] / 2
    axes.text(x, y, "\n".join(lines), color=ink, fontsize=9, ha="center", va="center")
