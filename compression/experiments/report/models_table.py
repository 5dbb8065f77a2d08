"""Tables of all models scored on a split, with notes on how to read them, and tables of the data's labels."""

from __future__ import annotations

from collections.abc import Iterator

from common.tables import UNITS, human_bytes
from compression.experiments.report.columns import CORRELATIONS, columns_of, compared_text, metric_title, notes_of
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import quoted_shares
from compression.experiments.report.results import grouped
from compression.experiments.report.seed_groups import GZIPPED, MEASURED, MILLISECONDS, PACKED, SeedGroup, SplitResults
from compression.experiments.report.table import Entry, Head, Line, Table, number_entry, text_entry

TERMINAL_WIDTH = 110
SELECTED_ON_TEST = "† These weights were selected on the test split, as in the thesis: their test scores are too high."


def models_table(results: SplitResults, terminal: bool = False) -> Table:
    """Return a table with a line per seed group, without empty columns. terminal: use the narrower set of columns."""
    pairs = [(group, results.teacher_of(group)) for group in results.groups]
    names = {teacher.name for _, teacher in pairs if teacher}
    than = "" if terminal else f" than {next(iter(names)) if len(names) == 1 else 'teacher'}"
    left_out = _left_out(results) if terminal else ()
    shown, by_column = [], []
    for column in columns_of("terminal" if terminal else "models", results.metrics):
        entries = [column.entry(*pair) for pair in pairs]
        if column.name in left_out or all(entry.value is None for entry in entries):
            continue
        if "{than}" in column.heading and len(names) > 1:
            entries = [_with_teacher(entry, teacher) for entry, (_, teacher) in zip(entries, pairs, strict=True)]
        shown.append(column)
        by_column.append(entries)
    kinds = ["teacher" if g.is_teacher else "best" if g is results.best_student else "" for g in results.groups]
    return Table(
        title=results.heading,
        heads=[Head((column.heading.replace("{than}", than),), numeric=column.numeric) for column in shown],
        lines=[Line(entries, kind) for kind, *entries in zip(kinds, *by_column, strict=True)],
        notes=dict.fromkeys(
            [*_notes(results), *notes_of(shown, (row for group in results.groups for row in group.rows))], ""
        ),
    )


def _left_out(results: SplitResults) -> tuple[str, ...]:
    """Return the columns without which a table is narrow enough for a terminal."""
    other = GZIPPED if results.size_field == PACKED else PACKED
    cells = any(group.rows[0].get("cell") for group in results.groups)  # names of cells include their training
    timed = any(group.mean("speed", MILLISECONDS) for group in results.groups)
    return (other, f"{other}_times_smaller", *(("trained_on",) if cells or timed else ()))


def _with_teacher(entry: Entry, teacher: SeedGroup | None) -> Entry:
    return Entry(f"{entry.text} ({teacher.name})", entry.value) if teacher and entry.value is not None else entry


def _notes(results: SplitResults) -> Iterator[str]:
    """Yield notes on how to read a table of models that are not about a single column."""
    yield (
        "Scores are means over seeds ± the sample standard deviation (n − 1), with the number of seeds in brackets. "
        f"{UNITS}"
    )
    if results.best_on_validation:
        yield "The best student is the one with the highest validation score."
    if any(group.selected_on_test for group in results.groups):
        yield SELECTED_ON_TEST


def summary(results: SplitResults) -> str:
    """Return a sentence on the best student and its teacher; it says if the student was not chosen on validation."""
    best = results.best_student
    if best is None:
        return "No student was scored."
    metric = results.metrics[0]
    title = metric_title(metric)
    unit = "" if metric in CORRELATIONS else " %"

    def shown(group: SeedGroup) -> str:
        score = group.metric(metric)
        return f"{100 * score.mean:.2f}{unit}" if score else ""

    field = results.size_field if best.mean(results.size_field) else GZIPPED
    size, teacher = best.mean(field), results.teacher_of(best)
    title = title.lower() if metric in ("accuracy", "agreement") else title
    how = "" if results.best_on_validation else f" (highest on {results.split})"
    text = f"Best student{how}: {best.label}, {title} {shown(best)}"
    text += f", {human_bytes(size)} {MEASURED[field]}" if size else ""
    if teacher and (ratio := best.times_smaller(field, teacher)):
        has = f" has {shown(teacher)} in" if shown(teacher) else " takes"
        text += f"; its teacher {teacher.name}{has} {human_bytes(teacher.mean('bytes_model') or 0)}"
        text += f": the student is {compared_text(ratio)}"
    return text + "."


def label_tables(record: ExperimentRecord) -> list[Table]:
    """Return tables of each task's label shares, in percent, with those of the thesis (table B.1) if it is quoted."""
    tables = []
    for task, counted in grouped(record.labels, lambda shares: shares.task).items():
        labels = list(dict.fromkeys(label for shares in counted for label in shares.shares))
        quotes = record.quote is not None and record.quote.task in (None, task)
        quoted = {"train": quoted_shares(task, False), "augmented": quoted_shares(task, True)} if quotes else {}
        heads = [Head(("Rows",), numeric=False), Head(("Count",)), *(Head((f"{label}, %",)) for label in labels)]
        heads += [Head((f"{label}, %, thesis (quoted)",), group="quoted") for label in labels]
        heads.append(Head(("Agreement with source label, %",)))
        lines = []
        for shares in counted:
            entries = [text_entry(shares.rows), number_entry(shares.count)]
            entries += [number_entry(shares.shares.get(label), ".2%") for label in labels]
            entries += [number_entry(quoted.get(shares.rows, {}).get(label), ".1%") for label in labels]
            lines.append(Line([*entries, number_entry(shares.agreement, ".2%")]))
        tables.append(Table(f"{task}, labels", heads, lines).with_values())
    return tables
