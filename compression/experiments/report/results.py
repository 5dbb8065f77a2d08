"""results.json: rows of scores and sizes, each with a checksum, so that a file edited by hand is noticed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.store.files import fingerprint, read_json, write_json

Row = dict[str, Any]
NEEDED = ("task", "split", "model", "stage", "seed", "metrics", "bytes_model", "bytes_gzip")
"""Fields that every row has, whoever reads it."""


def write_results(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, each with its checksum."""
    write_json(path, [{**row, "checksum": _checksum(row)} for row in rows])


def read_results(path: Path) -> list[Row]:
    """The rows of a results.json.

    Raises UserError when it is missing, is no such file, or holds a row that is not as it was written.
    """
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: not a results file (a list of rows)")
    for number, row in enumerate(rows, 1):
        missing = [name for name in NEEDED if name not in row]
        if missing:
            raise UserError(f"{path}: row {number} has no {missing[0]!r}; make it again by running the experiment")
        if row.get("checksum") != _checksum(row):
            raise UserError(
                f"{path}: row {number} ({row['model']}) was changed after it was written; "
                "make it again by running the experiment"
            )
    return rows


def _checksum(row: Row) -> str:
    return fingerprint({name: value for name, value in row.items() if name != "checksum"})
