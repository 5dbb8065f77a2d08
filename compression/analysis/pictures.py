"""Pictures of a model: its weights and bytes. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import dataclasses
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.store.files import whole_file

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's palette, which is safe for colour-blind readers."""
_DPI = 160
_ROOM_FOR_PERCENT = 0.06
"""Smallest share whose percentage fits into its slice of the pie."""
Groups = dict[str, dict[str, int]]
"""Name of a group -> name of a part -> bytes."""
_MAP_WIDTH, _MAP_HEIGHT = 10.0, 6.0
"""Size of a treemap in the picture, in inches."""
_LETTER, _LINE = 0.085, 0.17
"""Width of a letter and height of a line of text, in inches."""
_DARK_TEXT = ("#e69f00", "#56b4e9", "#cc79a7")
"""Colours that are too light for white text."""


@dataclasses.dataclass(frozen=True)
class Histogram:
    """Weights of one part. edges: [bins + 1]; counts: [bins], of nonzero weights between the first and last edge.

    zeros: weights that are exactly zero; beyond: nonzero weights outside the edges.
    """

    edges: np.ndarray
    counts: np.ndarray
    zeros: int
    beyond: int


def save_figure(
    figure: Figure, folder: Path, stem: str, formats: Sequence[str] = ("png",), description: str | None = None
) -> list[Path]:
    """Write a figure as <stem>.<format> for each format, atomically and deterministically.

    description: description of the contents, stored as `Description` in PNG files.
    """
    metadata = {"pdf": {"CreationDate": None}, "png": {"Description": description} if description else {}}
    paths = []
    for name in formats:
        path = folder / f"{stem}.{name}"
        with whole_file(path) as partial:
            figure.savefig(partial, format=name, dpi=_DPI, metadata=metadata.get(name, {}))
        paths.append(path)
    return paths


def style_size_axes(axes: Axes, locator: Locator, text: Callable[[float], str]) -> None:
    """Give axes a logarithmic scale of sizes and a pale grid. text: function from a size to the text of its tick."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: text(size)))
    axes.grid(color="#e8e8e8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def svg_markup(figure: Figure, prefix: str, titles: Mapping[str, str]) -> str:
    """Return a figure as an <svg> element for an HTML page, deterministically.

    prefix: prefix of every id, so that ids are unique among the figures of a page. titles: gid of an artist -> tooltip
    text, which browsers show without scripts. Text is drawn as paths, so it looks the same on every machine.
    """
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "featherweight"}):
        figure.savefig(stream, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    # An inline element needs no XML declaration and no namespace, and must not have a style for the whole page.
    markup = stream.getvalue()[stream.getvalue().index("<svg") :]
    markup = re.sub(r"<defs>\s*<style.*?</defs>", "", markup, count=1, flags=re.DOTALL)
    markup = re.sub(r"<svg [^>]*(viewBox=\"[^\"]*\")[^>]*>", r"<svg \1>", markup, count=1)
    markup = re.sub(r"( id=\"|xlink:href=\"#|url\(#)", lambda m: m[0].removeprefix("xlink:") + prefix, markup)
    markup = re.sub(r"<!--.*?-->|(?<=\n)\s+", "", markup, flags=re.DOTALL)
    for gid, text in titles.items():
        start = f'<g id="{prefix}{gid}">'
        markup = markup.replace(start, f'<g id="{prefix}{gid}" class="point"><title>{html.escape(text)}</title>')
    return markup


def parameter_pie(title: str, parts: dict[str, int]) -> Figure:
    """Return a pie of parameters by major part (figures 3.8 to 3.10 of the thesis). parts: name -> number of weights.

    Names and numbers are listed next to the pie, so that labels of thin slices do not overlap.
    """
    from matplotlib.figure import Figure

    shown = {name: count for name, count in parts.items() if count}
    total = sum(shown.values())
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    wedges, *_ = axes.pie(
        list(shown.values()),
        colors=COLOURS,
        startangle=90,
        counterclock=False,
        wedgeprops={"edgecolor": "white", "linewidth": 1},
        autopct=lambda share: f"{share:.0f}%" if share > 100 * _ROOM_FOR_PERCENT else "",
        textprops={"color": "white", "fontweight": "bold"},
    )
    names = [f"{name}: {count:,} ({share(count / total)})" for name, count in shown.items()]
    figure.get_layout_engine().set(w_pad=0.2, h_pad=0.1)
    axes.legend(wedges, names, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=11)
    figure.suptitle(f"{wrapped(title, 70)}\n{total:,} parameters", fontsize=11)
    return figure


def share(part: float) -> str:
    """Return a share in percent, with more digits if it is small."""
    if part < 0.0001:
        return "below 0.01%"
    return f"{part:.1%}" if part >= 0.01 else f"{part:.2%}"


def weight_histograms(title: str, parts: dict[str, Histogram]) -> Figure:
    """Return a figure with a histogram of each part's weights, with logarithmic counts. Zeros are only counted."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 0.7 + 2.4 * len(parts)), layout="constrained")
    panels = figure.subplots(len(parts), 1, squeeze=False)[:, 0]
    for axes, (name, histogram), colour in zip(panels, parts.items(), COLOURS, strict=False):
        axes.stairs(histogram.counts, histogram.edges, fill=True, color=colour)
        if histogram.counts.any():
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.7)
        axes.set_ylabel("weights in a bin")
        total = int(histogram.counts.sum()) + histogram.zeros + histogram.beyond
        hidden = [f"{histogram.zeros:,} zeros ({share(histogram.zeros / total)})"] if histogram.zeros else []
        hidden += [f"{histogram.beyond:,} beyond ±{histogram.edges[-1]:.2g}"] if histogram.beyond else []
        heading = f"{name}: {total:,} weights" + (f"; not drawn: {', '.join(hidden)}" if hidden else "")
        axes.set_title(heading, fontsize=10, loc="left")
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("value of the weight")
    figure.suptitle(wrapped(title, 80), fontsize=11)
    return figure


def wrapped(text: str, width: int) -> str:
    """Return a text wrapped to a width at any character, with characters that start a formula escaped."""
    lines = [text[start : start + width] for start in range(0, len(text), width)]
    return "\n".join(lines).replace("$", r"\$")


def byte_treemap(title: str, groups: Groups) -> Figure:
    """Return a treemap of bytes, with a colour and a legend line per group. Empty parts are left out.

    The layout is the squarified treemap of Bruls, Huizing and van Wijk (2000).
    """
    import squarify
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    sums = {name: sum(parts.values()) for name, parts in groups.items() if any(parts.values())}
    total = sum(sums.values())
    order = sorted(sums, key=lambda name: -sums[name])
    colours = dict(zip(groups, COLOURS * len(groups), strict=False))
    figure = Figure(figsize=(_MAP_WIDTH + 0.5, _MAP_HEIGHT + 1.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, _MAP_WIDTH), ylim=(_MAP_HEIGHT, 0), aspect="equal")
    axes.set_axis_off()

    def boxes(sizes: list[int], x: float, y: float, dx: float, dy: float) -> list[dict[str, float]]:
        return squarify.squarify(squarify.normalize_sizes(sizes, dx, dy), x, y, dx, dy)

    for name, box in zip(order, boxes([sums[name] for name in order], 0, 0, _MAP_WIDTH, _MAP_HEIGHT), strict=True):
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
