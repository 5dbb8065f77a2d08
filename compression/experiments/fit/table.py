"""Reading of a user's file with unknown columns: all of it, or a sample of rows from many places in a large file."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from common.data.readers import records
from common.data.readers.records import Form, column_indices, csv_records, kind_of, of_width, read_jsonl, read_lines
from common.data.readers.tables import open_parquet
from common.data.text import normalise
from common.errors import UserError
from common.reading import regular_file
from common.seeds import derive
from common.stopping import at_once, check
from common.tables import human_bytes

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
MOST_BYTES = 64 * 1024 * 1024
"""Larger files are sampled."""
MOST_ROWS = 200_000
"""Maximum number of rows, drawn at random from the rows that are read."""
_BLOCK = 1024 * 1024
_STARTS = 50
"""Maximum number of lines of a block tried as the start of a CSV record, since quoted cells may contain newlines."""

Cells = list[Any]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of a file. sampled: a description of how the rows were drawn; empty if these are all rows."""

    path: Path
    header: list[str]
    rows: list[Cells]
    sampled: str = ""

    def column(self, name: str) -> list[Any]:
        """Return the cells of a column."""
        index = self.header.index(name)
        return [row[index] for row in self.rows]


def read_any(
    path: Path,
    seed: int,
    most_bytes: int | None = None,
    delimiter: str | None = None,
    header: bool = True,
    columns: Sequence[str] = (),
) -> Table:
    """Return the rows of a file, or a sample of them if it is larger than `most_bytes` (default MOST_BYTES).

    delimiter: of a CSV or TSV, None for the likeliest; header: whether these have a header line, else columns are
    called 1, 2, ...; columns: those that are needed, if they are known. Raises UserError for a missing, damaged or
    empty file, or one of an unknown kind.
    """
    size = regular_file(path).stat().st_size
    kind, most_bytes = kind_of(path), most_bytes or MOST_BYTES
    if kind not in SUFFIXES:
        raise UserError(f"{path}: unknown kind of file; fit reads {', '.join(SUFFIXES)} (UTF-8)")
    if kind not in (".csv", ".tsv") and (delimiter or not header):
        raise UserError(f"{path}: {'--delimiter' if delimiter else '--no-header'} is for CSV and TSV files")
    rng = np.random.default_rng(derive("fit", seed))
    with at_once():
        if kind == ".parquet":
            return _kept(_read_parquet(path, size, most_bytes, rng, columns), rng)
        with path.open("rb") as file:
            lines = read_lines(file, str(path))
            table = None
            if kind != ".jsonl":
                table = records.read_table(lines, str(path), kind, delimiter=delimiter, numbered=not header)
            if size > most_bytes:
                return _kept(_sample(path, file, table, size, most_bytes, rng), rng)
            if table is None:
                return _kept(_of_objects(path, [values for _, values in read_jsonl(lines, str(path), [])]), rng)
            return _kept(Table(path, table.header, [cells for _, cells in table.rows]), rng)


def file_identity(path: Path, most_bytes: int | None = None) -> str:
    """Return a fingerprint of a file's size and content; for a large file, of its content in many places."""
    size = regular_file(path).stat().st_size
    digest = hashlib.sha256(str(size).encode())
    step = 1 if size <= (most_bytes or MOST_BYTES) else size // 64 // _BLOCK
    with path.open("rb") as file:
        for start in range(0, size, _BLOCK * max(1, step)):
            check()
            file.seek(start)
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()[:16]


def _kept(table: Table, rng: np.random.Generator) -> Table:
    """Return a table of at most MOST_ROWS rows. Raises UserError if there are no rows."""
    if not table.rows:
        raise UserError(f"{table.path}: no rows of data")
    if len(table.rows) <= MOST_ROWS:
        return table
    chosen = np.sort(rng.choice(len(table.rows), MOST_ROWS, replace=False)).tolist()
    sampled = f"{table.sampled or f'{len(table.rows):,} rows'}, of which {MOST_ROWS:,} are drawn at random"
    return dataclasses.replace(table, rows=[table.rows[i] for i in chosen], sampled=sampled)


