"""Answers of the user's own model, such as a language model, to the texts of a file: a teacher of the fit.

If no row of the file has a label, the answers are the labels. This module imports no heavy library.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data.tasks import Task
from common.errors import UserError
from common.kinds.base import finite_numbers
from common.store.files import whole_file
from common.teachers.answers import answer_columns
from compression.experiments.fit.contents.detect import FileContents

ANSWERS_FILE = "answers.parquet"
_LEAST_KNOWN = 0.5
"""Probability that the task's labels must have together; other labels' probabilities are left out."""


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
    write_answers(path, task, list(logits), np.stack(list(logits.values())))
    notes = [f"{answers.where} has a teacher's answers to {len(logits):,} of {len(texts):,} texts (--teacher-column)."]
    if errors:
        notes.append(f"{answers.where}: unusable answers left out: {len(errors):,} ({errors[0]}).")
    if answers.are_labels:
        notes.append("No row has a label (--label): the teacher's answers are the labels.")
    return notes


def write_answers(path: Path, task: Task, texts: Sequence[tuple[str, ...]], logits: np.ndarray) -> None:
    """Write answers to texts as a file for `read_answers`. logits: float32 [texts, outputs]."""
    columns = zip(("sentence1", "sentence2"), zip(*texts, strict=True), strict=False)
    table = {task.columns[field]: pa.array(column, pa.string()) for field, column in columns}
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
