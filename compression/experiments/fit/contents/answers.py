"""Answers of the user's own model, such as a language model, to the texts of a file: a teacher of the fit.

If no row of the file has a label, the answers are the labels. This module imports no heavy library.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data.readers.any_table import Table, named_columns, read_any, with_label_names
from common.data.readers.records import as_sentence, is_empty, is_missing
from common.data.readers.tables import as_label
from common.data.tasks import Task
from common.errors import UserError
from common.kinds.base import finite_numbers
from common.store.files import whole_file
from common.teachers.answers import LABEL_PREFIXES, answer_columns
from compression.experiments.fit.contents.detect import LABEL_NAMES, Answers, FileContents, guess_label, text_columns
from compression.experiments.fit.settings import FitSettings

ANSWERS_FILE = "answers.parquet"
_LEAST_KNOWN = 0.5
"""Probability that the task's labels must have together; other labels' probabilities are left out."""
_LABELS = ("predicted_label", "predicted_labels", "predicted_score", *LABEL_NAMES)


def with_answers(table: Table, settings: FitSettings) -> tuple[Table, FitSettings, Answers | None]:
    """Return the table without a column of answers, its settings, and the answers; None without flags of a teacher.

    If no row has a label, the table has the answers as labels. Raises UserError if the answers fit no row, or if it is
    not clear where they are.
    """
    if not settings.has_answers:
        return table, settings, None
    source = table
    if settings.teacher_file:
        source = with_label_names(read_any(settings.teacher_file, settings.seed, encoding=settings.encoding))
    asked = None
    if settings.teacher_column:
        (asked,) = named_columns(source, "--teacher-column", [settings.teacher_column])
    if source is table:
        table = _without(table, asked)
    texts = text_columns(table, settings)
    keys = texts if set(texts) <= set(source.header) else (_id_column(table, source, texts),)
    column, form, cells = _answer_cells(source, asked, {*keys, *table.header})
    by_key: dict[tuple[str, ...], Any] = {}
    for key, cell in zip(_keys(source, keys), cells, strict=True):
        if not is_empty(cell):
            by_key.setdefault(key, cell)
    rows, row_keys = _keys(table, texts), _keys(table, keys)
    by_text = {row: by_key[key] for row, key in zip(rows, row_keys, strict=True) if all(row) and key in by_key}
    if not by_text:
        raise UserError(f"{source.path}: no answer is to a row of {table.path} (compared by {', '.join(keys)})")
    answers = Answers(f"{source.path.name}: column {column!r}", form, by_text, not _has_labels(table, settings, texts))
    if answers.are_labels:
        label = settings.label[0] if settings.label else LABEL_NAMES[0]
        settings = settings.model_copy(update={"label": (label,), "text": texts})
        table = _without(table, label)
        labels = [_as_label(by_text.get(row), form, settings.kind) for row in rows]
        labelled = [[*row, cell] for row, cell in zip(table.rows, labels, strict=True)]
        table = dataclasses.replace(table, header=[*table.header, label], rows=labelled)
    return table, settings, answers


def _answer_cells(source: Table, column: str | None, others: set[str]) -> tuple[str, str, list[Any]]:
    """Return the column of answers, their form, and each row's answer. others: columns of other contents."""
    new = [name for name in source.header if name and name not in others]
    likely = [name for name in (*LABEL_PREFIXES, *_LABELS) if name in source.header] or (new if len(new) == 1 else [])
    for form, prefix in LABEL_PREFIXES.items():
        names = [name for name in source.header if name.startswith(prefix)]
        if names and not column and form not in likely:
            rows = zip(*map(source.column, names), strict=True)
            labels = [name.removeprefix(prefix) for name in names]
            objects = [None if all(map(is_empty, cells)) else dict(zip(labels, cells, strict=True)) for cells in rows]
            return f"{prefix}...", form, objects
    if not column and not likely:
        listed = ", ".join(source.header)[:500]
        raise UserError(f"{source.path}: give the column of answers with --teacher-column (columns: {listed})")
    column = column or likely[0]
    cells = source.column(column)
    if any(isinstance(cell, dict) for cell in cells):
        return column, column if column in LABEL_PREFIXES else "probabilities", cells
    return column, "label", cells


def _id_column(table: Table, source: Table, texts: Sequence[str]) -> str:
    """Return a column of both tables with another value in each row of the first, preferably one called id."""
    shared = [name for name in table.header if name in source.header and name not in texts]
    for name in sorted(shared, key=lambda name: not name.lower().endswith("id")):
        if len({str(cell) for cell in table.column(name) if not is_missing(cell)}) == len(table.rows):
            return name
    listed = ", ".join(source.header)[:500]
    raise UserError(f"{source.path}: needs texts ({', '.join(texts)}) or an id that {table.path} has (found {listed})")


