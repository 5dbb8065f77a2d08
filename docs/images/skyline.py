"""Draw the picture of README.md: accuracy on SST-2 by size, of archived experiments and of quoted encoders.

python docs/images/skyline.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[2]))
sys.path.insert(2, str(Path(__file__).parents[1] / "results"))

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from archive import read_finished
from common.tables import human_bytes
from compression.analysis.pictures import save_figure, style_size_axes
from merge import merged
from overview import BLUE, GREY, ORANGE, PURPLE, Scored, overviews
from size_table import LIMITS

ROOT = Path(__file__).parents[2]
TASK = "sst-2"
NAME = "skyline-sst-2"
TEACHER_BYTES = 437_971_872
"""Weights of MPNet: results of a teacher that was imported as logits do not have its size."""
Points = list[tuple[str, float, float]]
"""Name, bytes and percent of each point."""


def points() -> dict[str, Points]:
    """Return what is drawn, from small to large: our students, fastText, the teacher, and the quoted encoders."""
    records = [read_finished(ROOT / "docs" / "results" / name) for name in ("sizes", "averaged", "fasttext-sst-2")]
    (overview,) = overviews(merged({one.record.name: one.rows for one in records}, TASK))

    def points_of(groups: dict[str, Scored]) -> Points:
        sizes = [groups[human_bytes(limit)] for limit in LIMITS]
        sized = [("", group.mean("bytes_packed"), 100 * score.mean) for group, score in sizes]
        return sorted(sized, key=lambda point: point[1])

    teacher, score = overview.teacher
    return {
        "ours": points_of(overview.students),
        "fasttext": points_of(overview.peers),
        "teacher": [("", teacher.mean("bytes_model") or TEACHER_BYTES, 100 * score.mean)],
        "quoted": [
            (row["model"], row["bytes_model"], 100 * row["metrics"][overview.metric]) for row in overview.encoders
        ],
    }


def described(drawn: dict[str, Points]) -> str:
    """Return a line for each point: what the picture's file says of itself."""
    return "\n".join(
        f"{kind} {name}: {score:.2f} % in {human_bytes(size)}".replace(" :", ":")
        for kind, of_kind in drawn.items()
        for name, size, score in of_kind
    )


def draw(drawn: dict[str, Points]) -> Figure:
    """Return the picture, for a width of 800 pixels."""
    figure = Figure(figsize=(8, 4.6), layout="constrained", facecolor="white")
    axes = figure.subplots()
    style_size_axes(axes, LogLocator(), human_bytes)
    looks = {
        "ours": {"marker": "o", "color": BLUE, "linewidth": 2, "markersize": 9, "label": "Featherweight, packed file"},
        "fasttext": {"marker": "^", "color": ORANGE, "linewidth": 1.5, "markersize": 8, "label": "fastText"},
        "teacher": {"marker": "D", "color": GREY, "linestyle": "none", "markersize": 8, "label": "the teacher: MPNet"},
        "quoted": {
            "marker": "s",
            "color": PURPLE,
            "linestyle": "none",
            "markersize": 8,
            "markerfacecolor": "white",
            "markeredgewidth": 1.8,
            "label": "quoted (GLUE's test server)",
        },
    }
    for kind, of_kind in drawn.items():
        axes.plot([size for _, size, _ in of_kind], [score for *_, score in of_kind], zorder=3, **looks[kind])
    # Away from the lines, which rise to the right.
    for kind, sideways, place in (
        ("ours", "right", (4, 8)),
        ("fasttext", "left", (-4, -8)),
        ("teacher", "center", (0, 8)),
        ("quoted", "center", (0, -9)),
    ):
        for name, size, score in drawn[kind]:
            text = f"{name}\n{score:.1f} %\n{human_bytes(size)}".strip()
            axes.annotate(
                text,
                (size, score),
                place,
                color=looks[kind]["color"],
                fontsize=10.5,
                ha=sideways,
                va="bottom" if place[1] > 0 else "top",
                textcoords="offset points",
            )
    axes.set_xlim(4e3, 1.2e9)
    axes.set_ylim(74.5, 96.5)
    axes.set_xlabel(
        "size of the file, logarithmic (packed file, all in; teacher and quoted: the weights)", fontsize=10.5
    )
    axes.set_ylabel("accuracy on SST-2, %", fontsize=11)
    axes.tick_params(labelsize=10.5)
    axes.legend(loc="lower right", fontsize=10, frameon=False)
    return figure


if __name__ == "__main__":
    drawn = points()
    (path,) = save_figure(draw(drawn), Path(__file__).parent, NAME, description=described(drawn))
    print(f"{path}\n{described(drawn)}")
