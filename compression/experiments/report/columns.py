"""The columns of results, and tables of models and labels.

A new measurement is one more record in COLUMNS, and every table and file has it.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from common.data.report import SHOWN_LABELS
from common.tables import UNITS, human_bytes
from compression.evaluation.rows import Row
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import quoted_shares
from compression.experiments.report.results import (
    DASH,
    ECE_BEFORE,
    GZIPPED,
    MEASURED,
    MILLISECONDS,
    PACKED,
    SeedGroup,
    SplitResults,
    Stat,
    field,
    grouped,
)
from compression.experiments.report.table import Entry, Head, Table, Value, number_column, table_of, text_column

TERMINAL_WIDTH = 110
SELECTED_ON_TEST = "† These weights were selected on the test split, as in the thesis: their test scores are too high."
CORRELATIONS = ("matthews", "pearson", "spearman", "agreement_pearson")
"""Metrics that tables show times 100; all others are in percent."""
_TITLES = {
    "agreement": "Agreement with teacher",
    "agreement_pearson": "Pearson with teacher",
    "f1_at_threshold": "F1 at the threshold",
}
_AGREEMENT = "Rows without labels are scored by agreement with the teacher only."
_METRIC_NOTES = {
    **dict.fromkeys(
        CORRELATIONS, "Matthews, Pearson and Spearman are correlations, here times 100 as GLUE reports them."
    ),
    "f1_at_threshold": "F1 at the threshold: the second label is predicted from the probability that was best on "
    "validation.",
    "agreement": _AGREEMENT,
    "agreement_pearson": f"{_AGREEMENT} Pearson's correlation is times 100.",
}
_RUNTIMES = {
    "numpy": "packed files by the NumPy runtime",
    "c": "packed files by the C runtime",
    "pytorch": "teachers by PyTorch",
}


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of results.

    name: in CSV files. heading: {than} stands for the teacher that a ratio is to; empty: only CSV files have the
    column. value: of a seed group and its teachers, None if unknown. text: shows a known value. tables: those with the
    column: of models, of models on a terminal, of means ("pivot"; "printed": where the thesis has figures), of the best
    students, and of a task's models by size (docs/results). note: how to read it; {by} stands for the runtimes that
    were timed.
    """

    name: str
    heading: str
    value: Callable[[SeedGroup, SeedGroup | None], Value]
    text: Callable[[Any], str] = str
    tables: tuple[str, ...] = ("models", "terminal", "pivot", "best")
    note: str = ""
    numeric: bool = True

    def entry(self, group: SeedGroup, teacher: SeedGroup | None) -> Entry:
        """Return the column's entry of a seed group. teacher: the seed group of its teachers."""
        return self.shown(self.value(group, teacher))

    def shown(self, value: Value) -> Entry:
        """Return an entry with a value."""
        return Entry(DASH if value is None else self.text(value), value)


def metric_heading(name: str) -> str:
    """Return a metric's heading: 'accuracy' -> 'Accuracy, %', 'matthews' -> 'Matthews × 100'."""
    return f"{metric_title(name)} × 100" if name in CORRELATIONS else f"{metric_title(name)}, %"


def metric_title(name: str) -> str:
    """Return a metric's name in sentences: 'f1_macro' -> 'F1 macro'."""
    words = name.replace("_", " ").replace("f1", "F1")
    return _TITLES.get(name, words[:1].upper() + words[1:])


def metric_column(name: str) -> Column:
    """Return the column of a metric."""
    note, tables = _METRIC_NOTES.get(name, ""), ("models", "terminal")
    return Column(name, metric_heading(name), lambda group, _: group.metric(name), score_text, tables, note)


def score_text(score: Stat) -> str:
    """Return '79.25 ± 0.31 (4)': mean and sample standard deviation, both times 100, and number of seeds."""
    return f"{score.text} ({score.n})"


