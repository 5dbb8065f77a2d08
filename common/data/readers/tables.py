"""Readers of task files: tables, and text files with one sentence per line.

The suffix selects the format. .csv: cells may be quoted, quotes in them doubled; .tsv: as GLUE's, quotes are text and
no cell holds a tab or a newline; .jsonl: one JSON object per line; .parquet; .txt: one sentence per line, no label.
Several labels of a row are a list or, in .csv and .tsv files, one cell with a separator between the labels. Files of
tagged words are read by common.data.readers.tagged and files of questions by common.data.readers.questions, whatever
their suffix.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.config import nearest
from common.data.readers.questions import questions_split
from common.data.readers.records import as_sentence, column_indices, read_csv, read_jsonl, read_lines, read_tsv
from common.data.readers.tagged import tagged_split
from common.data.split import Split
from common.data.tasks import Task
from common.data.text import normalise
from common.errors import UserError
from common.reading import regular_file, unreadable
from common.stopping import check

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
"""Suffixes of files whose columns have names."""
SUFFIXES = (*TABLES, ".txt")
JOINED_SUFFIXES = (".csv", ".tsv")
"""Suffixes of files in which several labels of a row are one text, with a separator between them."""

Rows = Iterator[tuple[int, list[Any]]]
"""(number of the line or row, values of the requested columns): text, a number, true or false, None, or a list."""


def read_source(path: Path, task: Task, labelled: bool = True) -> Split:
    """Return the rows of one file of a task. labelled: whether to read the label column.

    All rows are kept in order, including empty sentences; blank lines are not rows. Raises UserError with path and line
    (for Parquet: row) for a damaged, empty or unknown kind of file, a missing column, a row with too few or too many
    cells, wrong encoding, a value that is not text, and an unknown label.
    """
    regular_file(path)
    if task.tokens:
        with path.open("rb") as file:
            return tagged_split(path, read_lines(file, str(path)), dict(zip(task.values, task.labels, strict=True)))
    if task.spans:
        return questions_split(path, task.unanswerable, labelled)
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(f"{path}: unknown kind of file; save it as one of {', '.join(SUFFIXES)} (UTF-8)")
    if kind == ".txt" and task.pair:
        raise UserError(f"{path}: a .txt file has one sentence per line, but the task is on pairs of sentences")
    names = {name: column for name, column in task.columns.items() if labelled or name != "label"}
    columns, where = ({"sentence1": ""}, {}) if kind == ".txt" else (names, task.source.where)
    sentences: dict[str, list[str]] = {name: [] for name in columns if name != "label"}
    read_label = _list_reader(task, kind in JOINED_SUFFIXES) if task.multilabel else _label_reader(task)
    labels, rows = [], []
    for number, (line, cells) in enumerate(read_rows(path, kind, [*columns.values(), *where], task.source.header)):
        check()
        try:
            if any(as_label(cell) != value for cell, value in zip(cells[len(columns) :], where.values(), strict=True)):
                continue
            values = dict(zip(columns, cells, strict=False))
            for name, texts in sentences.items():
                texts.append(as_sentence(values[name]))
            labels.append(read_label(values["label"]) if "label" in values else _unknown(task))
        except UserError as error:
            raise UserError(f"{path} {'row' if kind == '.parquet' else 'line'} {line}: {error}") from None
        rows.append(number)
    if not rows:
        raise UserError(f"{path}: no rows of data")
    return Split(
        sentences["sentence1"],
        sentences.get("sentence2"),
        np.array(labels, np.float32 if task.regression or task.multilabel else np.int64),
        np.array(rows, np.int64),
    )


def _unknown(task: Task) -> float | np.ndarray:
    """Return the value that stands for a missing label."""
    if task.multilabel:
        return np.full(len(task.labels), np.nan, np.float32)
    return math.nan if task.regression else -1


def as_label(value: Any) -> str:
    """Return a label as text: "true" for True, "" for a gap, and "1" for 1.0, as in columns of numbers with gaps."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return normalise(str(value))
    raise UserError(f"a label is of type {type(value).__name__}, not text or a number ({str(value)[:40]})")


def as_labels(value: Any, separator: str | None) -> list[str]:
    """Return the labels of a row as text.

    separator: between the labels of a text, which is empty if there are none; None if the file has lists. Raises
    UserError if the value is not a list.
    """
    if separator is not None:
        value = value.split(separator) if value.strip() else []
    if not isinstance(value, list):
        kind = f"of type {type(value).__name__}, not a list ({str(value)[:40]})"
        raise UserError(f"the labels are {kind}; [] means that a row has no labels, null that they are unknown")
    return list(map(as_label, value))