def _keys(table: Table, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the texts, or the id, of every row."""
    keys = []
    for number, row in enumerate(zip(*map(table.column, columns), strict=True), 1):
        try:
            keys.append(tuple(as_sentence(cell) if isinstance(cell, str) else as_label(cell) for cell in row))
        except UserError as error:
            raise UserError(f"{table.path} row {number}: {error}") from None
    return keys


def _has_labels(table: Table, settings: FitSettings, texts: tuple[str, ...]) -> bool:
    """Return whether a row has a label. A column that differs in every row is not one of labels."""
    if len(settings.label) > 1:
        return True
    if settings.label:
        label = settings.label[0]
        if label not in table.header:  # that of the test file, or of the answers; else an error, which `detect` raises
            return settings.test is None and label != settings.teacher_column
    else:
        try:
            label = guess_label(table, texts)
        except UserError:  # no column is likely
            return False
    cells = [str(cell) for cell in table.column(label) if not is_empty(cell)]
    return bool(cells) and (label in (*settings.label, *LABEL_NAMES) or len(set(cells)) < len(cells))


def _without(table: Table, column: str) -> Table:
    names = [name for name in table.header if name != column]
    rows = map(list, zip(*map(table.column, names), strict=True))
    return dataclasses.replace(table, header=names, rows=list(rows))


def _as_label(answer: Any, form: str, kind: str) -> Any:
    """Return an answer as a label, or for --kind multilabel a list of labels; None if it is not usable."""
    if form == "label" or not isinstance(answer, dict):
        return answer
    try:
        known = {name: value for name, value in answer.items() if not is_missing(value)}
        values = dict(zip(known, finite_numbers(list(known.values())), strict=True))
    except UserError:
        return None
    if kind == "multilabel":
        return [name for name, value in values.items() if value >= (0 if form == "logits" else 0.5)]
    return max(values, key=values.get, default=None)


def save_answers(path: Path, contents: FileContents, task: Task) -> list[str]:
    """Write the usable answers to a task's rows. Returns notes. Raises UserError, with a reason, if none is usable."""
    answers = contents.answers
    if task.kind.by_word:
        raise UserError(f"{answers.where}: answers are for whole texts, not for tags or questions")
    _, read = answer_columns(path, [task.kind.prediction if answers.form == "label" else answers.form], task)
    texts = dict.fromkeys(row[:-1] for row in contents.values)
    logits, errors = {}, []
    for text in filter(answers.by_text.__contains__, texts):
        try:
            logits[text] = read([_with_labels(answers.by_text[text], answers.form, task)])
        except UserError as error:
            errors.append(str(error))
    if not logits:
        raise UserError(f"{answers.where}: no answer is usable ({errors[0] if errors else 'their rows are left out'})")
    write_answers(path, task, logits)
    notes = [f"{answers.where} has a teacher's answers to {len(logits):,} of {len(texts):,} texts (--teacher-column)."]
    if errors:
        notes.append(f"{answers.where}: unusable answers left out: {len(errors):,} ({errors[0]}).")
    if answers.are_labels:
        notes.append("No row has a label (--label): the teacher's answers are the labels.")
    return notes


def write_answers(path: Path, task: Task, answers: Mapping[tuple[str, ...], np.ndarray]) -> None:
    """Write the answers to texts as a file for `read_answers`. answers: the texts of a row -> float32 [outputs]."""
    columns = zip(("sentence1", "sentence2"), zip(*answers, strict=True), strict=False)
    table = {task.columns[field]: pa.array(column, pa.string()) for field, column in columns}
    logits = np.stack(list(answers.values()))
    if task.kind.has_probabilities:
        table |= {f"logit_{label}": logits[:, output] for output, label in enumerate(task.labels)}
    else:
        low, high = task.range
        table[task.kind.prediction] = low + (high - low) * logits[:, 0].astype(float)
    with whole_file(path) as partial:
        pq.write_table(pa.table(table), partial, compression="zstd")


def _with_labels(answer: Any, form: str, task: Task) -> Any:
    """Return an answer with exactly the task's labels: others may have been left out."""
    if form != "probabilities" or not isinstance(answer, dict):
        return {label: answer.get(label) for label in task.labels} if isinstance(answer, dict) else answer
    values = finite_numbers([answer.get(label) or 0 for label in task.labels])
    known = 1.0 if task.kind.independent else values.sum()
    return dict(zip(task.labels, values / known if _LEAST_KNOWN <= known <= 1 else values, strict=True))
