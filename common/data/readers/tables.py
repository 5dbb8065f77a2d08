"""Readers of task files: tables, and text files with one sentence per line.

The suffix selects the format. .csv: cells may be quoted, quotes in them doubled; .tsv: the same if all cells of a
column are quoted, else and in GLUE's files quotes are text and no cell holds a tab or a newline; .jsonl and .json: one
JSON object per line, or one array of them; .parquet; .txt: one sentence per line, no label.
Several labels of a row are a list or, in .csv and .tsv files, one cell with a separator between the labels. Files of
tagged words are read by common.data.readers.tagged and files of questions by common.data.readers.questions, whatever
their suffix.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.config import nearest
from common.data.readers.questions import questions_split
from common.data.readers.records import (
    MAX_CHARACTERS,
    as_sentence,
    checked_text,
    column_indices,
    is_missing,
    kind_of,
    read_jsonl,
    read_lines,
    read_table,
)
from common.data.readers.tagged import tagged_split
from common.data.split import Split
from common.data.tasks import Task
from common.data.text import normalise
from common.errors import UserError
from common.progress import say
from common.reading import UTF_8, regular_file, unreadable
from common.stopping import check

TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
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
    return READERS[task.kind.files](path, task, labelled)


def _read_table(path: Path, task: Task, labelled: bool) -> Split:
    suffix = known_kind(path, SUFFIXES)
    if suffix == ".txt" and task.pair:
        raise UserError(f"{path}: a .txt file has one sentence per line, but the task is on pairs of sentences")
    names = {name: column for name, column in task.columns.items() if labelled or name != "label"}
    columns, where = names, task.source.where
    if suffix == ".txt":
        columns, where = {"sentence1": ""}, {}
    sentences: dict[str, list[str]] = {name: [] for name in columns if name != "label"}
    unknown = task.kind.unknown_labels(1, task.kind.shape(task))[0]
    read_label = _label_reader(task, unknown, task.label_separator if suffix in JOINED_SUFFIXES else None)
    labels, rows = [], []
    cut = 0
    source = task.source
    asked = [*columns.values(), *where]
    records = read_rows(path, suffix, asked, source.header, source.kind != "files", source.encoding)
    for number, (line, cells) in enumerate(records):
        check()
        try:
            if any(as_label(cell) != value for cell, value in zip(cells[len(columns) :], where.values(), strict=True)):
                continue
            values = dict(zip(columns, cells, strict=False))
            for name, texts in sentences.items():
                texts.append(as_sentence(values[name]))
                cut += isinstance(values[name], str) and len(values[name]) > MAX_CHARACTERS
            labels.append(read_label(values["label"]) if "label" in values else unknown)
        except UserError as error:
            raise UserError(f"{path} {place(suffix, line)}: {error}") from None
        rows.append(number)
    if not rows:
        raise UserError(f"{path}: no rows of data")
    if cut:
        say(f"{path}: {too_long(cut)}")
    return Split(
        sentences["sentence1"],
        sentences.get("sentence2"),
        np.array(labels, task.kind.dtype),
        np.array(rows, np.int64),
        task.kind,
    )


READERS: dict[str, Callable[[Path, Task, bool], Split]] = {
    "tables": _read_table,
    "tagged": tagged_split,
    "questions": questions_split,
}
"""Form of a kind's files -> function from a file, its task, and whether labels are read, to its rows."""


def known_kind(path: Path, known: Sequence[str] = TABLES) -> str:
    """Return a file's kind, as `kind_of`. Raises UserError if there is no such file, or if its kind is not known."""
    kind = kind_of(regular_file(path))
    if kind not in known:
        raise UserError(f"{path}: unknown kind of file; save it as one of {', '.join(known)} (UTF-8)")
    return kind


def place(kind: str, line: int) -> str:
    """Return the place of a row in a kind of file, for messages."""
    return f"{'row' if kind == '.parquet' else 'line'} {line}"


def too_long(count: int) -> str:
    """Return a note on the number of texts that are cut."""
    return f"texts cut at {MAX_CHARACTERS:,} characters: {count:,} (is a quote not closed?)"


