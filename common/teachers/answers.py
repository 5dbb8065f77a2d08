"""Answers of any model to texts, in a user's file: a row's logits, probabilities or label, matched by the row's text.

The texts have the columns of the task's files, or sentence1 and sentence2. The first kind of answer that the file has
is read: logits, probabilities (either a column logit_LABEL or probability_LABEL for each label, or one object with all
labels), or a label. Predictions of predict.py are such files.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.config import nearest
from common.data.ragged import count_words, padded
from common.data.readers.records import as_sentence
from common.data.readers.tables import TABLES, as_label, column_names, read_rows, text_columns
from common.data.split import Split
from common.data.tasks import JOINED_BY, Task
from common.data.text import normalise
from common.errors import UserError
from common.reading import regular_file
from common.stopping import check

LEAST = 1e-3
"""Least probability of a label, so that its logit is finite; a label without a probability counts as 1."""
_TOLERANCE = 0.01
"""How far the sum of probabilities may differ from 1: they may be rounded."""
_MOST_LOGIT = float(np.finfo(np.float16).max)
_KINDS = {"logit": "logits", "probability": "probabilities"}
"""Prefix of the columns of single labels -> name of the column that has an object with all labels."""
_SHOWN = 60

Reader = Callable[[list[Any]], np.ndarray]
"""Cells of a row's answer -> its logits, float32 [outputs], or for tokens [words, outputs]."""


def read_answers(path: Path, task: Task, rows: Split, name: str) -> np.ndarray:
    """Return the logits that a file gives for some rows, float32 [n, outputs], for tokens [n, words, outputs].

    name: the rows' name in messages. Raises UserError if the file cannot be read, if answers are not for the task's
    labels, not finite or not probabilities, if a text has different answers, or if a row has none.
    """
    kind = regular_file(path).suffix.lower()
    if kind not in TABLES:
        raise UserError(f"{path}: unknown kind of file; save it as one of {', '.join(TABLES)} (UTF-8)")
    header = column_names(path, kind)
    texts = list(text_columns(path, header, task).values())
    answers, read = _answer_columns(path, header, task)
    index: dict[tuple[str, ...], int] = {}
    first = [index.setdefault(sentences, row) for row, sentences in enumerate(zip(*rows.sentences(), strict=True))]
    words = count_words(rows.sentence1) if task.tokens else None
    found: dict[int, tuple[int, np.ndarray]] = {}
    for line, cells in read_rows(path, kind, [*texts, *answers]):
        check()
        try:
            sentences = tuple(as_sentence(cell) for cell in cells[: len(texts)])
            values = read(cells[len(texts) :])
            row = index.get(sentences)
            if row is None:
                continue
            if words is not None and len(values) != words[row]:
                raise UserError(f"{len(values)} tags for {words[row]} words")
            if row in found and not np.array_equal(found[row][1], values):
                raise UserError(f"the answer differs from that in {_place(kind, found[row][0])} for the same text")
            found.setdefault(row, (line, values))
        except UserError as error:
            raise UserError(f"{path} {_place(kind, line)}: {error}") from None
    if missing := [row for row in first if row not in found]:
        text = " | ".join(column[missing[0]] for column in rows.sentences())
        raise UserError(
            f"{path}: no answer for {len(missing):,} of the {len(rows):,} rows of {name}, such as {text[:_SHOWN]!r}"
        )
    values = [found[row][1] for row in first]
    return np.stack(values) if words is None else padded(np.concatenate(values), words)


def _place(kind: str, line: int) -> str:
    return f"{'row' if kind == '.parquet' else 'line'} {line}"


def _answer_columns(path: Path, header: Sequence[str], task: Task) -> tuple[list[str], Reader]:
    """Return the columns of the answers, and the function that reads them. Raises UserError."""
    for prefix, whole in _KINDS.items() if task.labels and not task.tokens else ():
        convert = _from_logits if prefix == "logit" else _multilabel if task.multilabel else _from_probabilities
        if whole in header:
            return [whole], lambda cells, convert=convert: convert(_numbers(_of_object(cells[0], task.labels)))
        columns = {f"{prefix}_{label}" for label in task.labels}
        given = [name for name in header if name.startswith(f"{prefix}_")]
        if given and set(given) != columns:
            wrong = [*sorted(set(given) - columns), *sorted(columns - set(given))][0]
            problem = "belongs to no label" if wrong in given else "is missing"
            raise UserError(f"{path}: column {wrong!r} {problem}; {task.name} has the labels {', '.join(task.labels)}")
        if given:
            ordered = [f"{prefix}_{label}" for label in task.labels]
            return ordered, lambda cells, convert=convert: convert(_numbers(cells))
    predicted = f"predicted_{'tags' if task.tokens else 'score' if task.regression else 'label'}"
    names = [predicted + "s" * task.multilabel, task.columns.get("label", "label"), "label"]
    for name in names:
        if name in header:
            return [name], _label_reader(task, name == names[0])
    wanted = (
        [] if task.tokens or task.regression else [f"logit_{task.labels[0]} ...", f"probability_{task.labels[0]} ..."]
    )
    raise UserError(f"{path}: has no column of answers; expected {' or '.join([*wanted, *dict.fromkeys(names)])}")


