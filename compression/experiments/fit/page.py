"""The report of a fit: how good the recommended student is on the test rows, label by label, and how it was found."""

from pathlib import Path
from typing import TYPE_CHECKING

from compression.analysis.pictures import COLOURS, svg_markup
from compression.experiments.fit.result import Analysis, FitResult
from compression.experiments.fit.students import Trained
from compression.experiments.report import Extension, write_report
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import Row
from compression.experiments.report.table import Table, number_column, table_of, text_column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = 20
"""Labels that a confusion matrix shows."""


def write_fit_report(folder: Path, rows: list[Row], record: ExperimentRecord, result: FitResult) -> None:
    """Write the report of a fit into its folder. rows: of results.json."""
    from markupsafe import Markup

    labels, tried = labels_table(result.analysis), _tried_table(result)
    scored = [(f"{size.bytes:,} bytes: {size.student}", size.metrics) for size in result.sizes]
    scored += [(f"{one.name} ({one.details})", one.metrics) for one in result.baselines if one.metrics]
    other = result.seconds - sum(result.stages.values())
    stages = {**result.stages, "reading, checks and the rest": max(0.0, other)}
    context = {
        "result": result,
        "scores": [(name, metrics[result.metric], f"{100 * metrics[result.metric]:.1f}") for name, metrics in scored],
        "curve": Markup(svg_markup(_draw_curve(result), "curve-", {})) if len(result.sizes) > 1 else "",
        "per_label": labels,
        "confusion": _confused(result.analysis.confusion),
        "times": [(name, seconds / result.seconds, f"{seconds:.0f} s") for name, seconds in stages.items()],
        "tried": tried,
    }
    template = Path(__file__).parent / "fit.html.j2"
    write_report(folder, rows, record, Extension(template, context, [labels, tried] if labels.lines else [tried]))


def labels_table(analysis: Analysis) -> Table:
    """Return a table of each label's scores, rows and words, the lowest F1 first; no lines for numbers."""
    columns = [
        text_column("Label", lambda one: one.label),
        number_column("Precision, %", lambda one: one.precision, ".1%"),
        number_column("Recall, %", lambda one: one.recall, ".1%"),
        number_column("F1, %", lambda one: one.f1, ".1%"),
        number_column("Rows", lambda one: one.rows),
        text_column("Words for it", lambda one: ", ".join(one.words)),
    ]
    return table_of("Labels of the test rows", columns, sorted(analysis.per_label, key=lambda label: label.f1))


def _tried_table(result: FitResult) -> Table:
    packed = {size.model for size in result.sizes}
    columns = [
        text_column("Student", lambda one: one.in_words),
        number_column("Bytes, about", lambda one: one.candidate.bytes),
        number_column("Epochs", lambda one: one.epochs),
        number_column(f"{result.score_name} × 100, validation", lambda one: one.score, ".1f", 0.01),
        number_column("Seconds", lambda one: one.seconds, ".1f"),
        text_column("Note", lambda one: one.note),
    ]

    def kind(student: Trained) -> str:
        return "best" if f"{student.model}-packed" in packed else ""

    return table_of("Students that were tried", columns, result.tried, kind)


def _confused(confusion: dict[str, dict[str, int]]) -> list[tuple[str, list[tuple[str, int, float]]]]:
    """Return the rows of a confusion matrix: label, and for each answer its name, rows and share of the label's rows.

    Of many labels, those of the most frequent confusions are shown.
    """
    shown = list(confusion)
    if len(shown) > _LABELS:
        pairs = [
            (count, label, answer)
            for label, row in confusion.items()
            for answer, count in row.items()
            if answer != label
        ]
        pairs.sort(key=lambda pair: -pair[0])
        most = list(dict.fromkeys(name for _, label, answer in pairs for name in (label, answer)))[:_LABELS]
        shown = [label for label in confusion if label in most]
    matrix = [(label, confusion[label], max(1, sum(confusion[label].values()))) for label in shown]
    return [(name, [(to, row.get(to, 0), row.get(to, 0) / total) for to in shown]) for name, row, total in matrix]


def _draw_curve(result: FitResult) -> "Figure":
    """Return a plot of score against size, with a horizontal line for each baseline."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    points = sorted((size.bytes, 100 * size.metrics[result.metric]) for size in result.sizes)
    axes.plot(*zip(*points, strict=True), marker="o", color=COLOURS[0], label="packed student", zorder=3)
    scored = [one for one in result.baselines if one.metrics]
    for baseline, colour, dashes in zip(scored, COLOURS[1:], ("--", ":", "-.", (0, (5, 1))), strict=False):
        axes.axhline(100 * baseline.metrics[result.metric], color=colour, linestyle=dashes, label=baseline.name)
    axes.set_xscale("log")
    axes.set_xticks([size for size, _ in points], [f"{size:,}" for size, _ in points])
    axes.minorticks_off()
    axes.set(xlabel="bytes of the packed file, logarithmic", ylabel=f"{result.score_name} × 100, test")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure
