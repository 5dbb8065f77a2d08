"""Tables of all models scored on a split, with notes on how to read them, and tables of the data's labels."""

from __future__ import annotations

from collections.abc import Sequence

from common.tables import UNITS, human_bytes
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import quoted_shares
from compression.experiments.report.results import grouped
from compression.experiments.report.seed_groups import (
    GZIPPED,
    MEASURED,
    MILLISECONDS,
    PACKED,
    SeedGroup,
    SplitResults,
    Stat,
    mean,
)
from compression.experiments.report.speed_columns import (
    FASTER,
    HEADINGS,
    MEASURES,
    ratio_entry,
    speed_entry,
    speed_notes,
)
from compression.experiments.report.table import Entry, Head, Line, Table, number_entry, text_entry

TERMINAL_WIDTH = 110
TITLES = {
    "accuracy": "Accuracy",
    "agreement": "Agreement with teacher",
    "f1": "F1",
    "f1_at_threshold": "F1 at the threshold",
    "f1_micro": "F1 micro",
    "f1_macro": "F1 macro",
    "subset_accuracy": "Subset accuracy",
    "answer_f1": "Answer F1",
    "exact_match": "Exact match",
    "entity_f1": "Entity F1",
    "entity_precision": "Precision",
    "entity_recall": "Recall",
}
CORRELATIONS = {
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "agreement_pearson": "Pearson with teacher",
}
"""Titles of metrics in tables. Correlations are multiplied by 100; all other metrics are in percent."""
SELECTED_ON_TEST = "† These weights were selected on the test split, as in the thesis: their test scores are too high."


def metric_heading(name: str) -> str:
    """Return a metric's heading: 'accuracy' -> 'Accuracy, %', 'matthews' -> 'Matthews × 100'."""
    return f"{CORRELATIONS[name]} × 100" if name in CORRELATIONS else f"{TITLES.get(name, name)}, %"


def score_entry(score: Stat | None) -> Entry:
    """Return '79.25 ± 0.31 (4)': mean and sample standard deviation, both times 100, and number of seeds."""
    return Entry(f"{score.text} ({score.n})", score.mean) if score else text_entry(None)


def models_table(results: SplitResults, terminal: bool = False) -> Table:
    """Return a table with a line per seed group, without empty columns. terminal: use the narrower set of columns."""
    groups = results.groups
    teachers = {teacher.name for group in groups if (teacher := results.teacher_of(group))}
    only_teacher = teachers.pop() if len(teachers) == 1 else None
    of_teacher = "" if terminal else f" than {only_teacher or 'teacher'}"
    than = f"× smaller{of_teacher}"

    def ratio(group: SeedGroup, value: float | None) -> Entry:
        entry, teacher = ratio_entry(value), results.teacher_of(group)
        return entry if only_teacher or value is None or not teacher else Entry(f"{entry.text} ({teacher.name})", value)

    def smaller(field: str) -> list[Entry]:
        return [ratio(group, results.times_smaller(group, field)) for group in groups]

    packed = results.size_field == PACKED

    def size(field: str, unit: int = 1) -> list[Entry]:
        return [number_entry(group.size(field), ",.1f" if unit > 1 else ",.0f", unit) for group in groups]

    seconds = [mean((row.get("seconds") or {}).get("train") for row in group.rows) for group in groups]
    cells = any(group.rows[0].get("cell") for group in groups)  # names of cells include their training
    timed = any(group.speed(MILLISECONDS) for group in groups)
    wide = not terminal
    columns = [
        (True, "Model", [Entry(group.label, group.label) for group in groups]),
        (wide or not (cells or timed), "Trained on", [Entry(group.trained_on, group.trained_on) for group in groups]),
        (wide, "Stage", [text_entry(group.rows[0].get("stage")) for group in groups]),
        (True, "Parameters", size("parameters")),
        (wide, "Trained parameters", size("trained_parameters")),
        (wide, "Nonzero", size("nonzero_parameters")),
        (wide, "bytes_model, KB", size("bytes_model", 1000)),
        (wide or not packed, "bytes_gzip, KB", size(GZIPPED, 1000)),
        (wide or packed, "bytes_packed, KB", size(PACKED, 1000)),
        *((True, metric_heading(name), [score_entry(g.metric(name)) for g in groups]) for name in results.metrics),
        (wide, "ECE, %", [score_entry(group.calibration_error) for group in groups]),
        (wide, "ECE before calibration, %", [score_entry(group.before_calibration) for group in groups]),
        (wide, "Training, s", [number_entry(value, ",.1f") for value in seconds]),
        (wide, than, smaller("bytes_model")),
        (wide or not packed, than if terminal else f"gzipped, {than}", smaller(GZIPPED)),
        (wide or packed, than if terminal else f"packed, {than}", smaller(PACKED)),
        *(
            (wide or name == MILLISECONDS, title, [speed_entry(name, group.speed(name)) for group in groups])
            for name, (title, _) in MEASURES.items()
        ),
        (True, f"{HEADINGS[FASTER]}{of_teacher}", [ratio(group, results.times_faster(group)) for group in groups]),
    ]
    shown = [
        (name, entries) for applies, name, entries in columns if applies and any(e.sort is not None for e in entries)
    ]
    heads = [Head((name,), numeric=name not in ("Model", "Trained on", "Stage")) for name, _ in shown]
    kinds = ["teacher" if group.is_teacher else "best" if group is results.best_student else "" for group in groups]
    lines = [Line(entries, kind) for kind, *entries in zip(kinds, *(of for _, of in shown), strict=True)]
    return Table(f"Models on {results.task}, {results.split}", heads, lines)


