"""Reading of a user's file with unknown columns: all of it, or a sample of rows from many places in a large file.

A .txt file has fastText's form: on each line labels, each after `__label__`, and then the text.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from common.data.readers import records
from common.data.readers.records import (
    MAX_CHARACTERS,
    column_indices,
    csv_records,
    decoded,
    kind_of,
    of_width,
    read_jsonl,
    read_lines,
)
from common.data.readers.tables import JOINED_SUFFIXES, SUFFIXES, known_kind, open_parquet, too_long
from common.data.text import normalise
from common.errors import UserError
from common.reading import UTF_8, regular_file
from common.seeds import derive
from common.stopping import at_once, check
from common.tables import human_bytes

MOST_BYTES = 64 * 1024 * 1024
"""Larger files are sampled."""
MOST_ROWS = 200_000
"""Maximum number of rows, drawn at random from the rows that are read."""
LABEL_PREFIX = "__label__"
"""Begins a label in fastText's files."""
_BLOCK = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of a file.

    sampled: a description of how the rows were drawn; empty if these are all rows; label_names: column -> the names of
    the labels that its numbers stand for, from the metadata of a Parquet file that Hugging Face's datasets wrote.
    """

    path: Path
    header: list[str]
    rows: list[list[Any]]
    sampled: str = ""
    label_names: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        """Return the cells of a column."""
        index = self.header.index(name)
        return [row[index] for row in self.rows]


def with_label_names(table: Table) -> Table:
    """Return a table with the names of labels in the place of their numbers; -1 is an unknown label."""
    if not table.label_names:
        return table
    by_column = [table.label_names.get(column, ()) for column in table.header]
    rows = [[_label_name(cell, names) for cell, names in zip(row, by_column, strict=True)] for row in table.rows]
    return dataclasses.replace(table, rows=rows)


def _label_name(cell: Any, names: Sequence[str]) -> Any:
    """Return the name that a number stands for, in lists too; other cells, and those of columns without names, stay."""
    if names and isinstance(cell, list):
        return [_label_name(item, names) for item in cell]
    if names and cell == -1:
        return None
    return names[cell] if isinstance(cell, int) and 0 <= cell < len(names) else cell


def named_columns(table: Table, flag: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a flag names, as the table has them. Raises UserError for one that it has not."""
    return tuple(table.header[index] for index in column_indices(f"{flag}: {table.path}", table.header, columns))


def table_notes(table: Table, texts: Sequence[str]) -> list[str]:
    """Return notes on a table's sampled rows and its long texts."""
    notes = [table.sampled] if table.sampled else []
    cells = itertools.chain.from_iterable(map(table.column, texts))
    if long := sum(isinstance(cell, str) and len(cell) > MAX_CHARACTERS for cell in cells):
        notes.append(too_long(long))
    return [f"{table.path.name}: {note}." for note in notes]


def read_any(
    path: Path,
    seed: int,
    most_bytes: float = MOST_BYTES,
    delimiter: str | None = None,
    header: bool = True,
    columns: Sequence[str] = (),
    encoding: str = UTF_8,
) -> Table:
    """Return the rows of a file, or a sample of them if it is larger than `most_bytes`.

    most_bytes: math.inf for all rows, however many; delimiter: of a CSV or TSV, None for the likeliest; header: whether
    these have a header line, else columns are called 1, 2, ...; columns: those that are needed, if they are known;
    encoding: of text files. Raises UserError for a missing, damaged or empty file, or one of an unknown kind.
    """
    kind, size = known_kind(path, SUFFIXES), path.stat().st_size
    if kind not in JOINED_SUFFIXES and (delimiter or not header):
        flag = "--delimiter" if delimiter else "--no-header"
        raise UserError(f"{path}: {flag} is for CSV and TSV files")
    rng = np.random.default_rng(derive("fit", seed))
    with at_once():
        if kind == ".parquet":
            table = _read_parquet(path, size, most_bytes, rng, columns)
        else:
            with path.open("rb") as file:
                lines, opened = read_lines(file, str(path), encoding), None
                if kind == ".txt":
                    lines = _begins_with_label(path, lines)
                elif kind in JOINED_SUFFIXES:
                    opened = records.read_table(lines, str(path), kind, delimiter=delimiter, numbered=not header)
                if size > most_bytes:
                    table = _sample(path, file, opened, size, most_bytes, rng, encoding)
                elif opened:
                    table = Table(path, opened.header, [cells for _, cells in opened.rows])
                elif kind == ".txt":
                    table = _of_objects(path, _labelled_texts(line for _, line in lines))
                else:
                    table = _of_objects(path, [values for _, values in read_jsonl(lines, str(path), [])])
    if not table.rows:
        raise UserError(f"{path}: no rows of data")
    if kind == ".jsonl" and len(table.rows) == 1 and all(isinstance(cell, dict | list) for cell in table.rows[0]):
        raise UserError(f"{path}: one object of all rows, not one for each row (in pandas: to_json(orient='records'))")
    if most_bytes == math.inf or len(table.rows) <= MOST_ROWS:
        return table
    chosen = np.sort(rng.choice(len(table.rows), MOST_ROWS, replace=False)).tolist()
    sampled = f"{table.sampled or f'{len(table.rows):,} rows'}, of which {MOST_ROWS:,} are drawn at random"
    return dataclasses.replace(table, rows=[table.rows[i] for i in chosen], sampled=sampled)


