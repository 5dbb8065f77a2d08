"""Readers of CSV, TSV and JSON records, one at a time from a stream of bytes: task files and predict's input.

Text is UTF-8, with or without a byte-order mark. Only \\n ends a line: GLUE's texts contain other line separators.
Blank lines are not rows. All readers raise UserError, with the line, for invalid input.
"""

import codecs
import csv
import dataclasses
import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import pydantic

from common.config import nearest
from common.data.text import normalise
from common.errors import UserError
from common.reading import UTF_8
from common.stopping import check

MAX_CHARACTERS = 200_000
"""Longer sentences are cut. MNLI has one of 105,868 characters."""
CELL_LIMIT = 16 * 1024 * 1024
"""Length limit of lines and cells. The csv module's default of 128 KiB is below MAX_CHARACTERS."""
csv.field_size_limit(CELL_LIMIT)

Lines = Iterator[tuple[int, str]]
"""(number, text) of each line, numbered from 1, the text with its newline."""
DELIMITERS = ",;\t|"
"""Possible delimiters of a CSV whose delimiter is not given, the likeliest first."""


_EXAMINED = 1000
"""Number of a table's first lines that show how its cells are written."""
_NAMED_DELIMITER = re.compile(r'"?sep=(.)"?\r?\n?')
"""Line with which Excel names the delimiter, before the header."""
_ESCAPED_QUOTE = re.compile(r'\\"(?=[^"\t\r\n]|"(?:\t|\r?\n|$))')
"""R's form of a quote in a quoted cell of a TSV: with a backslash, not doubled."""
_QUOTED = re.compile(r'".*"', re.DOTALL)
_SPACE = re.compile(r"\s*")