def notes(splits: Sequence[SplitResults], terminal: bool = False) -> list[str]:
    """Return notes on how to read the tables of models, one or two sentences each; empty without a table.

    terminal: return the notes of the narrower tables.
    """
    groups = [group for results in splits for group in results.groups]
    metrics = {name for results in splits for name in results.metrics}
    known = [
        (
            splits,
            "Scores are means over seeds ± the sample standard deviation (n − 1), "
            "with the number of seeds in brackets.",
        ),
        (splits, f"bytes_model is the weights file, bytes_gzip that file gzipped. {UNITS}"),
        (
            any(results.size_field == PACKED for results in splits),
            "bytes_packed is the packed file, with everything that a prediction needs.",
        ),
        (
            metrics & set(CORRELATIONS),
            "Matthews, Pearson and Spearman are correlations, here times 100 as GLUE reports them.",
        ),
        (
            "f1_at_threshold" in metrics,
            "F1 at the threshold: the second label is predicted from the probability that was best on validation.",
        ),
        (
            metrics & {"agreement", "agreement_pearson"},
            "Rows without labels are scored by agreement with the teacher only.",
        ),
        (
            not terminal and any(group.calibration_error for group in groups),
            "ECE, the expected calibration error, is the mean absolute difference between probability and accuracy "
            "(Guo et al., 2017; 15 bins). Students use the temperature of their packed files; teachers have none.",
        ),
        (
            any(results.best_on_validation for results in splits),
            "The best student is the one with the highest validation score.",
        ),
        (
            any(group.is_teacher for group in groups),
            "Times smaller: the teacher's bytes_model divided by the model's bytes_model, "
            "by its bytes_packed, and (the thesis's measure) by its bytes_gzip.",
        ),
        (any(group.selected_on_test for group in groups), SELECTED_ON_TEST),
    ]
    return [note for applies, note in known if applies] + speed_notes(row for group in groups for row in group.rows)


def summary(results: SplitResults) -> str:
    """Return a sentence on the best student and its teacher; it says if the student was not chosen on validation."""
    best = results.best_student
    if best is None:
        return "No student was scored."
    metric = results.metrics[0]
    title = CORRELATIONS.get(metric) or TITLES.get(metric, metric)
    unit = "" if metric in CORRELATIONS else " %"

    def shown(group: SeedGroup) -> str:
        score = group.metric(metric)
        return f"{100 * score.mean:.2f}{unit}" if score else ""

    field = results.size_field if best.size(results.size_field) else GZIPPED
    size, teacher = best.size(field), results.teacher_of(best)
    title = title.lower() if metric in ("accuracy", "agreement") else title
    how = "" if results.best_on_validation else f" (highest on {results.split})"
    text = f"Best student{how}: {best.label}, {title} {shown(best)}"
    text += f", {human_bytes(size)} {MEASURED[field]}" if size else ""
    if teacher and (ratio := results.times_smaller(best, field)):
        has = f" has {shown(teacher)} in" if shown(teacher) else " takes"
        text += f"; its teacher {teacher.name}{has} {human_bytes(teacher.size('bytes_model') or 0)}"
        text += f", {ratio:,.0f} times as much"
    return text + "."


def label_tables(record: ExperimentRecord) -> list[Table]:
    """Return tables of each task's label shares, in percent, with those of the thesis (table B.1) if it is quoted."""
    tables = []
    for task, counted in grouped(record.labels, lambda shares: shares.task).items():
        labels = list(dict.fromkeys(label for shares in counted for label in shares.shares))
        quotes = record.quote is not None and record.quote.task in (None, task)
        quoted = {"train": quoted_shares(task, False), "augmented": quoted_shares(task, True)} if quotes else {}
        theirs = [quoted.get(shares.rows, {}) for shares in counted]
        shown = [label for label in labels if any(label in quoted_of_rows for quoted_of_rows in theirs)]
        heads = [Head(("Rows",), numeric=False), Head(("Count",)), *(Head((f"{label}, %",)) for label in labels)]
        heads += [Head((f"{label}, %, thesis (quoted)",), quoted=True) for label in shown]
        compared = any(shares.agreement is not None for shares in counted)
        heads += [Head(("Agreement with source label, %",))] if compared else []
        lines = []
        for shares, quoted_of_rows in zip(counted, theirs, strict=True):
            entries = [number_entry(shares.shares.get(label), ".2%") for label in labels]
            entries += [number_entry(quoted_of_rows.get(label), ".1%") for label in shown]
            entries += [number_entry(shares.agreement, ".2%")] if compared else []
            lines.append(Line([text_entry(shares.rows), number_entry(shares.count), *entries]))
        tables.append(Table(f"{task}, labels", heads, lines))
    return tables
