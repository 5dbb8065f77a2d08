"""Reliability diagrams: how often answers of a given probability are right, before and after calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compression.experiments.report.points import PACKED, panels
from compression.experiments.report.results import Row
from compression.experiments.report.seed_groups import SeedGroup, SplitResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _GREY, _LIGHT = "#0072b2", "#9a9a9a", "#d4d4d4"
_COLUMNS, _INCHES = 3, 2.9
MOST = 6
"""Diagrams of a split, at most."""

Bins = list[tuple[int, float, float]]
"""As in compression.evaluation.calibration."""


def calibrated_groups(results: SplitResults) -> list[SeedGroup]:
    """Return the students to draw, from small to large: those on the skyline of packed files, at most MOST, the best
    ones."""
    drawn = [panel for panel in panels([results], size=PACKED) if panel.metric == results.metrics[0]]
    best = [point.label for panel in drawn for point in panel.best]
    named = {group.label: group for group in results.groups if not group.is_teacher and _bins(group.rows, "bins")}
    return [named[label] for label in best if label in named][-MOST:]


def draw_reliability(results: SplitResults) -> Figure | None:
    """Return a figure with a diagram for each of `calibrated_groups`; None without any.

    A point is a bin with at least a row: its answers' mean probability, and how many of them are right. Its area grows
    with its rows; of several seeds they are counted together.
    """
    groups = calibrated_groups(results)
    if not groups:
        return None
    from matplotlib.figure import Figure

    rows = -(-len(groups) // _COLUMNS)
    columns = min(_COLUMNS, len(groups))
    figure = Figure(figsize=(_INCHES * _COLUMNS, (_INCHES + 0.3) * rows), layout="constrained")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False, sharex=True, sharey=True).ravel()
    for each, group in zip(axes, groups, strict=False):
        _draw(each, group)
    for each in axes[len(groups) :]:
        each.set_visible(False)
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    for each in axes[max(0, len(groups) - columns) : len(groups)]:
        each.set_xlabel("probability, %", fontsize=9)
        each.tick_params(labelbottom=True)
    for each in axes[::_COLUMNS]:
        each.set_ylabel("right, %", fontsize=9)
    return figure


def _draw(axes: Axes, group: SeedGroup) -> None:
    axes.plot([0, 100], [0, 100], color=_LIGHT, linewidth=1, zorder=1)
    looks = (("bins_before", "softmax", _GREY, "none"), ("bins", "with temperature", _BLUE, _BLUE))
    for field, name, colour, inside in looks:
        bins = _bins(group.rows, field)
        if not bins:
            continue
        total = sum(count for count, _, _ in bins)
        across, up = ([100 * each[i] for each in bins] for i in (1, 2))
        areas = [8 + 160 * count / total for count, _, _ in bins]
        name = name if field == "bins_before" or _bins(group.rows, "bins_before") else "softmax"
        axes.plot(across, up, color=colour, linewidth=1, zorder=2)
        axes.scatter(across, up, areas, facecolors=inside, edgecolors=colour, linewidths=1, label=name, zorder=3)
    axes.set_title(f"{group.label}\n{calibration_text(group)}", fontsize=8.5, loc="left", parse_math=False)
    axes.set(xlim=(0, 102), ylim=(0, 102), aspect="equal")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def calibration_text(group: SeedGroup) -> str:
    """Return 'ECE 5.12 → 1.03 %', before and after calibration, or 'ECE 5.12 %' where there is no temperature."""
    before, after = group.before_calibration, group.calibration_error
    shown = f"{100 * after.mean:.2f} %" if after else ""
    return f"ECE {100 * before.mean:.2f} → {shown}" if before else f"ECE {shown}"


def _bins(rows: Iterable[Row], field: str) -> Bins:
    """The bins of all rows together that hold a row; none where a row has none."""
    found: Sequence[Sequence[Sequence[float]]] = [(row.get("calibration") or {}).get(field) or () for row in rows]
    if not all(found):
        return []
    joined = []
    for same in zip(*found, strict=True):
        count = sum(int(n) for n, _, _ in same)
        if count:
            joined.append((count, *(sum(each[0] * each[i] for each in same) / count for i in (1, 2))))
    return joined
