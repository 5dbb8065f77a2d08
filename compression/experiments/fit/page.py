"""The report of a fit: how good the recommended student is on the test rows, label by label, and how it was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.data.split import Split
from common.data.tasks import Task
from common.kinds.multilabel import JOINED_BY
from compression.analysis.pictures import COLOURS, svg_markup
from compression.evaluation.label_scores import label_scores
from compression.evaluation.predictions import Predictions
from compression.experiments.fit.evidence import evidence
from compression.experiments.fit.result import Analysis, Answered, FitResult, Mistake
from compression.experiments.report import Extension, write_report
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import Row
from compression.experiments.report.table import Head, Line, Table, number_entry, text_entry
from compression.inference.classifier import Classifier

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MISTAKES = 20
_LETTERS = 200
"""Letters of a text that are shown."""
_LABELS = 20
"""Labels that a confusion matrix shows."""
_THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95)


def analyse(task: Task, split: Split, predictions: Predictions, model: Classifier) -> Analysis:
    """Return the analysis of a model's predictions for a split's rows."""
    from sklearn.metrics import confusion_matrix

    rows = np.flatnonzero(predictions.labelled)
    if task.kind.by_word or task.kind.always_pairs or not len(rows):
        return Analysis()
    labels, choices = predictions.labels[rows], predictions.choices[rows]
    if predictions.probabilities is None:
        errors = np.abs(labels - choices)
        return Analysis(mistakes=_mistakes(task, split, predictions, rows[np.argsort(-errors, kind="stable")]))
    words = evidence(model, list(zip(*split.sentences(), strict=True)))
    per_label = [
        one.model_copy(update={"words": words.get(one.label, ())}) for one in label_scores(task, labels, choices)
    ]
    indices = np.arange(len(task.labels))
    counts = confusion_matrix(labels, choices, labels=indices).tolist() if task.kind.one_class else []
    probabilities, right = predictions.probabilities[rows], predictions.right[rows]
    order = np.argsort(-probabilities, kind="stable")
    return Analysis(
        per_label=tuple(per_label),
        confusion={
            label: {answer: count for answer, count in zip(task.labels, row, strict=True) if count}
            for label, row in zip(task.labels, counts, strict=bool(counts))
        },
        mistakes=_mistakes(task, split, predictions, rows[order[~right[order]]]),
        answered=tuple(answered_from(threshold, predictions) for threshold in _THRESHOLDS),
    )


def answered_from(threshold: float, predictions: Predictions) -> Answered:
    """Return what answering the labelled rows from a probability on gives. predictions: with probabilities."""
    right = predictions.right[predictions.labelled]
    kept = predictions.probabilities[predictions.labelled] >= threshold
    accuracy = float(right[kept].mean()) if kept.any() else None
    return Answered(probability=threshold, share=float(kept.mean()), accuracy=accuracy)


def _mistakes(task: Task, split: Split, predictions: Predictions, rows: np.ndarray) -> tuple[Mistake, ...]:
    """Return the first of the rows as mistakes. rows: int64 [m], the worst first."""

    def words(answer: Any) -> str:
        if task.kind.is_scaled:
            return f"{answer:.4g}"
        return JOINED_BY.join(task.labels[i] for i in (np.flatnonzero(answer) if task.kind.independent else [answer]))

    return tuple(
        Mistake(
            row=int(row),
            text=_shortened(" / ".join(column[row] for column in split.sentences())),
            label=words(predictions.labels[row]),
            answer=words(predictions.choices[row]),
            probability=None if predictions.probabilities is None else float(predictions.probabilities[row]),
        )
        for row in rows[:_MISTAKES]
    )


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def write_fit_report(folder: Path, rows: list[Row], record: ExperimentRecord, result: FitResult) -> None:
    """Write the report of a fit into its folder. rows: of results.json."""
    from markupsafe import Markup

    labels, tried = labels_table(result.analysis), _tried_table(result)
    context = {
        "result": result,
        "scores": _score_bars(result),
        "curve": Markup(svg_markup(_draw_curve(result), "curve-", {})) if len(result.sizes) > 1 else "",
        "per_label": labels,
        "confusion": _confused(result.analysis.confusion),
        "times": _time_bars(result),
        "tried": tried,
    }
    template = Path(__file__).parent / "fit.html.j2"
    write_report(folder, rows, record, Extension(template, context, [labels, tried] if labels.lines else [tried]))


def labels_table(analysis: Analysis) -> Table:
    """Return a table of each label's scores, rows and words, the lowest F1 first; no lines for numbers."""
    names = ("Label", "Precision, %", "Recall, %", "F1, %", "Rows", "Words for it")
    lines = [
        Line(
            [
                text_entry(one.label),
                number_entry(one.precision, ".1%"),
                number_entry(one.recall, ".1%"),
                number_entry(one.f1, ".1%"),
                number_entry(one.rows),
                text_entry(", ".join(one.words)),
            ]
        )
        for one in sorted(analysis.per_label, key=lambda label: label.f1)
    ]
    return Table("Labels of the test rows", [Head((name,), name not in (names[0], names[-1])) for name in names], lines)


def _tried_table(result: FitResult) -> Table:
    names = ("Student", "Bytes, about", "Epochs", f"{result.score_name} × 100, validation", "Seconds", "Note")
    packed = {size.model for size in result.sizes}
    lines = [
        Line(
            [
                text_entry(one.in_words),
                number_entry(one.candidate.bytes),
                number_entry(one.epochs),
                number_entry(one.score, ".1f", 0.01),
                number_entry(one.seconds, ".1f"),
                text_entry(one.note),
            ],
            "best" if f"{one.model}-packed" in packed else "",
        )
        for one in result.tried
    ]
    return Table("Students that were tried", [Head((name,), name not in ("Student", "Note")) for name in names], lines)


def _score_bars(result: FitResult) -> list[tuple[str, float, str]]:
    """Return name, share of the longest bar and text of a bar for each size and each baseline."""
    scores = [(f"{size.bytes:,} bytes: {size.student}", size.metrics) for size in result.sizes]
    scores += [(f"{one.name} ({one.details})", one.metrics) for one in result.baselines if one.metrics]
    return [(name, metrics[result.metric], f"{100 * metrics[result.metric]:.1f}") for name, metrics in scores]


def _time_bars(result: FitResult) -> list[tuple[str, float, str]]:
    """Return name, share of the time and text of a bar for each stage."""
    other = result.seconds - sum(result.stages.values())
    stages = {**result.stages, "reading, checks and the rest": max(0.0, other)}
    return [(name, seconds / result.seconds, f"{seconds:.0f} s") for name, seconds in stages.items()]


def _confused(confusion: dict[str, dict[str, int]]) -> list[tuple[str, list[tuple[str, int, float]]]]:
    """Return the rows of a confusion matrix: label, and for each answer its name, rows and share of the label's rows.

    Of many labels, those of the most frequent confusions are shown.
    """
    shown = list(confusion)
    if len(shown) > _LABELS:
        pairs = [(count, label, to) for label, row in confusion.items() for to, count in row.items() if to != label]
        most = dict.fromkeys(name for _, *names in sorted(pairs, key=lambda pair: -pair[0]) for name in names)
        shown = [label for label in confusion if label in list(most)[:_LABELS]]
    matrix = [(label, confusion[label], max(1, sum(confusion[label].values()))) for label in shown]
    return [(name, [(to, row.get(to, 0), row.get(to, 0) / total) for to in shown]) for name, row, total in matrix]


def _draw_curve(result: FitResult) -> Figure:
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
