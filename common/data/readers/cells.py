"""What a cell of a text file must be to count as a sentence, and where the columns asked for stand."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from common.config import nearest
from common.data.text import normalise
from common.errors import UserError

MAX_CHARACTERS = 200_000
"""Longest sentence. MNLI has one of 105,868 characters."""
CELL_LIMIT = 16 * 1024 * 1024
"""For csv.field_size_limit: its own limit of 128 KiB a cell would stop sentences below MAX_CHARACTERS."""


def as_sentence(value: Any) -> str:
    """A cell as a sentence, normalised; None is an empty one. Raises UserError for what is no text."""
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
    raise UserError("a sentence holds half a surrogate pair, which is no character")


def places(where: str, header: list[str], columns: Sequence[str]) -> list[int]:
    """Where the columns stand. Raises UserError for one that is missing, suggesting the nearest, or there twice."""
    for column in columns:
        if column not in header:
            found = ", ".join(header) or "an empty file"
            raise UserError(f"{where}: no column {column!r} (found {found[:500]}){nearest(column, header)}")
        if header.count(column) > 1:
            raise UserError(f"{where}: column {column!r} is there {header.count(column)} times")
    return [header.index(column) for column in columns]


def check_width(where: str, cells: list[str], header: list[str], hint: str) -> None:
    """Raises UserError for a row with too many cells, adding the hint, or too few."""
    if len(cells) != len(header):
        more = hint if len(cells) > len(header) else ""
        raise UserError(f"{where}: expected {len(header)} columns, found {len(cells)}{more}")


def json_object(where: str, text: str, columns: Sequence[str]) -> dict[str, Any]:
    """The object in a line of JSON. Raises UserError: no JSON, no object, or one of the columns is no key of it."""
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
