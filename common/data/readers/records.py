"""Readers of CSV, TSV and JSONL records, one at a time from a stream of bytes: task files and predict's input.

Text is UTF-8, with or without a byte-order mark. Only \\n ends a line: GLUE's texts contain other line separators.
Blank lines are not rows. All readers raise UserError, with the line, for invalid input.
"""

import codecs
import contextlib
import csv
import dataclasses
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from common.config import nearest
from common.data.text import normalise
from common.errors import UserError
from common.stopping import check

MAX_CHARACTERS = 200_000
"""Length limit of a sentence. MNLI has one of 105,868 characters."""
CELL_LIMIT = 16 * 1024 * 1024
"""Length limit of lines and cells. The csv module's default of 128 KiB is below MAX_CHARACTERS."""
csv.field_size_limit(CELL_LIMIT)

Lines = Iterator[tuple[int, str]]
"""(number, text) of each line, numbered from 1, the text with its newline."""
DELIMITERS = ",;\t|"
"""Possible delimiters of a CSV whose delimiter is not given, the likeliest first."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table being read. rows: (number of a row's first line, its cells), as many cells as the header has."""

    header: list[str]
    rows: Iterator[tuple[int, list[str]]]
    delimiter: str


def as_sentence(value: Any) -> str:
    """Return a cell as a normalised sentence; None becomes an empty one. Raises UserError if the cell is not text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"a sentence is of type {type(value).__name__}, not text ({str(value)[:40]})")
    if len(value) > MAX_CHARACTERS:
        raise UserError(f"a sentence of {len(value):,} characters (at most {MAX_CHARACTERS:,}); is a quote not closed?")
    if "\0" in value:
        raise UserError("a sentence contains a NUL byte; is this a text file?")
    with contextlib.suppress(UnicodeEncodeError):
        value.encode()
        return normalise(value)
    raise UserError("a sentence contains half of a surrogate pair, which is not a character")


def column_indices(where: str, header: list[str], columns: Sequence[str]) -> list[int]:
    """Return the columns' indices. Raises UserError if one is repeated, or missing (suggesting the nearest)."""
    for column in columns:
        _check_has(where, "column", column, header, "an empty file")
        if header.count(column) > 1:
            raise UserError(f"{where}: column {column!r} appears {header.count(column)} times")
    return [header.index(column) for column in columns]


def _check_has(where: str, kind: str, name: str, found: Iterable[str], none: str) -> None:
    if name not in found:
        shown = ", ".join(map(str, found)) or none
        raise UserError(f"{where}: no {kind} {name!r} (found {shown[:500]}){nearest(name, found)}")


def read_lines(stream: BinaryIO, where: str) -> Lines:
    """Yield the lines of a stream as text. where: what messages call the stream.

    Raises UserError for a line that is not UTF-8, or too long to be text; KeyboardInterrupt after a request to stop.
    """
    for number in itertools.count(1):
        raw = stream.readline(CELL_LIMIT)
        check()
        if not raw:
            return
        if len(raw) == CELL_LIMIT and not raw.endswith(b"\n"):
            raise UserError(f"{where} line {number}: longer than {CELL_LIMIT:,} bytes; is this a text file?")
        try:
            yield number, (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{where} line {number}: not UTF-8 text ({error.reason})") from None


def read_csv(lines: Lines, where: str, header: Sequence[str] = (), delimiter: str | None = ",") -> Table:
    """Return a table that reads a CSV: cells may be quoted, with quotes in them doubled.

    header: column names of a file without a header line; delimiter: None selects the most frequent one of the first
    line.
    """
    first = next(lines, (1, ""))
    delimiter = delimiter or max(DELIMITERS, key=first[1].count)
    hint = f"a cell with a {'comma' if delimiter == ',' else 'delimiter'} in it needs quotes"
    return _table(_csv_cells(itertools.chain([first], lines), where, delimiter), where, header, delimiter, hint)


def read_tsv(lines: Lines, where: str, header: Sequence[str] = ()) -> Table:
    """Return a table that reads a TSV such as GLUE's: quotes are text, and no cell holds a tab or a newline."""
    cells = ((number, line.rstrip("\r\n").split("\t")) for number, line in lines if line.strip("\r\n"))
    return _table(cells, where, header, "\t", "no cell may hold a tab")


def read_jsonl(lines: Lines, where: str, keys: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, JSON object) of each line. Raises UserError if an object lacks one of the keys."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} line {number}: not JSON ({error})") from error
        if not isinstance(values, dict):
            raise UserError(f"{where} line {number}: not a JSON object, such as {{{next(iter(keys), 'text')!r}: ...}}")
        for key in keys:
            _check_has(f"{where} line {number}", "key", key, values, "none")
        yield number, values


def _csv_cells(lines: Lines, where: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    # csv.reader also ends a line at \r alone, and must be given such lines one by one.
    texts = itertools.chain.from_iterable(io.StringIO(text, newline="") for _, text in lines)
    reader = csv.reader(texts, strict=True, delimiter=delimiter)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{where} line {line}: malformed CSV ({error}); is a quote not closed?") from error


def _table(
    rows: Iterator[tuple[int, list[str]]], where: str, header: Sequence[str], delimiter: str, hint: str
) -> Table:
    """Return a table whose header is the first row, unless given. hint: what to do about a row with too many cells."""
    names = list(header) or next(rows, (1, []))[1]

    def checked() -> Iterator[tuple[int, list[str]]]:
        for line, cells in rows:
            if len(cells) != len(names):
                more = f" ({hint})" if len(cells) > len(names) else ""
                raise UserError(f"{where} line {line}: expected {len(names)} columns, found {len(cells)}{more}")
            yield line, cells

    return Table(names, checked(), delimiter)