def ratio_text(value: float) -> str:
    """Return how many times faster, or smaller, a model is than its teacher."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def compared_text(ratio: float, less: str = "smaller", more: str = "larger") -> str:
    """Return '1,800 times smaller', or '3.2 times larger' for a ratio below 1."""
    return f"{ratio_text(ratio)} times {less}" if ratio >= 1 else f"{ratio_text(1 / ratio)} times {more}"


def notes_of(columns: Iterable[Column], rows: Iterable[Row]) -> Iterator[str]:
    """Yield the notes of columns, one or two sentences each. rows: rows of results.json behind the columns."""
    runtimes = {field(row, "speed", "runtime") for row in rows}
    by = ", ".join(text for name, text in _RUNTIMES.items() if name in runtimes)
    for note in dict.fromkeys(column.note for column in columns if column.note):
        yield note.replace("{by}", by)


def _three_digits(value: float, unit: float = 1) -> str:
    digits = sum(value / unit < limit for limit in (99.5, 9.95, 0.995, 0.0995))
    return f"{value / unit:,.{digits}f}"


_kilo = functools.partial(_three_digits, unit=1000)


def _megabytes(value: float) -> str:
    megabytes = value / 1e6
    if megabytes < 10:
        return f"{megabytes:.3f}"
    return f"{megabytes:.1f}" if megabytes < 1000 else f"{megabytes:,.0f}"


def _size(name: str, heading: str, *tables: str, unit: int = 1, note: str = "") -> Column:
    """Return the column of a count or size of results.json. tables: with it, besides those of models."""
    text = "{:,.0f}".format if unit == 1 else lambda value: f"{value / unit:,.1f}"
    return Column(name, heading, lambda group, _: group.mean(name), text, ("models", *tables), note)


def _smaller(size: str, heading: str, *tables: str) -> Column:
    name, heading, tables = f"{size}_times_smaller", f"{heading}× smaller{{than}}", ("models", *tables)
    return Column(name, heading, lambda group, of: group.times_smaller(of, size), ratio_text, tables, _ABOUT_SMALLER)


def _speed(name: str, heading: str, note: str, *tables: str, unit: float = 1) -> Column:
    text, tables = functools.partial(_three_digits, unit=unit), ("models", "pivot", "by_size", *tables)
    return Column(name, heading, lambda group, _: group.mean("speed", name), text, tables, note)


_ABOUT_FILES = "bytes_model is the weights file, bytes_gzip that file gzipped."
_ABOUT_PACKED = "bytes_packed is the packed file, with everything that a prediction needs."
_ABOUT_SIZE = (
    "Size: of the weights file; in a table with pruned or quantized students, gzipped for all students, as in the "
    f"thesis. {UNITS}"
)
_ABOUT_RATIO = "× smaller: than the teacher's weights. The thesis's ratios are computed from its printed sizes."
_ABOUT_SMALLER = (
    "Times smaller: the teacher's bytes_model divided by the model's bytes_model, by its bytes_packed, and (the "
    "thesis's measure) by its bytes_gzip."
)
_ABOUT_ECE = (
    "ECE, the expected calibration error, is the mean absolute difference between probability and accuracy (Guo et "
    "al., 2017; 15 bins). Students use the temperature of their packed files; teachers have none."
)
_ABOUT_SPEED = (
    "Speeds are of CPU time on one thread, tokenizing included ({by}): sentences a second of up to 1,000 rows "
    "together, and the median milliseconds of 100 rows one by one."
)
_ABOUT_JOULES = "The energy of training is what the machine counts, or seconds times a given power (watts)."
_ABOUT_ENERGY = (
    "Energy is the mean of up to 1,000 rows: what the machine counts, or CPU time times a given power (watts)."
)
_ABOUT_MEMORY = "Peak memory is what loading the packed file and answering add to a process with the runtime."
_ABOUT_FLOPS = "FLOPs are of an average row: two for each multiply-add of matrix products, and nothing else."
_ABOUT_FASTER = "Times faster: the teacher's milliseconds for one divided by the model's."
_MODELS, _ALL_MODELS, _MEANS = ("models",), ("models", "terminal"), ("pivot", "printed")
_TIMED = ("models", "terminal", "pivot", "by_size")
METRICS = "metrics"
"""Name of the record in COLUMNS in whose place a table has the columns of its metrics."""
COLUMNS = [
    Column("model", "Model", lambda group, _: group.label, tables=_ALL_MODELS, numeric=False),
    Column("trained_on", "Trained on", lambda group, _: group.trained_on, tables=_ALL_MODELS, numeric=False),
    Column("stage", "Stage", lambda group, _: group.first["stage"], tables=_MODELS, numeric=False),
    _size("parameters", "Parameters", "terminal", "pivot"),
    _size("trained_parameters", "Trained parameters"),
    _size("nonzero_parameters", "Nonzero"),
    _size("bytes_model", "bytes_model, KB", unit=1000, note=_ABOUT_FILES),
    _size(GZIPPED, "bytes_gzip, KB", "terminal", unit=1000, note=_ABOUT_FILES),
    _size(PACKED, "bytes_packed, KB", "terminal", unit=1000, note=_ABOUT_PACKED),
    Column("bytes", "Size, MB", lambda group, _: group.mean(group.disk_field), _megabytes, _MEANS, _ABOUT_SIZE),
    Column("bytes_of", "", lambda group, _: group.disk_field, tables=("pivot",)),
    Column("times_smaller", "× smaller", SeedGroup.times_smaller, ratio_text, _MEANS, _ABOUT_RATIO),
    Column(METRICS, "", lambda group, _: None, tables=_ALL_MODELS),
    Column("ece", "ECE, %", lambda group, _: group.stat("ece"), score_text, _MODELS, _ABOUT_ECE),
    Column("ece_before", "ECE before calibration, %", lambda group, _: group.stat(*ECE_BEFORE), score_text, _MODELS),
    Column("seconds", "Training, s", lambda group, _: group.mean("seconds", "train"), "{:,.1f}".format, _MODELS),
    Column("joules", "Training, kJ", lambda group, _: group.mean("joules", "train"), _kilo, _MODELS, _ABOUT_JOULES),
    _smaller("bytes_model", ""),
    _smaller(GZIPPED, "gzipped, ", "terminal"),
    _smaller(PACKED, "packed, ", "terminal"),
    _speed("sentences_per_second", "Sentences/s", _ABOUT_SPEED),
    _speed(MILLISECONDS, "ms for one", _ABOUT_SPEED, "terminal", "best"),
    _speed("joules_for_one", "mJ for one", _ABOUT_ENERGY, unit=1e-3),
    _speed("peak_memory", "Peak memory, MB", _ABOUT_MEMORY, unit=1e6),
    _speed("flops", "MFLOPs for one", _ABOUT_FLOPS, unit=1e6),
    Column("times_faster", "× faster{than}", SeedGroup.times_faster, ratio_text, _TIMED, _ABOUT_FASTER),
]
"""All columns, in the order of the tables."""


def columns_of(table: str, metrics: Iterable[str] = ()) -> list[Column]:
    """Return the columns of a kind of table (see `Column.tables`), those of metrics included."""
    columns = []
    for column in COLUMNS:
        if table in column.tables:
            columns += map(metric_column, metrics) if column.name == METRICS else [column]
    return columns


def models_table(results: SplitResults, terminal: bool = False) -> Table:
    """Return a table with a line per seed group, without empty columns. terminal: use the narrower set of columns."""
    names = {teacher.name for group in results.groups if (teacher := results.teacher_of(group))}
    the_teacher = next(iter(names)) if len(names) == 1 else "teacher"
    than = "" if terminal else f" than {the_teacher}"
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
        if group is results.best_student:
            return "best"
        return "teacher" if group.is_teacher else ""

    heads = [Head((column.heading.replace("{than}", than),), column.numeric, name=column.name) for column in columns]
    entries = [functools.partial(entry, column) for column in columns]
    table = table_of(results.heading, zip(heads, entries, strict=True), results.groups, kind)
    means = "Scores are means over seeds ± the sample standard deviation (n − 1), with the number of seeds in brackets."
    notes = [f"{means} {UNITS}"]
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
    unit = "" if metric in CORRELATIONS else " %"

    def shown(group: SeedGroup) -> str:
        score = group.metric(metric)
        return f"{100 * score.mean:.2f}{unit}" if score else ""

    measured = results.size_field if best.mean(results.size_field) else GZIPPED
    size, teacher = best.mean(measured), results.teacher_of(best)
    title = metric_title(metric).lower() if metric in ("accuracy", "agreement") else metric_title(metric)
    how = "" if results.best_on_validation else f" (highest on {results.split})"
    text = f"Best student{how}: {best.label}, {title} {shown(best)}"
    text += f", {human_bytes(size)} {MEASURED[measured]}" if size else ""
    if teacher and (ratio := best.times_smaller(teacher, measured)):
        has = f" has {shown(teacher)} in" if shown(teacher) else " takes"
        text += f"; its teacher {teacher.name}{has} {human_bytes(teacher.mean('bytes_model'))}"
        text += f": the student is {compared_text(ratio)}"
    return text + "."


def label_tables(record: ExperimentRecord) -> list[Table]:
    """Return tables of each task's label shares, in percent, with those of the thesis (table B.1) if it is quoted.

    A line for each label, one for those beyond SHOWN_LABELS together, and one for the agreement of augmented rows with
    the label of the row that they were made from; a column for each set of rows.
    """
    tables = []
    for task, counted in grouped(record.labels, lambda shares: shares.task).items():
        labels = list(dict.fromkeys(label for shares in counted for label in shares.shares))
        others = labels[SHOWN_LABELS:]
        rest, agreement = f"{len(others)} other labels", "agreement with source label"
        quotes = record.quote is not None and record.quote.task in (None, task)
        quoted = {"train": quoted_shares(task, False), "augmented": quoted_shares(task, True)} if quotes else {}
        columns = [text_column("Label", str)]
        for shares in counted:
            by_label: dict[str, float | None] = {**shares.shares, agreement: shares.agreement}
            by_label[rest] = sum(shares.shares.get(label, 0.0) for label in others)
            columns.append(number_column(f"{shares.rows} ({shares.count:,} rows), %", by_label.get, ".2%"))
        for name, of_thesis in quoted.items():
            columns.append(number_column(f"{name}, %, thesis (quoted)", of_thesis.get, ".1%", group="quoted"))
        lines = labels[:SHOWN_LABELS] + [rest] * bool(others)
        lines += [agreement] * any(shares.agreement is not None for shares in counted)
        tables.append(table_of(f"{task}, labels", columns, lines))
    return tables
