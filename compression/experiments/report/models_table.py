"""Tables of all models scored on a split, with notes on how to read them, and tables of the data's labels."""

from __future__ import annotations

import dataclasses
import functools

from common.tables import UNITS, human_bytes
from compression.experiments.report.columns import (
    CORRELATIONS,
    Column,
    columns_of,
    compared_text,
    metric_title,
    notes_of,
)
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import quoted_shares
from compression.experiments.report.results import grouped
from compression.experiments.report.seed_groups import GZIPPED, MEASURED, MILLISECONDS, PACKED, SeedGroup, SplitResults
from compression.experiments.report.table import Entry, Head, Table, number_entry, table_of, text_entry

TERMINAL_WIDTH = 110
SELECTED_ON_TEST = "† These weights were selected on the test split, as in the thesis: their test scores are too high."


def models_table(results: SplitResults, terminal: bool = False) -> Table:
    """Return a table with a line per seed group, without empty columns. terminal: use the narrower set of columns."""
    names = {teacher.name for group in results.groups if (teacher := results.teacher_of(group))}
    than = "" if terminal else f" than {next(iter(names)) if len(names) == 1 else 'teacher'}"
    columns = columns_of("terminal" if terminal else "models", results.metrics)
    if terminal:  # a table with the other size, and in a sweep, whose names say it, with the training, is too wide
        other = GZIPPED if results.size_field == PACKED else PACKED
        left_out = [other, f"{other}_times_smaller"]
        if any(group.first.get("cell") or group.mean("speed", MILLISECONDS) for group in results.groups):
            left_out.append("trained_on")
        columns = [column for column in columns if column.name not in left_out]

    def entry(column: Column, group: SeedGroup) -> Entry:
        teacher = results.teacher_of(group)
        shown = column.entry(group, teacher)
        named = "{than}" in column.heading and len(names) > 1 and shown.value is not None
        return Entry(f"{shown.text} ({teacher.name})", shown.value) if named else shown

    def kind(group: SeedGroup) -> str:
        return "teacher" if group.is_teacher else "best" if group is results.best_student else ""

    heads = [Head((column.heading.replace("{than}", than),), column.numeric, name=column.name) for column in columns]
    entries = [functools.partial(entry, column) for column in columns]
    table = table_of(results.heading, zip(heads, entries, strict=True), results.groups, kind)
    notes = [
        "Scores are means over seeds ± the sample standard deviation (n − 1), with the number of seeds in brackets. "
        f"{UNITS}"
    ]
    if results.best_on_validation:
        notes.append("The best student is the one with the highest validation score.")
    if any(group.selected_on_test for group in results.groups):
        notes.append(SELECTED_ON_TEST)
    shown = {head.name for head in table.heads}
    rows = (row for group in results.groups for row in group.rows)
    notes += notes_of((column for column in columns if column.name in shown), rows)
    return dataclasses.replace(table, notes=dict.fromkeys(notes, ""))


def summary(results: SplitResults) -> str:
    """Return a sentence on the best student and its teacher; it says if the student was not chosen on validation."""
    best = results.best_student
    if best is None:
        return "No student was scored."
    metric = results.metrics[0]

    def shown(group: SeedGroup) -> str:
        score = group.metric(metric)
        return f"{100 * score.mean:.2f}{'' if metric in CORRELATIONS else ' %'}" if score else ""

    field = results.size_field if best.mean(results.size_field) else GZIPPED
    size, teacher = best.mean(field), results.teacher_of(best)
    title = metric_title(metric).lower() if metric in ("accuracy", "agreement") else metric_title(metric)
    how = "" if results.best_on_validation else f" (highest on {results.split})"
    text = f"Best student{how}: {best.label}, {title} {shown(best)}"
    text += f", {human_bytes(size)} {MEASURED[field]}" if size else ""
    if teacher and (ratio := best.times_smaller(field, teacher)):
        has = f" has {shown(teacher)} in" if shown(teacher) else " takes"
        text += f"; its teacher {teacher.name}{has} {human_bytes(teacher.mean('bytes_model'))}"
        text += f": the student is {compared_text(ratio)}"
    return text + "."


def label_tables(record: ExperimentRecord) -> list[Table]:
    """Return tables of each task's label shares, in percent, with those of the thesis (table B.1) if it is quoted."""
    tables = []
    for task, counted in grouped(record.labels, lambda shares: shares.task).items():
        labels = list(dict.fromkeys(label for shares in counted for label in shares.shares))
        quotes = record.quote is not None and record.quote.task in (None, task)
        quoted = {"train": quoted_shares(task, False), "augmented": quoted_shares(task, True)} if quotes else {}
        columns = [
            (Head(("Rows",), numeric=False), lambda rows: text_entry(rows.rows)),
            (Head(("Count",)), lambda rows: number_entry(rows.count)),
        ]
        for label in labels:
            columns.append((Head((f"{label}, %",)), lambda rows, of=label: number_entry(rows.shares.get(of), ".2%")))
        for label in labels:
            shares = {rows: of_rows.get(label) for rows, of_rows in quoted.items()}
            head = Head((f"{label}, %, thesis (quoted)",), group="quoted")
            columns.append((head, lambda rows, of=shares: number_entry(of.get(rows.rows), ".1%")))
        agreement = Head(("Agreement with source label, %",))
        columns.append((agreement, lambda rows: number_entry(rows.agreement, ".2%")))
        tables.append(table_of(f"{task}, labels", columns, counted))
    return tables
