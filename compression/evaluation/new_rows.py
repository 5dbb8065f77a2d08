"""Scores of a packed file on the rows of any file: what it says about its task is enough to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from common.config import build
from common.data.readers.tables import read_source
from common.data.tasks import Source, Task, load_task
from common.errors import UserError
from common.kinds.registry import KINDS, LABELS
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
    split = read_source(data, task)
    if task.range == _ANY_NUMBER:  # correlations do not depend on it, but rounding does
        task = task.model_copy(update={"range": (0.0, 1.0)})
    row, logits = packed_row(settings, path, model, task, data.name, split)
    row |= {"run": str(path), "data": split.fingerprint()}
    rows = np.flatnonzero(split.labelled)
    if len(rows) and task.kind.has_classes and not task.kind.by_word:
        scores = label_scores(task, split.labels[rows], task.kind.choices(task, logits[rows]))
        row["per_label"] = [one.model_dump(exclude={"words"}) for one in scores]
    return row


def _task_of(model: Model, path: Path, settings: EvaluateSettings, data: Path) -> Task:
    """Return the task of the rows: that of --task, or of the packed file."""
    named = {"label": settings.label} if settings.label else {}
    named |= {f"sentence{number}": column for number, column in enumerate(settings.text, 1)}
    if settings.text and len(settings.text) != 1 + model.pair:
        reads = "two texts" if model.pair else "one text"
        raise UserError(f"{path} reads {reads}, but --text has {len(settings.text)}")
    source = Source(files={"test": str(data)}, encoding=settings.encoding)
    if settings.task:
        task = load_task(settings.task)
        check_task(model, task, str(path), settings.arch)
        return task.model_copy(update={"source": source, "columns": {**task.columns, **named}})
    kind = KINDS[model.kind]
    values: dict[str, Any] = {"name": model.task, "kind": kind.name, "source": source}
    if kind.files == "tables":
        first = {"sentence1": "sentence1", "sentence2": "sentence2"} if model.pair else {"sentence1": "text"}
        values["columns"] = {**first, "label": "label", **named}
    elif named:
        raise UserError(f"--{'label' if settings.label else 'text'} is for tables; {path} reads files of {kind.name}")
    if kind.is_scaled:
        values["range"] = _ANY_NUMBER
    else:
        values["labels"] = model.labels
    if kind == LABELS:
        values["metrics"] = METRICS_OF_LABELS
    if kind.always_pairs:
        values["unanswerable"] = model.threshold is not None
    return build(Task, values)
