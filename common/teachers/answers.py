"""Reading of a file with any model's answers to texts: logits, probabilities or labels, matched by the rows' texts.

The columns of texts have the names of the task's files, or sentence1 and sentence2. Of several kinds of answers, the
first one is read: logits, probabilities (a column logit_LABEL or probability_LABEL for each label, or one object with
all labels), or a label. Predictions of predict.py are such files.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.data.readers.records import as_sentence
from common.data.readers.tables import as_label, column_names, known_kind, place, read_rows, text_columns
from common.data.split import Split
from common.data.tasks import Task
from common.data.text import normalise
from common.errors import UserError
from common.kinds.base import finite_numbers, index_of
from common.kinds.ragged import padded
from common.stopping import check

_MOST_LOGIT = float(np.finfo(np.float16).max)
LABEL_PREFIXES = {"logits": "logit_", "probabilities": "probability_"}
"""Column that has an object with all labels -> prefix of the columns of single labels."""
_SHOWN = 60

Reader = Callable[[list[Any]], np.ndarray]
"""Cells of a row's answer -> its logits, float32 [outputs], or for tokens [words, outputs]."""


def read_answers(path: Path, task: Task, rows: Split, name: str, partial: bool = False) -> np.ndarray:
    """Return the logits that a file gives for some rows, float32 [n, outputs], for tokens [n, words, outputs].

    name: the rows' name in messages; partial: rows without an answer get NaN (not for tokens). Raises UserError if the
    file cannot be read, if answers are not for the task's labels, not finite or not probabilities, if a text has
    different answers, or if a row has none.
    """
    kind = known_kind(path)
    header = column_names(path, kind)
    texts = list(text_columns(path, header, task).values())
    columns, read = answer_columns(path, header, task)
    index: dict[tuple[str, ...], int] = {}
    first = [index.setdefault(sentences, row) for row, sentences in enumerate(zip(*rows.sentences(), strict=True))]
    words = task.kind.word_counts(rows.sentence1, rows.sentence2)
    answers: dict[int, tuple[int, np.ndarray]] = {}
    for line, cells in read_rows(path, kind, [*texts, *columns]):
        check()
        try:
            sentences = tuple(as_sentence(cell) for cell in cells[: len(texts)])
            values = read(cells[len(texts) :])
            row = index.get(sentences)
            if row is None:
                continue
            if words is not None and len(values) != words[row]:
                raise UserError(f"{len(values)} tags for {words[row]} words")
            if row in answers and not np.array_equal(answers[row][1], values):
                raise UserError(f"the answer differs from that in {place(kind, answers[row][0])} for the same text")
            answers.setdefault(row, (line, values))
        except UserError as error:
            raise UserError(f"{path} {place(kind, line)}: {error}") from None
    missing = [row for row in first if row not in answers]
    if missing and not partial:
        text = " | ".join(column[missing[0]] for column in rows.sentences())
        raise UserError(
            f"{path}: no answer for {len(missing):,} of the {len(rows):,} rows of {name}, such as {text[:_SHOWN]!r}"
        )
    none = (0, np.full(task.outputs, np.nan, np.float32))
    values = [answers.get(row, none)[1] for row in first]
    return np.stack(values) if words is None else padded(np.concatenate(values), words)


def answer_columns(path: Path, header: Sequence[str], task: Task) -> tuple[list[str], Reader]:
    """Return the columns of the answers, and the function that reads them. Raises UserError."""
    prefixes = LABEL_PREFIXES if task.kind.has_probabilities else {}
    for whole, prefix in prefixes.items():
        convert = _from_logits if whole == "logits" else task.kind.from_probabilities
        if whole in header:
            return [whole], lambda cells, convert=convert: convert(finite_numbers(_of_object(cells[0], task.labels)))
        columns = [f"{prefix}{label}" for label in task.labels]
        present = [name for name in header if name.startswith(prefix)]
        if present:
            _check_columns(path, present, columns, task)
            return columns, lambda cells, convert=convert: convert(finite_numbers(cells))
    names = [task.kind.prediction, task.columns.get("label", "label"), "label"]
    for name in names:
        if name in header:
            return [name], _label_reader(task, name == names[0])
    expected = [*(f"{prefix}{task.labels[0]} ..." for prefix in prefixes.values()), *dict.fromkeys(names)]
    raise UserError(f"{path}: has no column of answers; expected {' or '.join(expected)}")


def _check_columns(path: Path, columns: Sequence[str], expected: Sequence[str], task: Task) -> None:
    """Raise UserError if a column belongs to no label, or if a label has none."""
    of_labels = f"{task.name} has the labels {', '.join(task.labels)}"
    for name in sorted(set(columns) - set(expected)):
        raise UserError(f"{path}: column {name!r} belongs to no label; {of_labels}")
    for name in sorted(set(expected) - set(columns)):
        raise UserError(f"{path}: column {name!r} is missing; {of_labels}")


def _of_object(cell: Any, labels: Sequence[str]) -> list[Any]:
    """Return the values of an object {label: value} in the labels' order. Raises UserError."""
    if not isinstance(cell, dict) or set(cell) != set(labels):
        raise UserError(f"expected an object with the keys {', '.join(labels)}, found {str(cell)[:_SHOWN]}")
    return [cell[label] for label in labels]


def _from_logits(values: np.ndarray) -> np.ndarray:
    if np.abs(values).max() > _MOST_LOGIT:
        raise UserError(f"a logit has magnitude {np.abs(values).max():g}; the limit is {_MOST_LOGIT:g}")
    return values.astype(np.float32)


def _label_reader(task: Task, predicted: bool) -> Reader:
    """Return a function that reads labels: names, as predict.py writes them, or, unless `predicted`, the task's values.

    The other form is also accepted if it is not ambiguous.
    """
    names, values = ({normalise(text): i for i, text in enumerate(texts)} for texts in (task.labels, task.values))
    index = {**values, **names} if predicted else {**names, **values}
    read = task.kind.answer_reader(task, lambda cell: index_of(as_label(cell), index), predicted)
    return lambda cells: read(cells[0])