@dataclasses.dataclass(frozen=True)
class Form:
    """How a table's cells are written.

    quotes: cells may be quoted, quotes in them doubled; spaces: spaces after a delimiter are not part of a cell.
    """

    delimiter: str
    quotes: bool
    spaces: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A table being read. rows: (number of a row's first line, its cells), as many cells as the header has."""

    header: list[str]
    rows: Iterator[tuple[int, list[str]]]
    form: Form


def kind_of(path: Path) -> str:
    """Return a file's suffix in lower case, with one name for the suffixes of files of JSON objects, .jsonl."""
    suffix = path.suffix.lower()
    return ".jsonl" if suffix in (".json", ".ndjson") else suffix


def _one_character(value: str) -> str:
    value = {"tab": "\t", r"\t": "\t"}.get(value, value)
    if len(value) != 1 or value in '"\r\n':
        raise ValueError("one character, or tab")
    return value


Delimiter = Annotated[str, pydantic.AfterValidator(_one_character)]
"""Type of a flag's delimiter: one character, or tab for a tab."""


def is_missing(value: Any) -> bool:
    """Return whether a cell is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_empty(value: Any) -> bool:
    """Return whether a cell is missing, or a text without characters."""
    return is_missing(value) or value == ""


def as_sentence(value: Any) -> str:
    """Return a cell as a normalised sentence of at most MAX_CHARACTERS; a missing one becomes empty.

    Raises UserError if the cell is not text.
    """
    if is_missing(value):
        return ""
    if not isinstance(value, str):
        raise UserError(f"a sentence is of type {type(value).__name__}, not text ({str(value)[:40]})")
    return normalise(checked_text(value[:MAX_CHARACTERS], "a sentence"))


def checked_text(text: str, what: str) -> str:
    """Return a text. Raises UserError for a NUL byte and half of a surrogate pair. what: its name in messages."""
    if "\0" in text:
        raise UserError(f"{what} contains a NUL byte; is this a text file?")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{what} contains half of a surrogate pair, which is not a character") from None
    return text


def column_indices(where: str, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Return the columns' indices; names may differ in white space.

    Raises UserError if one is repeated, or missing (suggesting the nearest).
    """
    names, keys = list(map(normalise, header)), list(map(normalise, columns))
    for column in keys:
        _check_has(where, "column", column, names, "an empty file")
        if names.count(column) > 1:
            raise UserError(f"{where}: column {column!r} appears {names.count(column)} times")
        checked_text(column, f"{where}: the name of a column")
    return [names.index(column) for column in keys]


def _check_has(where: str, kind: str, name: str, names: Iterable[str], none: str) -> None:
    if name not in names:
        shown = ", ".join(map(str, names)) or none
        raise UserError(f"{where}: no {kind} {name!r} (found {shown[:500]}){nearest(name, names)}")


def read_lines(stream: BinaryIO, where: str, encoding: str = UTF_8) -> Lines:
    """Yield the lines of a stream as text. where: what messages call the stream.

    Raises UserError for a line in another encoding, or too long to be text; KeyboardInterrupt after a request to stop.
    """
    for number in itertools.count(1):
        raw = stream.readline(CELL_LIMIT)
        check()
        if not raw:
            return
        if len(raw) == CELL_LIMIT and not raw.endswith(b"\n"):
            raise UserError(f"{where} line {number}: longer than {CELL_LIMIT:,} bytes; is this a text file?")
        yield number, decoded(raw, f"{where} line {number}", number == 1, encoding)


def decoded(data: bytes, where: str, first: bool = True, encoding: str = UTF_8) -> str:
    """Return bytes as text, UTF-8 without a mark at its start if these are the first bytes of a file.

    Raises UserError, which names UTF-16 and Windows-1252 if the bytes look like these.
    """
    if encoding != UTF_8:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: not {encoding} text ({error.reason}); give its --encoding") from None
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if first and (data.startswith(marks) or 4 * data.count(0) >= len(data) > 0):
        raise UserError(f"{where}: not UTF-8 text; it looks like UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    try:
        return data.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise UserError(f"{where}: not UTF-8 text, but with NUL bytes; is this a text file?") from None
        western = 4 * sum(byte > 127 for byte in data) <= len(data)
        hint = "it looks like windows-1252: give --encoding windows-1252" if western else "give its --encoding"
        raise UserError(f"{where}: not UTF-8 text ({error.reason}); {hint}, or save it as UTF-8") from None


def read_table(
    lines: Lines,
    where: str,
    kind: str,
    header: Sequence[str] = (),
    delimiter: str | None = None,
    numbered: bool = False,
    literal: bool = False,
) -> Table:
    """Return a table that reads a CSV or a TSV.

    kind: .csv or .tsv; header: names of the columns of a file without a header line; delimiter: None for the likeliest
    of DELIMITERS, in a TSV a tab; numbered: whether the file has no header line and its columns are called 1, 2, ...;
    literal: whether quotes in a TSV are text, as in GLUE's files. Otherwise its cells are quoted if all of a column
    are. Cells without text at the end of a row may be too many, and those of columns without a name may be missing.
    """
    examined = 0 if literal else _EXAMINED
    if kind == ".csv":
        examined = 2
    start = list(_opening(lines, examined))
    named = _NAMED_DELIMITER.fullmatch(start[0][1]) if start else None
    if named:
        delimiter, start = delimiter or named[1], start[1:]
    texts = [text for _, text in start]
    if kind == ".tsv":
        form = Form(delimiter or "\t", not literal and _are_quoted(texts))
    else:
        form = _likeliest_form(texts, delimiter or DELIMITERS)
    rows = _cells(itertools.chain(start, lines), where, form)
    first = [] if header else list(itertools.islice(rows, 1))
    if numbered and first:
        header, rows = [str(number) for number in range(1, len(first[0][1]) + 1)], itertools.chain(first, rows)
    names = list(header) or [normalise(name) for _, cells in first for name in cells]
    second = list(itertools.islice(rows, 1))
    if kind == ".tsv" and form.quotes and second and second[0][1][0] == "1" and len(second[0][1]) == len(names) + 1:
        names = ["", *names]  # R does not name its column of row numbers
    return Table(names, _checked(itertools.chain(second, rows), where, names, form), form)


def _opening(lines: Lines, records: int) -> Lines:
    """Yield the lines of a table's first records, at most _EXAMINED: no more, since a stream may wait for an answer."""
    quotes = 0
    for number, text in itertools.islice(lines, _EXAMINED if records else 0):
        yield number, text
        quotes += text.count('"')
        if quotes % 2 == 0 and text.strip():  # a record ends here
            records -= 1
        if not records:
            return


def csv_records(lines: Iterable[str], form: Form, strict: bool = True) -> Iterator[list[str]]:
    """Return an iterator over the records of lines with quoted cells; [] for a blank line. It raises csv.Error."""

    def pieces() -> Iterator[str]:
        for line in lines:
            # csv.reader also ends a line at \r alone, and must be given such lines one by one.
            yield from io.StringIO(_ESCAPED_QUOTE.sub('""', line) if form.delimiter == "\t" else line, newline="")

    return csv.reader(pieces(), strict=strict, delimiter=form.delimiter, skipinitialspace=form.spaces)


def _likeliest_form(texts: Sequence[str], delimiters: str) -> Form:
    """Return the form of a CSV: the delimiter that gives the first two records the same number of cells, and most."""
    forms = [Form(delimiter, True) for delimiter in delimiters]
    records = {form: list(itertools.islice(filter(None, csv_records(texts, form, strict=False)), 2)) for form in forms}

    def likelihood(form: Form) -> tuple[bool, int]:
        widths = [len(cells) for cells in records[form]] or [0]
        return widths[0] > 1 and len(set(widths)) == 1, widths[0]

    likeliest = max(forms, key=likelihood)
    spaces = any(cells[1:] and all(cell.startswith(" ") for cell in cells[1:]) for cells in records[likeliest])
    return dataclasses.replace(likeliest, spaces=spaces)


def _are_quoted(texts: Sequence[str]) -> bool:
    """Return whether the cells of a TSV that begins with these lines are quoted as those of a CSV are.

    They are if all lines are well-formed that way, and if all cells of the header or of a column are in quotes, or
    some cell holds a doubled quote, a tab or a newline.
    """
    records: list[list[str]] = []
    try:
        records.extend(filter(None, csv_records(texts, Form("\t", True))))
    except csv.Error as error:
        if len(texts) < _EXAMINED or "unexpected end" not in str(error):  # else the last record is cut off
            return False
    if len({len(cells) for cells in records[1:]}) != 1:
        return False
    if any('""' in text for text in texts) or any({"\t", "\n"} & set("".join(cells)) for cells in records):
        return True
    # Each record is one line.
    header, *rows = [text.rstrip("\r\n").split("\t") for text in texts if text.strip("\r\n")][: len(records)]
    columns = [header, *zip(*rows, strict=True)]
    return any(len(cells) > 1 and all(_QUOTED.fullmatch(cell) for cell in cells) for cells in columns)


def _cells(lines: Lines, where: str, form: Form) -> Iterator[tuple[int, list[str]]]:
    if not form.quotes:
        for number, line in lines:
            if line.strip("\r\n"):
                yield number, line.rstrip("\r\n").split(form.delimiter)
        return
    last = 0  # the number of the line that was read last

    def texts() -> Iterator[str]:
        nonlocal last
        for number, text in lines:
            last = number
            yield text

    line = 1
    try:
        for cells in csv_records(texts(), form):
            if cells:
                yield line, cells
            line = last + 1
    except csv.Error as error:
        raise UserError(f"{where} line {line}: malformed CSV ({error}); is a quote not closed?") from error


def _checked(
    rows: Iterator[tuple[int, list[str]]], where: str, names: Sequence[str], form: Form
) -> Iterator[tuple[int, list[str]]]:
    """Yield rows of as many cells as there are names."""
    for line, row in rows:
        cells = of_width(row, names)
        if len(cells) != len(names):
            hint = ""
            if len(cells) > len(names):
                delimiter = "comma" if form.delimiter == "," else "delimiter"
                hint = (
                    f" (a cell with a {delimiter} in it needs quotes)" if form.quotes else " (no cell may hold a tab)"
                )
            raise UserError(f"{where} line {line}: expected {len(names)} columns, found {len(cells)}{hint}")
        yield line, cells


def of_width(cells: list[str], names: Sequence[str]) -> list[str]:
    """Return a row with as many cells as names, if they differ in empty cells, or cells without a name, at the end."""
    if len(cells) > len(names) and not any(cells[len(names) :]):
        return cells[: len(names)]
    if len(cells) < len(names) and not any(names[len(cells) :]):
        return cells + [""] * (len(names) - len(cells))
    return cells


def read_jsonl(lines: Lines, where: str, keys: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, JSON object) of each line, or of each item if the file is one array.

    Raises UserError if an object lacks one of the keys.
    """
    for number, values in _json_values(lines, where):
        if not isinstance(values, dict):
            raise UserError(f"{where} line {number}: not a JSON object, such as {{{next(iter(keys), 'text')!r}: ...}}")
        for key in keys:
            _check_has(f"{where} line {number}", "key", key, values, "none")
        yield number, values


def _json_values(lines: Lines, where: str) -> Iterator[tuple[int, Any]]:
    is_first = True
    for number, line in lines:
        if not line.strip():
            continue
        if is_first and line.lstrip().startswith("["):
            yield from _items(line + "".join(text for _, text in lines), where, number)
            return
        is_first = False
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            form = "each line has one object, or the file is one array of objects"
            raise UserError(f"{where} line {number}: not JSON ({error}); {form}") from error


def _items(text: str, where: str, number: int) -> Iterator[tuple[int, Any]]:
    """Yield (line number, item) of a JSON array. number: line number of the text's start."""
    decoder, counted = json.JSONDecoder(), 0
    position = _SPACE.match(text, text.index("[") + 1).end()
    while text[position : position + 1] != "]":
        number += text.count("\n", counted, position)
        counted = position
        try:
            item, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} line {number}: not JSON ({error})") from error
        yield number, item
        position = _SPACE.match(text, end).end()
        if text[position : position + 1] == ",":
            position = _SPACE.match(text, position + 1).end()
        elif text[position : position + 1] != "]":
            raise UserError(f"{where} line {number}: not JSON (an item of an array is not followed by , or ])")
    if text[position + 1 :].strip():
        raise UserError(f"{where} line {number}: not JSON (text follows the array)")