def _of_objects(path: Path, objects: Sequence[dict[str, Any]], sampled: str = "") -> Table:
    """Return JSON objects as a table with a column for each key."""
    keys = list(dict.fromkeys(itertools.chain.from_iterable(objects)))
    rows = [[values.get(key) for key in keys] for values in objects]
    return Table(path, list(map(normalise, keys)), rows, sampled)


def _sample(
    path: Path, file: BinaryIO, table: records.Table | None, size: int, most_bytes: int, rng: np.random.Generator
) -> Table:
    """Return the rows of blocks spread over a file, without the records that a block cuts off.

    table: the opened table; None for a file of JSON objects.
    """
    start = len(",".join(table.header)) if table else 0  # approximate start of the first record
    block = min(_BLOCK, most_bytes)
    blocks = math.ceil((size - start) / block)  # a grid, so that no row is read twice
    chosen = rng.choice(blocks, min(max(1, most_bytes // block), blocks), replace=False)
    places = (start + np.sort(chosen) * block).tolist()
    rows: list[Any] = []
    for place in places:
        check()
        file.seek(place)
        lines = file.read(block).split(b"\n")[1:-1]
        rows += _records_in(lines, table.header, table.form) if table else _objects_in(lines)
    sampled = f"{human_bytes(size)} are sampled: {len(rows):,} rows from {len(places)} places of the file are read"
    return Table(path, table.header, rows, sampled) if table else _of_objects(path, rows, sampled)


def _objects_in(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            values = json.loads(line.rstrip(b", \r"))  # a line may be an item of an array
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict):
            yield values


def _records_in(lines: Sequence[bytes], header: Sequence[str], form: Form) -> list[Cells]:
    """Return the records in lines from the middle of a file."""
    texts = []
    for line in lines:
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            texts.append("")
    if not form.quotes:
        rows = (of_width(text.rstrip("\r").split(form.delimiter), header) for text in texts)
        return [cells for cells in rows if len(cells) == len(header)]
    best: list[Cells] = []
    for start in range(min(_STARTS, len(texts))):
        best = max(best, _parsed(texts[start:], header, form), key=len)
        if len(best) * 2 > len(texts) - start:
            break
    return best


def _parsed(texts: Sequence[str], header: Sequence[str], form: Form) -> list[Cells]:
    """Return the records up to the first incomplete one."""
    rows: list[Cells] = []
    with contextlib.suppress(csv.Error):
        for cells in filter(None, csv_records((f"{text}\n" for text in texts), form)):
            row = of_width(cells, header)
            if len(row) != len(header):
                break
            rows.append(row)
    return rows


def _read_parquet(path: Path, size: int, most_bytes: int, rng: np.random.Generator, columns: Sequence[str]) -> Table:
    with open_parquet(path) as file:
        header = file.schema_arrow.names
        if columns:
            header = [header[index] for index in column_indices(str(path), header, columns)]
        groups, total = list(range(file.num_row_groups)), file.metadata.num_rows
        most_rows = total if size <= most_bytes else max(1, int(total * most_bytes / size))
        if most_rows < total:
            groups = rng.permutation(groups).tolist()
        rows: list[Cells] = []
        for batch in file.iter_batches(4096, row_groups=groups, columns=header if columns else None):
            check()
            header = batch.schema.names
            cells = [column.to_pylist() if columns else _values(column) for column in batch.columns]
            rows += map(list, zip(*cells, strict=True))
            if len(rows) >= most_rows:
                break
        sampled = f"{human_bytes(size)} are sampled: {len(rows):,} of {total:,} rows are read"
        return Table(path, list(map(normalise, header)), rows, sampled if most_rows < total else "")


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column, None for all if they have no form in Python, such as times in the year 148,000."""
    try:
        return column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return [None] * len(column)