def as_label(value: Any) -> str:
    """Return a label as text: "true" for True, "" for a gap, and "1" for 1.0, as in columns of numbers with gaps."""
    if is_missing(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return normalise(checked_text(str(value), "a label"))
    raise UserError(f"a label is of type {type(value).__name__}, not text or a number ({str(value)[:40]})")


def as_labels(value: Any, separator: str | None) -> list[str]:
    """Return the labels of a row as text.

    separator: between the labels of a text, which is empty if there are none; None if the file has only lists. Raises
    UserError if the value is not a list.
    """
    if separator is not None and isinstance(value, str):
        value = value.split(separator) if value.strip() else []
    if not isinstance(value, list):
        kind = f"of type {type(value).__name__}, not a list ({str(value)[:40]})"
        raise UserError(f"the labels are {kind}; [] means that a row has no labels, null that they are unknown")
    return list(map(as_label, value))


def _label_reader(task: Task, unknown: np.ndarray, separator: str | None) -> Callable[[Any], Any]:
    """Return a function from a cell to a row of the task's labels; only the user's own files may lack labels.

    separator: as in `as_labels`.
    """
    parse = task.kind.parser(task, list(map(normalise, task.values)))

    def read(cell: Any) -> Any:
        if task.kind.in_lists:
            value = None if cell is None else as_labels(cell, separator)
            missing = value is None
        else:
            value = as_label(cell)
            missing = not value and value not in task.values
        return unknown if missing and task.source.kind == "files" else parse(value)

    return read


def column_names(path: Path, kind: str) -> list[str]:
    """Return a table's columns; for .jsonl, the keys of the first object. Raises UserError as `read_source` does."""
    if kind == ".parquet":
        with open_parquet(path) as file:
            return file.schema_arrow.names
    with path.open("rb") as file:
        lines = read_lines(file, str(path))
        if kind == ".jsonl":
            return list(next(read_jsonl(lines, str(path), []), (1, {}))[1])
        return read_table(lines, str(path), kind).header


def text_columns(path: Path, header: Sequence[str], task: Task) -> dict[str, str]:
    """Return field -> column of the sentences: the name given by the task or, if the header lacks it, the field's own.

    Raises UserError if a column is missing.
    """
    columns = {}
    for field in ("sentence1", "sentence2") if task.pair else ("sentence1",):
        expected = task.columns.get(field, field)
        names = [name for name in (expected, field) if name in header]
        if not names:
            shown = ", ".join(header)[:500] or "an empty file"
            raise UserError(f"{path}: no column {expected!r} of texts (found {shown}){nearest(expected, header)}")
        columns[field] = names[0]
    return columns


def read_rows(
    path: Path,
    kind: str,
    columns: list[str],
    header: tuple[str, ...] = (),
    literal: bool = False,
    encoding: str = UTF_8,
) -> Rows:
    """Yield the columns' values of each row.

    header: names of the columns of a file without a header line; literal: whether quotes in a TSV are text. Raises
    UserError as `read_source` does.
    """
    if kind == ".parquet":
        yield from _parquet_rows(path, columns)
        return
    with path.open("rb") as file:
        lines = read_lines(file, str(path), encoding)
        if kind == ".txt":
            yield from ((number, [text]) for number, text in lines if text.strip())
        elif kind == ".jsonl":
            for number, values in read_jsonl(lines, str(path), columns):
                yield number, [values[column] for column in columns]
        else:
            table = read_table(lines, str(path), kind, header, literal=literal)
            indices = column_indices(f"{path} line 1", table.header, columns)
            for line, cells in table.rows:
                yield line, [cells[index] for index in indices]


def _parquet_rows(path: Path, columns: list[str]) -> Rows:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        indices = column_indices(str(path), names, columns)
        number = 0
        for batch in file.iter_batches(4096, columns=list({names[index]: None for index in indices})):
            for cells in zip(*(batch.column(names[index]).to_pylist() for index in indices), strict=True):
                number += 1
                yield number, list(cells)


@contextlib.contextmanager
def open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Yield an open Parquet file; errors while it is read become UserErrors."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise unreadable(path, error) from error
