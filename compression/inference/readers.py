"""Text to classify, row by row from a stream: lines, CSV, TSV or JSONL. No more than a row is held at a time.

A sentence is normalised as the reader of tasks' files does it (common.data.readers.cells), so that a text is
classified here as it is scored there. Every row's line number is kept for messages; only \\n ends a line.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

from common.data.readers.cells import CELL_LIMIT, MAX_CHARACTERS, as_sentence, check_width, json_object, places
from common.errors import UserError

Format = Literal["lines", "csv", "tsv", "jsonl"]
SUFFIXES: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
DELIMITERS = ",;\t|"
"""Signs that may stand between a CSV's cells, the likeliest first."""

Lines = Iterator[tuple[int, str]]
"""Number of a line, and its text with what ends it."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A text to classify. line: its number; cells: as they came, one a column; fields: all that a JSONL's line held."""

    line: int
    sentences: tuple[str, ...]
    cells: list[str]
    fields: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Texts:
    """What a stream holds. header: names of the columns; delimiter: what stands between the cells of a CSV."""

    header: list[str]
    rows: Iterator[Row]
    delimiter: str = ","


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns hold the sentences, and how to tell of them.

    names: one, or two for pairs; given: by the user, not guessed; where: what messages call the stream.
    """

    names: tuple[str, ...]
    given: bool
    where: str

    @property
    def pair(self) -> bool:
        """Whether a row has two sentences."""
        return len(self.names) == 2

    def sentences(self, line: int, cells: Sequence[object]) -> tuple[str, ...]:
        """The cells as sentences, cut at MAX_CHARACTERS: more than models read. Raises UserError with the line."""
        try:
            return tuple(as_sentence(cell[:MAX_CHARACTERS] if isinstance(cell, str) else cell) for cell in cells)
        except UserError as error:
            raise UserError(f"{self.where} line {line}: {error}") from None


def format_of(path: Path | None) -> Format:
    """The format that a file's suffix tells; lines where it tells none."""
    return SUFFIXES.get(path.suffix.lower(), "lines") if path else "lines"


def read_texts(stream: BinaryIO, kind: Format, columns: Columns, delimiter: str | None = None) -> Texts:
    """The texts of a stream in UTF-8, with or without a byte-order mark.

    Lines: every line is a text, an empty one too; of a pair a tab stands between the sentences. Elsewhere blank lines
    are no rows. Raises UserError with the line, here or while rows are read, for whatever is wrong.
    """
    csv.field_size_limit(CELL_LIMIT)
    lines = decoded(stream, columns.where)
    readers: dict[Format, Callable[[], Texts]] = {
        "lines": lambda: Texts(list(columns.names), _line_rows(lines, columns)),
        "csv": lambda: _csv_texts(lines, columns, delimiter),
        "tsv": lambda: _tsv_texts(lines, columns),
        "jsonl": lambda: Texts(list(columns.names), _json_rows(lines, columns)),
    }
    return readers[kind]()


def decoded(stream: BinaryIO, where: str) -> Lines:
    """Lines as text. Raises UserError with the line for one that is not UTF-8, or so long that it is no text."""
    for number in itertools.count(1):
        raw = stream.readline(CELL_LIMIT)
        if not raw:
            return
        if len(raw) == CELL_LIMIT and not raw.endswith(b"\n"):
            raise UserError(f"{where} line {number}: longer than {CELL_LIMIT:,} bytes; is this a text file?")
        try:
            yield number, (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{where} line {number}: not UTF-8 text ({error.reason})") from None


def _line_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    for number, line in lines:
        text = line.rstrip("\r\n")
        cells = text.split("\t") if columns.pair else [text]
        if len(cells) != len(columns.names):
            raise UserError(
                f"{columns.where} line {number}: a pair is two sentences with a tab between them, "
                f"here {'is none' if len(cells) == 1 else f'are {len(cells) - 1}'}"
            )
        yield Row(number, columns.sentences(number, cells), cells)


def _csv_texts(lines: Lines, columns: Columns, delimiter: str | None) -> Texts:
    first = next(lines, (1, ""))
    delimiter = delimiter or max(DELIMITERS, key=first[1].count)
    reader = csv.reader((text for _, text in itertools.chain([first], lines)), strict=True, delimiter=delimiter)
    cells = _csv_cells(reader, columns.where)
    header = next(cells, (1, []))[1]
    return Texts(header, _table_rows(cells, header, columns, "a cell with a delimiter in it needs quotes"), delimiter)


def _csv_cells(reader: Iterator[list[str]], where: str) -> Iterator[tuple[int, list[str]]]:
    """Cells with the number of the line on which their row begins. Blank lines are no rows."""
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{where} line {line}: malformed CSV ({error}); is a quote not closed?") from error


def _tsv_texts(lines: Lines, columns: Columns) -> Texts:
    """As GLUE's files: quotes are text, and no cell holds a tab or a newline."""
    cells = ((number, line.rstrip("\r\n").split("\t")) for number, line in lines if line.strip("\r\n"))
    header = next(cells, (1, []))[1]
    return Texts(header, _table_rows(cells, header, columns, "no cell may hold a tab"))


def _table_rows(rows: Iterator[tuple[int, list[str]]], header: list[str], columns: Columns, hint: str) -> Iterator[Row]:
    found = _find(header, columns)

    def read() -> Iterator[Row]:
        for line, cells in rows:
            check_width(f"{columns.where} line {line}", cells, header, f" ({hint})")
            yield Row(line, columns.sentences(line, [cells[place] for place in found]), cells)

    return read()  # so that a missing column is told before anything is written


def _find(header: list[str], columns: Columns) -> list[int]:
    """Where the sentences stand; a guessed name gives way to the only column there is."""
    if not columns.given and len(header) == len(columns.names) == 1:
        return [0]
    try:
        return places(f"{columns.where} line 1", header, columns.names)
    except UserError as error:
        raise UserError(f"{error}{'' if columns.given else '; --columns names it'}") from None


def _json_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    for number, line in lines:
        if line.strip():
            fields = json_object(f"{columns.where} line {number}", line, columns.names)
            values = [fields[name] for name in columns.names]
            yield Row(number, columns.sentences(number, values), [value or "" for value in values], fields)
