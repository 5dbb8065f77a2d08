"""Reading of a user's file with unknown columns: all of it, or a sample of rows from many places in a large file."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data.readers.records import column_indices, read_csv, read_jsonl, read_lines, read_tsv
from common.errors import UserError
from common.reading import regular_file, unreadable
from common.seeds import derive
from common.stopping import at_once, check
from common.tables import human_bytes

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
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


def read_any(path: Path, seed: int, most_bytes: int | None = None) -> Table:
    """Return the rows of a file, or a sample of them if it is larger than `most_bytes` (default MOST_BYTES).

    Raises UserError for a missing, damaged or empty file, or one of an unknown kind.
    """
    size = regular_file(path).stat().st_size
    kind, most_bytes = path.suffix.lower(), most_bytes or MOST_BYTES
    if kind not in SUFFIXES:
        raise UserError(f"{path}: unknown kind of file; fit reads {', '.join(SUFFIXES)} (UTF-8)")
    rng = np.random.default_rng(derive("fit", seed))
    with at_once():
        if kind == ".parquet":
            return _kept(_read_parquet(path, size, most_bytes, rng), rng)
        return _kept(_read_text(path, kind) if size <= most_bytes else _sample(path, kind, size, most_bytes, rng), rng)


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


def _read_text(path: Path, kind: str) -> Table:
    with path.open("rb") as file:
        lines = read_lines(file, str(path))
        if kind == ".jsonl":
            return _of_objects(path, (values for _, values in read_jsonl(lines, str(path), [])))
        table = read_csv(lines, str(path), delimiter=None) if kind == ".csv" else read_tsv(lines, str(path))
        column_indices(f"{path} line 1", table.header, table.header)
        return Table(path, table.header, [cells for _, cells in table.rows])


def _of_objects(path: Path, objects: Iterator[dict[str, Any]]) -> Table:
    """Return JSON objects as a table with a column for each key."""
    found = list(objects)
    header = list(dict.fromkeys(itertools.chain.from_iterable(found)))
    return Table(path, header, [[values.get(name) for name in header] for values in found])


def _sample(path: Path, kind: str, size: int, most_bytes: int, rng: np.random.Generator) -> Table:
    """Return the rows of blocks spread over a file, without the records that a block cuts off."""
    header: list[str] = []
    start = 0
    with path.open("rb") as file:
        if kind != ".jsonl":
            first = read_lines(file, str(path))
            table = read_csv(first, str(path), delimiter=None) if kind == ".csv" else read_tsv(first, str(path))
            header, delimiter = table.header, table.delimiter
            column_indices(f"{path} line 1", header, header)
            start = len(",".join(header))  # approximate start of the first record
        block = min(_BLOCK, most_bytes)
        blocks = math.ceil((size - start) / block)  # a grid, so that no row is read twice
        chosen = rng.choice(blocks, min(max(1, most_bytes // block), blocks), replace=False)
        places = (start + np.sort(chosen) * block).tolist()
        rows: list[Any] = []
        for place in places:
            check()
            file.seek(place)
            lines = file.read(block).split(b"\n")[1:-1]
            if kind == ".jsonl":
                rows += _objects_in(lines)
            else:
                rows += _records_in(lines, len(header), delimiter if kind == ".csv" else None)
    about = f"{human_bytes(size)} are sampled: {len(rows):,} rows from {len(places)} places of the file are read"
    if kind == ".jsonl":
        return dataclasses.replace(_of_objects(path, iter(rows)), sampled=about)
    return Table(path, header, rows, about)


def _objects_in(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict):
            yield values


def _records_in(lines: Sequence[bytes], width: int, delimiter: str | None) -> list[Cells]:
    """Return the records in lines from the middle of a file. delimiter: None for TSV, where each line is a record."""
    texts = []
    for line in lines:
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            texts.append("")
    if delimiter is None:
        return [cells for text in texts if len(cells := text.rstrip("\r").split("\t")) == width]
    best: list[Cells] = []
    for start in range(min(_STARTS, len(texts))):
        found = _parsed("\n".join(texts[start:]), width, delimiter)
        if len(found) > len(best):
            best = found
        if len(best) * 2 > len(texts) - start:
            break
    return best


def _parsed(text: str, width: int, delimiter: str) -> list[Cells]:
    """Return the records up to the first incomplete one."""
    found: list[Cells] = []
    try:
        for cells in csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter):
            if cells and len(cells) != width:
                break
            if cells:
                found.append(cells)
    except csv.Error:
        pass
    return found


def _read_parquet(path: Path, size: int, most_bytes: int, rng: np.random.Generator) -> Table:
    try:
        with pq.ParquetFile(path) as file:
            column_indices(f"{path} line 1", file.schema_arrow.names, file.schema_arrow.names)
            groups, total = list(range(file.num_row_groups)), file.metadata.num_rows
            wanted = total if size <= most_bytes else max(1, int(total * most_bytes / size))
            if wanted < total:
                groups = rng.permutation(groups).tolist()
            rows: list[Cells] = []
            for batch in file.iter_batches(4096, row_groups=groups):
                check()
                rows += map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))
                if len(rows) >= wanted:
                    break
            about = (
                f"{human_bytes(size)} are sampled: {len(rows):,} of {total:,} rows are read" if wanted < total else ""
            )
            return Table(path, file.schema_arrow.names, rows, about)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
