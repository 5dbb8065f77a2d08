"""Overview of all tasks: a table of the best students by size, and a picture of them next to other models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.config import CONFIG_DIR
from common.errors import UserError
from common.tables import human_bytes
from compression.analysis.pictures import style_size_axes
from compression.evaluation.models import F1_AT_THRESHOLD
from compression.evaluation.rows import Row
from compression.experiments.report.columns import metric_heading
from compression.experiments.report.reference import quoted_row, quoted_rows, read_quotes, share
from compression.experiments.report.results import SeedGroup, SplitResults, Stat, average_of_tasks
from compression.experiments.report.table import Entry, Head, Line, Table, markdown_table, number_entry, text_entry
from size_table import LIMITS, size_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENCODERS_FILE = CONFIG_DIR / "reference" / "small_encoders.csv"
_COLUMNS = 3
_PANEL_INCHES = (3.3, 2.5)
_STUDENTS, _PEERS = "Featherweight, packed file", "fastText"
BLUE, ORANGE, PURPLE, GREY = "#0072b2", "#d55e00", "#8a3d75", "#666666"
Scored = tuple[SeedGroup, Stat]
"""The seeds of a model, and their score."""


@dataclasses.dataclass(frozen=True)
class Overview:
    """Models of a task, compared by one metric.

    students, peers: size class -> group and score. If there are several, students holds the one that is best on
    validation by the task's main metric, and peers the one with the best score.
    """

    task: str
    metric: str
    students: dict[str, Scored]
    peers: dict[str, Scored]
    teacher: Scored | None
    thesis: Row | None
    """The thesis's best student."""
    encoders: list[Row]


def overviews(results: SplitResults, metrics: Sequence[str] = ()) -> list[Overview]:
    """Return an overview of a task's models for each metric; if unset, for its main metric.

    Raises UserError for an unknown metric, and if two students are in the same size class but validation scores are
    not known.
    """
    for metric in metrics:
        if metric not in results.metrics:
            raise UserError(f"{results.task} has no metric {metric!r} (there are: {', '.join(results.metrics)})")
    return [_overview(results, metric) for metric in metrics or results.metrics[:1]]


def _overview(results: SplitResults, metric: str) -> Overview:
    students: dict[str, Scored] = {}
    peers: dict[str, Scored] = {}
    for group in results.groups:
        score = _score(group, metric)
        if group.is_teacher or score is None:
            continue
        where, best = size_class(max(row["bytes_packed"] for row in group.rows)), peers if group.is_peer else students
        if where not in best:
            better = True
        elif group.is_peer:
            better = score.mean > best[where][1].mean
        else:
            better = _is_better(group, best[where][0], results, where)
        if better:
            best[where] = group, score
    of_students = [results.teacher_of(group) for group, _ in students.values()]
    teachers = [(one, score) for one in of_students if one and (score := _score(one, metric))]
    thesis = [row for row in quoted_rows(results.task) if metric in row["metrics"] and row["stage"] == "quoted"]
    return Overview(
        task=results.task,
        metric=metric,
        students=students,
        peers=peers,
        teacher=max(teachers, key=lambda pair: pair[1].mean) if teachers else None,
        thesis=max(thesis, key=lambda row: row["metrics"][metric]) if thesis else None,
        encoders=[row for row in quoted_encoders(results.task) if metric in row["metrics"]],
    )


def _is_better(group: SeedGroup, other: SeedGroup, results: SplitResults, where: str) -> bool:
    """Return whether a student is better on validation than another one in the same size class, `where`."""
    scores = [one.mean("validation", results.metrics[0]) for one in (group, other)]
    if None in scores:
        both = f"{other.label} and {group.label} are both in {where}"
        raise UserError(f"{results.task}: {both}, but have no validation scores to choose by")
    return scores[0] > scores[1]


def _score(group: SeedGroup, metric: str) -> Stat | None:
    # F1 is at the packed file's threshold if there is one.
    return (group.metric(F1_AT_THRESHOLD) if metric == "f1" else None) or group.metric(metric)


def quoted_encoders(task: str) -> list[Row]:
    """Return rows of the quoted small encoders on a task; empty if none are quoted for it.

    Sizes are four bytes per parameter.
    """
    rows: dict[str, Row] = {}
    for line in read_quotes(ENCODERS_FILE):
        if line["task"] == task:
            name, parameters = line["model"], float(line["parameters"])
            row = rows.setdefault(name, quoted_row(task, name, "baseline", 4 * parameters, parameters))
            row["metrics"][line["metric"]] = share(line["percent"])
    return list(rows.values())


