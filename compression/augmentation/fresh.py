"""Selection of additional training rows: rows that contain no held-out text and do not exist already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from common.data.overlap import Keys, near_keys, text_keys
from common.data.split import Split, read_row_groups
from common.data.tasks import Task


def held_out_files(splits: Path, task: Task) -> tuple[Path, ...]:
    """Return the split files of validation and test. splits: the folder of the task's splits."""
    files = (splits / f"{name}.parquet" for name in ("validation", *task.test_splits))
    return tuple(file for file in files if file.exists())


def held_out_keys(files: Iterable[Path]) -> set[str]:
    """Return the near keys and the text keys of all texts in the split files of held-out rows."""
    columns = (column for file in files for rows in read_row_groups(file) for column in _all_keys(rows))
    return {key for column in columns for key in column}


def _all_keys(rows: Split) -> Keys:
    return [*near_keys(rows), *text_keys(rows)]


class Fresh:
    """Selects fresh rows from additional rows, one after another.

    A fresh row contains no held-out text and no text without words, is not a text paired with itself, and equals
    neither a train row nor an earlier row. Texts are compared by their near keys, held-out ones also by their text
    keys, and pairs in either order. The near keys of all texts and one number per row are in memory.
    """

    def __init__(self, train: Keys, held_out: set[str]) -> None:
        self._held_out = held_out
        self._ids: dict[str, int] = {}
        self._seen = {self._number(row) for row in zip(*train, strict=True)}

    def _number(self, row: Sequence[str]) -> int:
        """Return a number that identifies the texts of a row, the same in either order."""
        number = 0
        for text in sorted(self._ids.setdefault(key, len(self._ids)) for key in row):
            number = number << 32 | text
        return number

    def choose(self, rows: Split) -> np.ndarray:
        """Return the indices of the fresh rows, int64. Later calls treat these as earlier rows."""
        chosen = []
        for index, keys in enumerate(zip(*_all_keys(rows), strict=True)):
            row = keys[: len(keys) // 2]
            if "" in row or not self._held_out.isdisjoint(keys) or len(set(row)) < len(row):
                continue
            number = self._number(row)
            if number not in self._seen:
                self._seen.add(number)
                chosen.append(index)
        return np.array(chosen, np.int64)