def _begins_with_label(path: Path, lines: records.Lines) -> records.Lines:
    """Return the lines of a .txt file from the first with text. Raises UserError if it does not begin with a label."""
    first = next(((number, line) for number, line in lines if line.strip()), (1, LABEL_PREFIX))
    if not has_label(first[1]):
        raise UserError(f"{path}: lines of a .txt file begin with labels, as in {LABEL_PREFIX}spam you won a prize")
    return itertools.chain([first], lines)


def has_label(line: str) -> bool:
    """Return whether a line begins with a label as in fastText's files."""
    return line.lstrip().startswith(LABEL_PREFIX)


def _labelled_texts(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the labels and the text of each line that is not blank; labels are None where there are none."""
    objects = []
    for line in lines:
        words = line.split()
        labels = list(itertools.takewhile(has_label, words))
        if words:
            names = [label.removeprefix(LABEL_PREFIX) for label in labels]
            objects.append({"label": names or None, "text": " ".join(words[len(labels) :])})
    return objects


def file_identity(path: Path) -> str:
    """Return a fingerprint of a file's size and content; for a large file, of its content in 64 places."""
    size = regular_file(path).stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for start in range(0, size, max(_BLOCK, size // 64)):
            check()
            file.seek(start)
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:16]


def _of_objects(path: Path, objects: Sequence[dict[str, Any]], sampled: str = "") -> Table:
    """Return JSON objects as a table with a column for each key."""
    keys = list(dict.fromkeys(itertools.chain.from_iterable(objects)))
    rows = [[values.get(key) for key in keys] for values in objects]
    return Table(path, list(map(normalise, keys)), rows, sampled)


def _sample(
    path: Path,
    file: BinaryIO,
    table: records.Table | None,
    size: int,
    most_bytes: int,
    rng: np.random.Generator,
    encoding: str,
) -> Table:
    """Return the rows of blocks spread over a file, without the records that a block cuts off.

    table: the opened table; None for a file of JSON objects or of labelled lines.
    """
    start = len(",".join(table.header)) if table else 0  # approximate start of the first record
    block = min(_BLOCK, most_bytes)
    blocks = math.ceil((size - start) / block)  # a grid, so that no row is read twice
    chosen = rng.choice(blocks, min(most_bytes // block, blocks), replace=False)
    rows: list[Any] = []
    for place in (start + np.sort(chosen) * block).tolist():
        check()
        file.seek(place)
        lines = file.read(block).partition(b"\n")[2].rpartition(b"\n")[0]
        text = decoded(lines, str(path), first=False, encoding=encoding)
        rows += _records_in(text, table) if table else _OBJECTS_IN[kind_of(path)](text.split("\n"))
    sampled = f"{human_bytes(size)} are sampled: {len(rows):,} rows from {len(chosen)} places of the file are read"
    return Table(path, table.header, rows, sampled) if table else _of_objects(path, rows, sampled)


def _json_objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line.rstrip(", \r"))  # a line may be an item of an array
            if isinstance(values, dict):
                yield values


_OBJECTS_IN = {".jsonl": _json_objects, ".txt": _labelled_texts}
"""Kind of file -> function from lines of its middle to their objects."""


def _records_in(text: str, table: records.Table) -> list[list[str]]:
    """Return the records in lines from the middle of a file, without the first one, which may be incomplete.

    The lines may begin inside a quoted cell. If they do not, reading them so fails at the next cell in quotes.
    """
    if not table.form.quotes:
        return _complete((line.rstrip("\r").split(table.form.delimiter) for line in text.split("\n")), table.header)
    outside, inside = (_complete(csv_records([quote + text], table.form), table.header) for quote in ("", '"'))
    return (inside if 2 * len(inside) >= len(outside) else outside)[1:]


def _complete(rows: Iterable[list[str]], header: Sequence[str]) -> list[list[str]]:
    """Return the rows of the header's width, up to the first that is malformed."""
    complete = []
    with contextlib.suppress(csv.Error):
        for row in rows:
            cells = of_width(row, header)
            if len(cells) == len(header):
                complete.append(cells)
    return complete


def _read_parquet(path: Path, size: int, most_bytes: float, rng: np.random.Generator, columns: Sequence[str]) -> Table:
    with open_parquet(path) as file:
        header = file.schema_arrow.names
        if columns:
            header = [header[index] for index in column_indices(str(path), header, columns)]
        groups, total = list(range(file.num_row_groups)), file.metadata.num_rows
        most_rows = total if size <= most_bytes else max(1, int(total * most_bytes / size))
        if most_rows < total:
            groups = rng.permutation(groups).tolist()
        rows: list[list[Any]] = []
        for batch in file.iter_batches(4096, row_groups=groups, columns=header if columns else None):
            check()
            header = batch.schema.names
            rows += map(list, zip(*map(_values, batch.columns), strict=True))
            if len(rows) >= most_rows:
                break
        sampled = f"{human_bytes(size)} are sampled: {len(rows):,} of {total:,} rows are read"
        label_names = _label_names(file.schema_arrow.metadata)
        return Table(path, list(map(normalise, header)), rows, sampled if most_rows < total else "", label_names)


def _label_names(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return column -> names of the labels in it, or in its lists, from the metadata of Hugging Face's datasets."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"].items()
    except (KeyError, TypeError, AttributeError, ValueError):  # none, or of another form
        return {}
    label_names = {}
    for column, feature in features:
        of_items = feature.get("feature", feature) if isinstance(feature, dict) else None
        if isinstance(of_items, dict) and of_items.get("_type") == "ClassLabel":
            label_names[normalise(column)] = of_items.get("names") or []
    return label_names


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column, None for all if they have no form in Python, such as times in the year 148,000."""
    try:
        return column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return [None] * len(column)