def overview_table(shown: Sequence[Overview]) -> str:
    """Return the table in Markdown, with a line for each task and metric."""
    classes = list(map(human_bytes, LIMITS))
    encoders = list(dict.fromkeys(row["model"] for overview in shown for row in overview.encoders))

    def line(overview: Overview) -> Line:
        quoted = {row["model"]: row["metrics"][overview.metric] for row in overview.encoders}
        peer = max(overview.peers.values(), key=lambda one: one[1].mean, default=None)
        score = overview.thesis and f"{100 * overview.thesis['metrics'][overview.metric]:.1f}"
        thesis = overview.thesis and f"{score} ({human_bytes(overview.thesis['bytes_model'])})"
        return Line(
            [
                Entry(f"{overview.task}, {metric_heading(overview.metric)}"),
                *(_mean_entry(overview.students.get(name)) for name in classes),
                _mean_entry(overview.teacher),
                text_entry(f"{peer[1].text} ({human_bytes(peer[0].mean('bytes_packed'))})" if peer else None),
                text_entry(thesis),
                *(number_entry(quoted.get(name), ".1f", 0.01) for name in encoders),
            ]
        )

    heads = [
        "teacher",
        "fastText, its best",
        "thesis's best student (quoted)",
        *(f"{name} (quoted)" for name in encoders),
    ]
    names = [Head(("Test score",), numeric=False), *(Head((name,)) for name in [*classes, *heads])]
    lines = [line(overview) for overview in shown]
    averages = [_average(shown, column) for column in zip(*(of_task.entries[1:] for of_task in lines), strict=True)]
    return markdown_table(Table("", names, [*lines, Line([Entry("average of tasks"), *averages])]))


def _mean_entry(one: Scored | None) -> Entry:
    return Entry(one[1].text, one[1]) if one else text_entry(None)


def _average(shown: Sequence[Overview], column: Sequence[Entry]) -> Entry:
    """Return the average of a column of the table; it has none if its models differ in size, or a score is missing."""
    by_task: dict[str, dict[str, float | None]] = {}
    for overview, entry in zip(shown, column, strict=True):
        by_task.setdefault(overview.task, {})[overview.metric] = entry.sort if isinstance(entry.sort, float) else None
    return number_entry(average_of_tasks(by_task), ".2f", 0.01)


def draw_overview(shown: Sequence[Overview]) -> Figure:
    """Return a figure with a panel for each task and metric: score against size."""
    from matplotlib.figure import Figure

    rows = -(-len(shown) // _COLUMNS)
    size = _PANEL_INCHES[0] * min(_COLUMNS, len(shown)), _PANEL_INCHES[1] * rows + 0.4
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = list(figure.subplots(rows, min(_COLUMNS, len(shown)), squeeze=False).flat)
    for axes, overview in zip(panels, shown, strict=False):
        _draw_panel(axes, overview)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    named = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    labels = sorted(named, key=lambda label: label not in (_STUDENTS, _PEERS))
    handles = [named[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=_COLUMNS, frameon=False, fontsize=9)
    return figure


def _draw_panel(axes: Axes, overview: Overview) -> None:
    from matplotlib.ticker import FixedLocator

    def plot(groups: dict[str, Scored], label: str, colour: str, marker: str) -> None:
        points = sorted((group.mean("bytes_packed") or 0.0, score) for group, score in groups.values())
        if points:
            spread = [100 * (score.sd or 0.0) for _, score in points]
            means = [100 * score.mean for _, score in points]
            look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.4, "capsize": 2}
            axes.errorbar([size for size, _ in points], means, spread, label=label, zorder=3, **look)

    plot(overview.students, _STUDENTS, BLUE, "o")
    plot({name: peer for name, peer in overview.peers.items() if name != "larger"}, _PEERS, ORANGE, "^")
    quoted = {"linestyle": "none", "color": PURPLE, "markerfacecolor": "none", "markersize": 5.5, "zorder": 2}
    if overview.encoders:
        sizes = [row["bytes_model"] for row in overview.encoders]
        scores = [100 * row["metrics"][overview.metric] for row in overview.encoders]
        names = " and ".join(row["model"] for row in overview.encoders)
        axes.plot(sizes, scores, marker="s", label=f"{names} (quoted)", **quoted)
    if overview.thesis:
        at = overview.thesis["bytes_model"], 100 * overview.thesis["metrics"][overview.metric]
        axes.plot(*at, marker="D", label="thesis's best student (quoted)", **quoted)
    if overview.teacher:
        line = {"color": GREY, "linestyle": "--", "linewidth": 1}
        axes.axhline(100 * overview.teacher[1].mean, label="the students' teacher", **line)
    style_size_axes(axes, FixedLocator([1e4, 1e5, 1e6, 1e7]), human_bytes)
    axes.set_xlim(6e3, 8e7)
    axes.set_title(f"{overview.task}, {metric_heading(overview.metric)}", loc="left", fontsize=9.5)
    axes.tick_params(labelsize=8.5)


def described(shown: Sequence[Overview]) -> str:
    """Return the contents of the picture as text, one point per line."""
    return "\n".join(
        f"{overview.task} {overview.metric} {name} {human_bytes(group.mean('bytes_packed'))}: {score.text}"
        for overview in shown
        for name, groups in (("student", overview.students), ("fastText", overview.peers))
        for group, score in groups.values()
    )
