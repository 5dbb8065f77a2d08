"""Reliability diagrams: accuracy of answers by their probability, before and after calibration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from common.tables import shortened
from compression.experiments.report.results import Row
from compression.experiments.report.seed_groups import SeedGroup, SplitResults
from compression.experiments.report.skyline import panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _GREY, _LIGHT = "#0072b2", "#9a9a9a", "#d4d4d4"
_COLUMNS = 3
_CELL = (2.9, 3.2)
"""Width and height of a diagram with its text, in inches."""
_LETTERS = 44
"""Maximum number of characters of the name above a diagram."""
MOST = 6
"""Maximum number of diagrams of a split."""

Bins = list[tuple[int, float, float]]
"""Bins, as in compression.evaluation.calibration."""


def calibrated_groups(results: SplitResults) -> list[SeedGroup]:
    """Return the students with probabilities; if more than MOST, the best ones on the skyline by packed size."""
    groups = [group for group in results.groups if not group.is_teacher and _bins(group.rows, "bins")]
    if len(groups) <= MOST:
        return groups
    best = {point.label for panel in panels([results])[:1] for point in panel.best}
    on_skyline = [group for group in groups if group.label in best]
    return sorted(on_skyline, key=lambda group: group.metric(results.metrics[0]).mean)[-MOST:]


def draw_reliability(results: SplitResults) -> Figure | None:
    """Return a figure with a diagram for each of `calibrated_groups`; None if there are none.

    A point is a bin that is not empty: the mean probability of its answers and their accuracy. Its area grows with the
    number of rows. The rows of all seeds are counted together.
    """
    groups = calibrated_groups(results)
    if not groups:
        return None
    from matplotlib.figure import Figure

    columns = min(len(groups), _COLUMNS)  # empty columns would not be laid out
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(_CELL[0] * columns, _CELL[1] * rows), layout="constrained")
    for number, group in enumerate(groups, 1):
        _draw(figure.add_subplot(rows, columns, number, box_aspect=1), group)
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _draw(axes: Axes, group: SeedGroup) -> None:
    axes.plot([0, 100], [0, 100], color=_LIGHT, linewidth=1, zorder=1)
    before, after = _bins(group.rows, "bins_before"), _bins(group.rows, "bins")
    looks = [(before, "softmax", _GREY, "none")] if before else []
    for bins, name, colour, inside in (*looks, (after, "with temperature" if before else "softmax", _BLUE, _BLUE)):
        total = sum(count for count, _, _ in bins)
        across, up = ([100 * one_bin[i] for one_bin in bins] for i in (1, 2))
        areas = [8 + 160 * count / total for count, _, _ in bins]
        axes.plot(across, up, color=colour, linewidth=1, zorder=2)
        axes.scatter(
            across, up, areas, facecolors=inside, edgecolors=colour, linewidths=1, label=name, zorder=3, clip_on=False
        )
    axes.set_title(
        f"{shortened(group.label, _LETTERS)}\n{calibration_text(group)}", fontsize=8.5, loc="left", parse_math=False
    )
    axes.set(xlim=(0, 102), ylim=(0, 102))
    axes.set_xlabel("probability, %", fontsize=9)
    axes.set_ylabel("right, %", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def calibration_text(group: SeedGroup) -> str:
    """Return 'ECE 5.12 → 1.03 %', before and after calibration, or 'ECE 5.12 %' if there is no temperature."""
    before, after = group.stat("calibration", "ece_before"), group.stat("ece")
    shown = f"{100 * after.mean:.2f} %" if after else ""
    return f"ECE {100 * before.mean:.2f} → {shown}" if before else f"ECE {shown}"


def _bins(rows: Iterable[Row], field: str) -> Bins:
    """Return the non-empty bins of all rows together; empty if one of the rows has no bins."""
    by_row = [(row.get("calibration") or {}).get(field) or () for row in rows]
    joined = []
    for same in zip(*by_row, strict=True) if all(by_row) else ():
        if count := sum(int(n) for n, _, _ in same):
            joined.append((count, *(sum(one_bin[0] * one_bin[i] for one_bin in same) / count for i in (1, 2))))
    return joined
