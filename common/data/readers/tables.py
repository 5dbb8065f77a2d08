"""The reader of tables, one of text files.

The suffix selects the format. .csv: cells may be quoted, quotes in them doubled; .tsv: as GLUE's, quotes are text
and no cell holds a tab or a newline; .jsonl: one JSON object a line; .parquet; .txt: one sentence a line, no label.
Files of tagged words are read by common.data.readers.tagged, whatever their suffix.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.config import nearest
from common.data.readers.cells import as_sentence, places
from common.data.readers.records import Lines, Table, read_csv, read_jsonl, read_lines, read_tsv
from common.data.readers.tagged import tagged_split
from common.data.split import Split
from common.data.tasks import Task
from common.data.text import normalise
from common.errors import UserError

Rows = Iterator[tuple[int, list[Any]]]
"""Number of the line or row, and the values of the requested columns: text, a number, true or false, or None."""


def read_source(path: Path, task: Task, labelled: bool = True) -> Split:
    """Return the rows of one file of a task; of a file that is not `labelled` the label column, if any, is not read.

    All rows are kept in order, empty sentences too; blank lines are not rows. Raises UserError with path and line (of
    Parquet: row) for a missing, damaged, empty or unknown kind of file, a missing column, a row with too few or too
    many cells, wrong encoding, a value that is not text, and an unknown label.
    """
    kind = _kind(path)
    if task.tokens:
        with _lines(path) as lines:
            return tagged_split(path, lines, dict(zip(task.values, task.labels, strict=True)))
    if kind not in _READERS:
        raise UserError(f"{path}: unknown kind of file; save it as one of {', '.join(_READERS)} (UTF-8)")
    columns = _columns(path, task, labelled)
    where = {} if kind == ".txt" else task.source.where
    sentences: dict[str, list[str]] = {name: [] for name in columns if name != "label"}
    read_label = _label_reader(task)
    labels, rows = [], []
    for number, (line, cells) in enumerate(_READERS[kind](path, [*columns.values(), *where], task.source.header)):
        try:
            if any(_plain(cell) != value for cell, value in zip(cells[len(columns) :], where.values(), strict=True)):
                continue
            # Columns of the task come first in cells, in the order of `columns`.
            for name, cell in zip(columns, cells, strict=False):
                if name == "label":
                    labels.append(read_label(_plain(cell)))
                else:
                    sentences[name].append(as_sentence(cell))
        except UserError as error:
            raise UserError(f"{path} {_unit(path)} {line}: {error}") from None
        rows.append(number)
    if not rows:
        raise UserError(f"{path}: no rows of data")
    unknown = math.nan if task.regression else -1
    return Split(
        sentences["sentence1"],
        sentences.get("sentence2"),
        np.array(labels if "label" in columns else [unknown] * len(rows), np.float32 if task.regression else np.int64),
        np.array(rows, np.int64),
    )


def _columns(path: Path, task: Task, labelled: bool) -> dict[str, str]:
    """Return our columns that the file holds, and the file's names for them."""
    if _kind(path) != ".txt":
        return {name: column for name, column in task.columns.items() if labelled or name != "label"}
    if task.pair:
        raise UserError(f"{path}: a .txt file holds one sentence a line, and the task is one of pairs")
    return {"sentence1": "the line"}


def _kind(path: Path) -> str:
    return path.suffix.lower()


def _unit(path: Path) -> str:
    return "row" if _kind(path) == ".parquet" else "line"


def _plain(value: Any) -> str:
    """Return a label as text: true for True; 1 for 1.0, as columns of numbers with gaps have it; "" for a gap."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return normalise(str(value))
    raise UserError(f"a label is of type {type(value).__name__}, not text or a number ({str(value)[:40]})")


def _label_reader(task: Task) -> Callable[[str], float]:
    """Return a function from a label's text to a class index or a score; only the user's own files may lack it."""
    index = {normalise(value): i for i, value in enumerate(task.values)}
    gaps = task.source.kind == "files"

    def read_class(text: str) -> float:
        if text in index:
            return index[text]
        if not text and gaps:
            return -1
        expected = ", ".join([*list(index)[:10], *(["..."] if len(index) > 10 else [])])
        raise UserError(f"unknown label {text[:80]!r}; expected {expected}{nearest(text[:80], index)}")

    def read_score(text: str) -> float:
        low, high = task.range or (0.0, 0.0)
        if not text and gaps:
            return math.nan
        with contextlib.suppress(ValueError):
            if low <= float(text) <= high:
                return float(text)
        raise UserError(f"unknown label {text[:80]!r}; expected a number from {low:g} to {high:g}")

    return read_score if task.regression else read_class


def _csv_rows(path: Path, columns: list[str], header: tuple[str, ...]) -> Rows:
    with _lines(path) as lines:
        yield from _chosen(read_csv(lines, str(path), header), path, columns)


def _tsv_rows(path: Path, columns: list[str], header: tuple[str, ...]) -> Rows:
    with _lines(path) as lines:
        yield from _chosen(read_tsv(lines, str(path), header), path, columns)


def _chosen(table: Table, path: Path, columns: list[str]) -> Rows:
    """The rows of a table with only the cells of `columns`."""
    indices = places(f"{path} line 1", table.header, columns)
    for line, cells in table.rows:
        yield line, [cells[index] for index in indices]


def _jsonl_rows(path: Path, columns: list[str], header: tuple[str, ...]) -> Rows:
    with _lines(path) as lines:
        for number, values in read_jsonl(lines, str(path), columns):
            yield number, [values[column] for column in columns]


def _parquet_rows(path: Path, columns: list[str], header: tuple[str, ...]) -> Rows:
    try:
        with pq.ParquetFile(path) as file:
            places(str(path), file.schema_arrow.names, columns)
            number = 0
            for batch in file.iter_batches(4096, columns=list(dict.fromkeys(columns))):
                for cells in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                    number += 1
                    yield number, list(cells)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged, or not a Parquet file ({str(error).splitlines()[0]})") from error


def _text_rows(path: Path, columns: list[str], header: tuple[str, ...]) -> Rows:
    with _lines(path) as lines:
        yield from ((number, [text]) for number, text in lines if text.strip())


_READERS: dict[str, Callable[[Path, list[str], tuple[str, ...]], Rows]] = {
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".jsonl": _jsonl_rows,
    ".parquet": _parquet_rows,
    ".txt": _text_rows,
}
"""Suffix -> reader(path, columns wanted, header of files without one)."""


@contextlib.contextmanager
def _lines(path: Path) -> Iterator[Lines]:
    """The numbered lines of a file."""
    try:
        with path.open("rb") as file:
            yield read_lines(file, str(path))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
