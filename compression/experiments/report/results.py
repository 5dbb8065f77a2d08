"""results.json: rows of scores and sizes, each with a checksum that detects changes made by hand."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from common.errors import UserError
from common.store.files import fingerprint, read_json, write_text
from compression.evaluation.rows import Row

T = TypeVar("T")
NEEDED = ("task", "split", "model", "stage", "seed", "metrics", "bytes_model", "bytes_gzip")
"""Fields that every row has."""


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return key -> items, in the order in which the keys first appear."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def write_lines(path: Path, value: list[Any] | dict[str, Any]) -> None:
    """Write JSON with one entry per line, also for the lists of mappings inside a mapping."""

    def block(entry: Any) -> str:
        rows = isinstance(entry, list) and entry and all(isinstance(row, dict) for row in entry)
        lines = [json.dumps(row, ensure_ascii=False) for row in entry] if rows else []
        return "[\n" + ",\n".join(lines) + "\n]" if rows else json.dumps(entry, ensure_ascii=False)

    if isinstance(value, list):
        write_text(path, block(value) + "\n")
    else:
        write_text(path, "{\n" + ",\n".join(f'"{name}": {block(entry)}' for name, entry in value.items()) + "\n}\n")


def write_results(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, one per line, each with its checksum."""
    write_lines(path, [{**row, "checksum": _checksum(row)} for row in rows])


def read_results(path: Path) -> list[Row]:
    """Return the rows of a results.json.

    Raises UserError if the file is missing or malformed, or has a row that was changed after it was written.
    """
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: not a results file (a list of rows)")
    for number, row in enumerate(rows, 1):
        missing = [name for name in NEEDED if name not in row]
        if missing:
            raise UserError(f"{path}: row {number} has no {missing[0]!r}; write it again by running the experiment")
        if row.get("checksum") != _checksum(row):
            raise UserError(
                f"{path}: row {number} ({row['model']}) was changed after it was written; "
                "write it again by running the experiment"
            )
    return rows


def _checksum(row: Row) -> str:
    return fingerprint({name: value for name, value in row.items() if name != "checksum"})
