"""Texts to classify, read row by row from a stream of lines, CSV, TSV or JSONL. Only one row is held at a time.

Sentences are normalised as in a task's files, so that a text is classified in the same form as it is scored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from common.data.readers.records import (
    Lines,
    as_sentence,
    column_indices,
    is_missing,
    read_jsonl,
    read_lines,
    read_table,
)
from common.errors import UserError
from common.reading import UTF_8

T = TypeVar("T")
Format = Literal["lines", "csv", "tsv", "jsonl"]
SUFFIXES: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


@dataclasses.dataclass(frozen=True)
class Row:
    """A text to classify. line: line number; cells: the input's cells; fields: the whole object of a JSONL line."""

    line: int
    sentences: tuple[str, ...]
    cells: list[str]
    fields: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Texts:
    """The texts of a stream. header: names of the columns; delimiter: delimiter for writing a CSV."""

    header: list[str]
    rows: Iterator[Row]
    delimiter: str = ","


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns that hold the sentences.

    names: one column, or two for pairs; named: whether the user named them; where: name of the stream in messages.
    """

    names: tuple[str, ...]
    named: bool
    where: str

    @property
    def pair(self) -> bool:
        """Whether a row has two sentences."""
        return len(self.names) == 2

    def sentences(self, line: int, cells: Sequence[object]) -> tuple[str, ...]:
        """Return the cells as sentences. Raises UserError with the line number."""
        try:
            return tuple(map(as_sentence, cells))
        except UserError as error:
            raise UserError(f"{self.where} line {line}: {error}") from None

    def indices(self, header: list[str]) -> list[int]:
        """Return the positions of the columns. If the name is a guess and there is only one column, it is used."""
        if not self.named and len(header) == len(self.names) == 1:
            return [0]
        try:
            return column_indices(f"{self.where} line 1", header, self.names)
        except UserError as error:
            raise UserError(f"{error}{'' if self.named else '; --columns names it'}") from None


def format_of(path: Path | None) -> Format:
    """Return the format for a file's suffix; default: lines."""
    return SUFFIXES.get(path.suffix.lower(), "lines") if path else "lines"


def read_texts(
    stream: BinaryIO, kind: Format, columns: Columns, delimiter: str | None = None, encoding: str = UTF_8
) -> Texts:
    """Start reading the texts of a stream.

    In the format lines, every line is a text, even if empty; a tab separates the sentences of a pair. In the other
    formats, blank lines are not rows. Raises UserError, with the line number, for invalid input, also while rows are
    read.
    """
    lines = read_lines(stream, columns.where, encoding)
    if kind == "lines":
        return Texts(list(columns.names), _line_rows(lines, columns))
    if kind == "jsonl":
        return Texts(list(columns.names), _json_rows(lines, columns))
    table = read_table(lines, columns.where, f".{kind}", delimiter=delimiter)
    indices = columns.indices(table.header)
    rows = (Row(line, columns.sentences(line, [cells[i] for i in indices]), cells) for line, cells in table.rows)
    return Texts(table.header, rows, "," if kind == "tsv" else table.form.delimiter)


def chunks(
    items: Iterable[T], texts: Callable[[T], Sequence[str]], most: int, most_characters: int, padded: bool = False
) -> Iterator[list[T]]:
    """Yield lists of at most `most` items; one ends early once its texts have `most_characters`.

    texts: function from an item to its texts; padded: every item takes the memory of the longest.
    """
    chunk: list[T] = []
    total = longest = 0
    for item in items:
        characters = sum(map(len, texts(item)))
        chunk.append(item)
        total, longest = total + characters, max(longest, characters)
        if len(chunk) == most or (longest * len(chunk) if padded else total) >= most_characters:
            yield chunk
            chunk, total, longest = [], 0, 0
    if chunk:
        yield chunk


def _line_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    for number, line in lines:
        text = line.rstrip("\r\n")
        cells = text.split("\t") if columns.pair else [text]
        if len(cells) != len(columns.names):
            tabs = "none" if len(cells) == 1 else len(cells) - 1
            raise UserError(
                f"{columns.where} line {number}: a pair is two sentences with a tab between them (found tabs: {tabs})"
            )
        yield Row(number, columns.sentences(number, cells), cells)


def _json_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    for number, fields in read_jsonl(lines, columns.where, columns.names):
        values = [fields[name] for name in columns.names]
        cells = ["" if is_missing(value) else value for value in values]
        yield Row(number, columns.sentences(number, values), cells, fields)