def _of_object(cell: Any, labels: Sequence[str]) -> list[Any]:
    """Return the values of an object {label: value} in the labels' order. Raises UserError."""
    if not isinstance(cell, dict) or set(cell) != set(labels):
        raise UserError(f"expected an object with the keys {', '.join(labels)}, found {str(cell)[:_SHOWN]}")
    return [cell[label] for label in labels]


def _numbers(cells: Sequence[Any]) -> np.ndarray:
    """Return cells as numbers, float64 [n]. Raises UserError for one that is not a finite number."""
    values = []
    for cell in cells:
        try:
            value = math.nan if isinstance(cell, bool) else float(cell)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"not a number: {str(cell)[:_SHOWN]!r}")
        values.append(value)
    return np.array(values)


def _from_logits(values: np.ndarray) -> np.ndarray:
    if np.abs(values).max() > _MOST_LOGIT:
        raise UserError(f"a logit has magnitude {np.abs(values).max():g}; the limit is {_MOST_LOGIT:g}")
    return values.astype(np.float32)


def _from_probabilities(values: np.ndarray) -> np.ndarray:
    """Return logits with a mean of 0, whose softmax is the probabilities, each at least about LEAST."""
    _check_probabilities(values)
    if abs(values.sum() - 1) > _TOLERANCE:
        raise UserError(f"the probabilities sum to {values.sum():.4g}, not to 1")
    logits = np.log(np.maximum(values, LEAST))
    return (logits - logits.mean()).astype(np.float32)


def _multilabel(values: np.ndarray) -> np.ndarray:
    """Return logits whose sigmoid is the probabilities, each from LEAST to 1 - LEAST."""
    _check_probabilities(values)
    values = values.clip(LEAST, 1 - LEAST)
    return np.log(values / (1 - values)).astype(np.float32)


def _check_probabilities(values: np.ndarray) -> None:
    wrong = values[(values < 0) | (values > 1)]
    if len(wrong):
        raise UserError(f"{wrong[0]:g} is not a probability")


def _label_reader(task: Task, predicted: bool) -> Reader:
    """Return a function that reads labels: names, as predict.py writes them, or, unless `predicted`, the task's values.

    The other form is also accepted if it is not ambiguous.
    """
    low, high = task.range or (0.0, 0.0)
    names, values = ({normalise(text): i for i, text in enumerate(texts)} for texts in (task.labels, task.values))
    index = {**values, **names} if predicted else {**names, **values}

    def of(cell: Any) -> int:
        text = as_label(cell)
        if text not in index:
            raise UserError(
                f"unknown label {text[:80]!r}; expected {', '.join(task.labels)[:500]}{nearest(text, index)}"
            )
        return index[text]

    def score(cells: list[Any]) -> np.ndarray:
        value = _numbers(cells)
        if not predicted and not low <= value[0] <= high:
            raise UserError(f"{value[0]:g} is not a number from {low:g} to {high:g}")
        return ((value - low) / (high - low)).astype(np.float32)

    def several(cells: list[Any]) -> np.ndarray:
        between = JOINED_BY if predicted else task.label_separator
        chosen = np.zeros(len(task.labels))
        chosen[[of(each) for each in _items(cells[0], between)]] = 1
        return _multilabel(chosen)

    def tags(cells: list[Any]) -> np.ndarray:
        return np.array([certain[of(each)] for each in _items(cells[0], " ")]).reshape(-1, len(task.labels))

    if task.regression:
        return score
    if task.multilabel:
        return several
    certain = [_from_probabilities(row) for row in np.eye(len(task.labels))]
    return tags if task.tokens else lambda cells: certain[of(cells[0])]


def _items(cell: Any, between: str) -> list[Any]:
    """Return the items of a list, or of a text with a separator between them."""
    if isinstance(cell, str):
        return cell.split(between) if cell.strip() else []
    if not isinstance(cell, list):
        raise UserError(f"expected a list, found {str(cell)[:_SHOWN]!r}")
    return cell
