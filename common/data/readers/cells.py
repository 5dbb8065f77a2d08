"""Checks of cells, columns and rows that all readers of tables share."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from common.config import nearest
from common.data.text import normalise
from common.errors import UserError

MAX_CHARACTERS = 200_000
"""Longest sentence. MNLI has one of 105,868."""
CELL_LIMIT = 16 * 1024 * 1024
"""For csv.field_size_limit, whose default of 128 KiB is below MAX_CHARACTERS."""


def as_sentence(value: Any) -> str:
    """Return a cell as a normalised sentence, None as an empty one. Raises UserError where it is not text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"a sentence is of type {type(value).__name__}, not text ({str(value)[:40]})")
    if len(value) > MAX_CHARACTERS:
        raise UserError(f"a sentence of {len(value):,} characters (at most {MAX_CHARACTERS:,}); is a quote not closed?")
    if "\0" in value:
        raise UserError("a sentence holds a NUL byte; is this a text file?")
    with contextlib.suppress(UnicodeEncodeError):
        value.encode()
        return normalise(value)
    raise UserError("a sentence holds half a surrogate pair, which is not a character")


def places(where: str, header: list[str], columns: Sequence[str]) -> list[int]:
    """Return the columns' indices. Raises UserError for one that is missing, with the nearest, or repeated."""
    for column in columns:
        if column not in header:
            found = ", ".join(header) or "an empty file"
            raise UserError(f"{where}: no column {column!r} (found {found[:500]}){nearest(column, header)}")
        if header.count(column) > 1:
            raise UserError(f"{where}: column {column!r} appears {header.count(column)} times")
    return [header.index(column) for column in columns]


def check_width(where: str, cells: list[str], header: list[str], hint: str) -> None:
    """Raises UserError for a row with too many cells, with the hint, or too few."""
    if len(cells) != len(header):
        more = hint if len(cells) > len(header) else ""
        raise UserError(f"{where}: expected {len(header)} columns, found {len(cells)}{more}")


def json_object(where: str, text: str, columns: Sequence[str]) -> dict[str, Any]:
    """Return the object in a line of JSON. Raises UserError where it is not one, or lacks one of the columns."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error})") from error
    if not isinstance(values, dict):
        raise UserError(f"{where}: not a JSON object, such as {{{columns[0]!r}: ...}}")
    for column in columns:
        if column not in values:
            found = ", ".join(map(str, values)) or "none"
            raise UserError(f"{where}: no key {column!r} (found {found[:500]}){nearest(column, values)}")
    return values