def _label_reader(task: Task) -> Callable[[Any], float]:
    """Return a function from a label's cell to a class index or a score; only the user's own files may lack labels."""
    index = _indices(task)
    low, high = task.range or (0.0, 0.0)
    expected = f"a number from {low:g} to {high:g}" if task.regression else _listed(index)

    def read(cell: Any) -> float:
        text = as_label(cell)
        if text in index:
            return index[text]
        if not text and task.source.kind == "files":
            return _unknown(task)
        with contextlib.suppress(ValueError):
            if task.regression and low <= float(text) <= high:
                return float(text)
        raise UserError(f"unknown label {text[:80]!r}; expected {expected}{nearest(text[:80], index)}")

    return read


def _list_reader(task: Task, joined: bool) -> Callable[[Any], np.ndarray]:
    """Return a function from a row's labels to float32 [labels]: 1 for each label of the row, 0 for the others.

    joined: whether the labels are one text, empty if there are none; else they are a list, or None if unknown.
    """
    index, separator = _indices(task), task.label_separator if joined else None

    def read(cell: Any) -> np.ndarray:
        if cell is None and task.source.kind == "files":
            return _unknown(task)
        row = np.zeros(len(index), np.float32)
        for text in as_labels(cell, separator):
            if text not in index:
                near = nearest(text[:80], index)
                raise UserError(f"unknown label {text[:80]!r}; expected labels among {_listed(index)}{near}")
            if row[index[text]]:
                raise UserError(f"label {text!r} is repeated")
            row[index[text]] = 1
        return row

    return read


def _indices(task: Task) -> dict[str, int]:
    """Return a label's value in the files -> its class index."""
    return {normalise(value): i for i, value in enumerate(task.values)}


def _listed(values: Iterable[str]) -> str:
    """Return the first ten values, joined by commas."""
    values = list(values)
    return ", ".join([*values[:10], *(["..."] if len(values) > 10 else [])])


def column_names(path: Path, kind: str) -> list[str]:
    """Return a table's columns; for .jsonl, the keys of the first object. Raises UserError as `read_source` does."""
    if kind == ".parquet":
        with _parquet(path) as file:
            return file.schema_arrow.names
    with path.open("rb") as file:
        lines = read_lines(file, str(path))
        if kind == ".jsonl":
            return list(next(read_jsonl(lines, str(path), []), (1, {}))[1])
        return (read_csv if kind == ".csv" else read_tsv)(lines, str(path)).header


def text_columns(path: Path, header: Sequence[str], task: Task) -> dict[str, str]:
    """Return field -> column of the sentences: the name given by the task or, if the header lacks it, the field's own.

    Raises UserError if a column is missing.
    """
    columns = {}
    for field in ("sentence1", "sentence2")[: 1 + task.pair]:
        names = [name for name in (task.columns[field], field) if name in header]
        if not names:
            shown, wanted = ", ".join(header)[:500] or "an empty file", task.columns[field]
            raise UserError(f"{path}: no column {wanted!r} of texts (found {shown}){nearest(wanted, header)}")
        columns[field] = names[0]
    return columns


def read_rows(path: Path, kind: str, columns: list[str], header: tuple[str, ...] = ()) -> Rows:
    """Yield the columns' values of each row. header: names of the columns of a file without a header line.

    Raises UserError as `read_source` does.
    """
    if kind == ".parquet":
        yield from _parquet_rows(path, columns)
        return
    with path.open("rb") as file:
        lines = read_lines(file, str(path))
        if kind == ".txt":
            yield from ((number, [text]) for number, text in lines if text.strip())
        elif kind == ".jsonl":
            for number, values in read_jsonl(lines, str(path), columns):
                yield number, [values[column] for column in columns]
        else:
            table = (read_csv if kind == ".csv" else read_tsv)(lines, str(path), header)
            indices = column_indices(f"{path} line 1", table.header, columns)
            for line, cells in table.rows:
                yield line, [cells[index] for index in indices]


def _parquet_rows(path: Path, columns: list[str]) -> Rows:
    with _parquet(path) as file:
        column_indices(str(path), file.schema_arrow.names, columns)
        number = 0
        for batch in file.iter_batches(4096, columns=list(dict.fromkeys(columns))):
            for cells in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                number += 1
                yield number, list(cells)


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Yield an open Parquet file; errors while it is read become UserErrors."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
