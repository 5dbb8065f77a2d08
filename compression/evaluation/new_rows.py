"""Scores of a packed file on the rows of any file: what it says about its task is enough to read them."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from common.config import build
from common.data.readers.any_table import named_columns, read_any, table_notes, with_label_names
from common.data.readers.label_cells import (
    LABEL_COLUMNS,
    decimal_mark,
    label_counts,
    read_rows,
    with_lists,
    with_plain_numbers,
)
from common.data.readers.tables import read_source
from common.data.split import Split
from common.data.tasks import Source, Task, load_task
from common.data.text import normalise
from common.errors import UserError
from common.kinds.registry import KINDS, LABELS, MULTILABEL
from common.progress import say
from compression.evaluation.label_scores import METRICS_OF_LABELS, label_scores
from compression.evaluation.packed import file_of, load_packed
from compression.evaluation.packed_scores import check_task, packed_row
from compression.evaluation.settings import EvaluateSettings
from compression.runtime import Model, zoo_hint

_ANY_NUMBER = (-1e15, 1e15)


def score_new_rows(settings: EvaluateSettings, data: Path) -> dict[str, Any]:
    """Return a row of results.json for the rows of a file, with `per_label` if texts have labels.

    Raises UserError if the model is not a packed file, for a damaged file, and for rows that the task does not have,
    such as an unknown label, with their place.
    """
    path = file_of(settings.model_name)
    if path is None:
        hint = zoo_hint(settings.model_name)
        raise UserError(f"--data is for packed files: {settings.model_name} is not one, nor a name of the zoo{hint}")
    model = load_packed(path, settings.runtime)
    task = _task_of(model, path, settings, data)
    split = _read(settings, data, task)
    if task.range == _ANY_NUMBER:  # correlations do not depend on it, but rounding does
        task = task.model_copy(update={"range": (0.0, 1.0)})
    row, logits = packed_row(settings, path, model, task, data.name, split)
    row |= {"run": str(path), "data": split.fingerprint()}
    rows = np.flatnonzero(split.labelled)
    if 0 < len(rows) < len(split):
        say(f"Rows without a label, not scored: {len(split) - len(rows):,}.")
    if len(rows) and task.kind.has_classes and not task.kind.by_word:
        scores = label_scores(task, split.labels[rows], task.kind.choices(task, logits[rows]))
        row["per_label"] = [one.model_dump(exclude={"words"}) for one in scores]
    return row


def _read(settings: EvaluateSettings, data: Path, task: Task) -> Split:
    """Return the rows of the file. Tables are read as by `fit`."""
    if task.kind.files != "tables":
        return read_source(data, task)
    *texts, label = (task.columns[name] for name in ("sentence1", "sentence2", "label") if name in task.columns)
    columns = (*texts, *(settings.label or (label,)))
    table = read_any(data, 0, math.inf, header=settings.header, columns=columns, encoding=settings.encoding)
    if set(task.labels) & set(table.label_names.get(label, ())):
        table = with_label_names(table)
    if len(settings.label) > 1:
        without = {*map(normalise, task.values)} - {*named_columns(table, "--label", settings.label)}
        if without:
            raise UserError(f"--label: the model also answers {min(without)}; give the column of each of its labels")
        table = with_lists(table, settings.label)
    rows = read_rows(table, texts, label, task.kind.name, task.label_separator)
    for note in table_notes(table, texts):
        say(note)
    mark = decimal_mark(label_counts(rows)) if task.kind.is_scaled else None
    if mark:
        rows = with_plain_numbers(rows, mark)
    parse = task.kind.parser(task, [*map(normalise, task.values)])
    labels = task.kind.unknown_labels(len(rows), task.kind.shape(task))
    for index, row in enumerate(rows):
        try:
            if row[-1] is not None:
                labels[index] = parse(row[-1])
        except UserError as error:
            raise UserError(f"{data} row {index + 1}: {error}") from None
    first, *second, _ = map(list, zip(*rows, strict=True))
    return Split(first, second[0] if second else None, labels, np.arange(len(rows)), task.kind)


def _task_of(model: Model, path: Path, settings: EvaluateSettings, data: Path) -> Task:
    """Return the task of the rows: that of --task, or of the packed file."""
    several = len(settings.label) > 1
    if several and model.kind != MULTILABEL.name:
        raise UserError(f"{path} answers with {model.kind}: --label takes one column")
    named = {}
    if settings.label:
        named["label"] = LABEL_COLUMNS if several else settings.label[0]
    named |= {f"sentence{number}": column for number, column in enumerate(settings.text, 1)}
    if settings.text and len(settings.text) != 1 + model.pair:
        reads = "two texts" if model.pair else "one text"
        raise UserError(f"{path} reads {reads}, but --text has {len(settings.text)}")
    kind = KINDS[model.kind]
    if kind.files != "tables" and (named or not settings.header):
        flags = {"--label": settings.label, "--text": settings.text, "--no-header": not settings.header}
        flag = next(flag for flag, value in flags.items() if value)
        raise UserError(f"{flag} is for tables; {path} reads files of {kind.name}")
    source = Source(files={"test": str(data)}, encoding=settings.encoding)
    if settings.task:
        task = load_task(settings.task)
        check_task(model, task, path, settings.arch)
        return task.model_copy(update={"source": source, "columns": {"label": "label", **task.columns, **named}})
    values: dict[str, Any] = {"name": model.task, "kind": kind.name, "source": source}
    if kind.files == "tables":
        first = {"sentence1": "sentence1", "sentence2": "sentence2"} if model.pair else {"sentence1": "text"}
        values["columns"] = {**first, "label": "label", **named}
    if kind.is_scaled:
        values["range"] = _ANY_NUMBER
    else:
        values["labels"] = model.labels
    if kind == LABELS:
        values["metrics"] = METRICS_OF_LABELS
    if kind.always_pairs:
        values["unanswerable"] = model.threshold is not None
    return build(Task, values)
