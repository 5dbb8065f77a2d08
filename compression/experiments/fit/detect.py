"""What a table holds: columns of texts and of labels, labels or numbers. Pure functions, except for messages."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from common.data.readers.records import as_sentence, column_indices
from common.data.readers.tables import as_label
from common.errors import UserError
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.table import Table

FEWEST_ROWS = 50
"""Rows with a label that fit needs: a tenth each is held out as validation and test."""
FEWEST_OF_LABEL = 5
"""Rows of a label with fewer are left out."""
MOST_LABELS = 500
"""More different labels are not taken to be labels."""
SCORES = 20
"""A column of numbers with more different values is a regression."""
_TEXT_NAMES = ("text", "texts", "sentence", "review", "content", "body", "comment", "message", "document")
_LABEL_NAMES = ("label", "labels", "class", "category", "target")
_LONG = 3.0
"""Mean number of words from which a column holds texts."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What a file holds.

    texts: names of one or two columns; label: the column of labels; labels: the labels, none for numbers; range: lowest
    and highest number; values: of every usable row, its texts, then its label as text ("" where it has none); notes:
    what was guessed or left out, in sentences.
    """

    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    range: tuple[float, float] | None
    values: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    @property
    def pair(self) -> bool:
        """Whether a row has two texts."""
        return len(self.texts) == 2


def detect(table: Table, settings: FitSettings) -> Found:
    """Return what the table of the user's file holds.

    Raises UserError for a missing column, with the nearest; where the columns are ambiguous without --text or --label;
    for texts that are numbers, one class, labels that look like an id, and too few rows.
    """
    column_indices(f"--text: {table.path}", table.header, settings.text)
    texts = settings.text or (_guess_text(table, settings.label),)
    column_indices(f"--label: {table.path}", table.header, [settings.label] if settings.label else [])
    label = settings.label or _guess_label(table, texts)
    notes = [f"{table.path.name}: {table.sampled}."] if table.sampled else []
    for name in texts:
        _check_text(table, name)
    rows = read_rows(table, texts, label)
    usable = [row for row in rows if all(row[:-1])]
    if len(usable) < len(rows):
        notes.append(f"{len(rows) - len(usable):,} rows without text are left out.")
    counts = Counter(row[-1] for row in usable if row[-1])
    where = f"{table.path}: column {label!r}"
    _check_rows(table, label, counts)
    if is_numbers(counts, settings.kind, where):
        numbers = [float(value) for value in counts]
        found = Found(texts, label, (), (min(numbers), max(numbers)), usable)
    else:
        kept, left_out = usual_labels(counts, where)
        if left_out:
            shown = ", ".join(map(repr, left_out[:5])) + (", ..." if len(left_out) > 5 else "")
            rows_out = sum(counts[name] for name in left_out)
            notes.append(f"Labels on fewer than {FEWEST_OF_LABEL} rows are left out: {shown} ({rows_out} rows).")
            usable = [row for row in usable if row[-1] not in set(left_out)]
        found = Found(texts, label, kept, None, usable)
    if without := sum(not row[-1] for row in usable):
        notes.append(f"{without:,} rows have no label: they are only distilled on.")
    return dataclasses.replace(found, notes=tuple(notes))


def read_rows(table: Table, texts: Sequence[str], label: str) -> list[tuple[str, ...]]:
    """Return the texts and the label of every row.

    Raises UserError for a missing column, with the nearest, and for a cell that is not text, with its row.
    """
    *indices, last = column_indices(str(table.path), table.header, [*texts, label])
    rows = []
    for number, cells in enumerate(table.rows, 1):
        try:
            rows.append((*(as_sentence(cells[index]) for index in indices), as_label(cells[last])))
        except UserError as error:
            raise UserError(f"{table.path} row {number}: {error}") from None
    return rows


def _guess_text(table: Table, label: str | None) -> str:
    """Return the column of texts where it is unambiguous. Raises UserError otherwise."""
    others = [name for name in table.header if name != label]
    long = [name for name in others if _mean_words(table.column(name)) >= _LONG]
    named = [name for name in others if name.lower() in _TEXT_NAMES]
    for choice in (long, named):
        if len(choice) == 1:
            return choice[0]
    exact = [name for name in long if name.lower() == "text"]
    if exact:
        return exact[0]
    raise UserError(
        f"{table.path}: say with --text which column holds the texts, or which two of pairs ({_described(table)})"
    )


def _guess_label(table: Table, texts: Sequence[str]) -> str:
    """Return the column of labels where it is unambiguous. Raises UserError otherwise."""
    others = [name for name in table.header if name not in texts]
    named = [name for name in others if name.lower() in _LABEL_NAMES]
    few = [name for name in others if 2 <= len(set(map(_safe, table.column(name)))) <= max(2, len(table.rows) // 10)]
    for choice in (named, few, others):
        if len(choice) == 1:
            return choice[0]
    raise UserError(f"{table.path}: say with --label which column holds the labels ({_described(table)})")


def _safe(cell: Any) -> str:
    return str(cell)[:100]


def _described(table: Table) -> str:
    return "columns: " + ", ".join(table.header)[:500]


def _mean_words(cells: Sequence[Any]) -> float:
    """Return the mean number of words, 0 for a column that is not of text or mostly of numbers."""
    texts = [cell for cell in cells[:1000] if isinstance(cell, str) and cell.strip()]
    if not texts or sum(map(_is_number, texts)) * 2 > len(texts):
        return 0.0
    return sum(len(text.split()) for text in texts) / len(texts)


def _check_text(table: Table, name: str) -> None:
    cells = [cell for cell in table.column(name) if cell is not None and cell != ""]
    numbers = sum(isinstance(cell, int | float) or (isinstance(cell, str) and _is_number(cell)) for cell in cells)
    if not cells:
        raise UserError(f"{table.path}: column {name!r} is empty")
    if numbers * 10 >= len(cells) * 9:
        raise UserError(f"{table.path}: column {name!r} holds numbers, not texts; name another one with --text")


def _check_rows(table: Table, label: str, counts: Counter[str]) -> None:
    total = counts.total()
    if not total:
        raise UserError(f"{table.path}: column {label!r} is empty: no row has a label")
    if total < FEWEST_ROWS:
        raise UserError(f"{table.path}: {total} row{'s' * (total > 1)} with a label; fit needs {FEWEST_ROWS} or more")


def is_numbers(counts: Counter[str], kind: str, where: str) -> bool:
    """Return whether the values of a label column are numbers to predict, not labels.

    counts: value -> rows. Raises UserError for a column that looks like an id, and --kind numbers for other values.
    """
    numbers = all(map(_is_number, counts))
    if kind == "numbers":
        if not numbers:
            strange = next(value for value in counts if not _is_number(value))
            raise UserError(f"{where}: {strange[:80]!r} is not a number, and --kind numbers expects them")
        if len(counts) < 2:
            raise UserError(f"{where} holds one number only, {next(iter(counts))}: there is nothing to learn")
        return True
    whole = numbers and all(float(value).is_integer() for value in counts)
    if kind == "auto" and (whole or not numbers) and len(counts) > SCORES and len(counts) == counts.total():
        raise UserError(
            f"{where} has another value on each of {len(counts):,} rows; is it an id? Name the labels' column with "
            f"--label{', or give --kind numbers' if whole else ''}"
        )
    return kind == "auto" and numbers and len(counts) > SCORES


def usual_labels(counts: Counter[str], where: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the labels on enough rows, sorted, and those left out. counts: label -> rows.

    Raises UserError for one class, and for more labels than MOST_LABELS.
    """
    if len(counts) == 1:
        raise UserError(f"{where}: every row has the label {next(iter(counts))[:80]!r}; there is nothing to learn")
    if len(counts) > MOST_LABELS:
        raise UserError(f"{where} has {len(counts):,} different values (labels: at most {MOST_LABELS}); is it an id?")
    kept = [name for name, count in counts.items() if count >= FEWEST_OF_LABEL]
    if len(kept) < 2:
        raise UserError(
            f"{where}: {len(kept)} of {len(counts)} labels on {FEWEST_OF_LABEL} rows or more; two are needed "
            "(is it the right column?)"
        )
    order = float if all(map(_is_number, kept)) else str
    return tuple(sorted(kept, key=order)), sorted(set(counts) - set(kept))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False
