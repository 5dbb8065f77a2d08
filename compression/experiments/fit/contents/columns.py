"""Which of a table's columns are texts and labels: those that the user names, or the only ones that look so."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from common.data.readers.records import column_indices, is_missing
from common.data.text import text_key, words_in
from common.errors import UserError
from compression.experiments.fit.contents.labels import is_number
from compression.experiments.fit.contents.table import Table
from compression.experiments.fit.settings import FitSettings
from compression.runtime.words import stands_alone

_TEXT_NAMES = ("text", "texts", "sentence", "review", "content", "body", "comment", "message", "document")
LABEL_NAMES = ("label", "labels", "class", "category", "target")
LABEL_COLUMNS = "label columns"
"""Name of the column of lists that several columns of labels become."""
_YES, _NO = ("1", "1.0", "true", "yes", "x"), ("0", "0.0", "false", "no")
_LONG = 3.0
"""Mean number of words from which on a column counts as texts."""


def named_columns(table: Table, flag: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a flag names, as the table has them. Raises UserError for one that it has not."""
    return tuple(table.header[index] for index in column_indices(f"{flag}: {table.path}", table.header, columns))


def with_lists(table: Table, columns: Sequence[str]) -> Table:
    """Return a table with a further column of lists: the names of those of the columns that say yes.

    In a row without a word in any of them, the list is None, unless an empty cell says no. Raises UserError, which
    names row and column, for a cell that says neither yes nor no.
    """
    names = named_columns(table, "--label", columns)
    by_column = [_yes_or_no(table, name) for name in names]
    rows = []
    for number, (row, *answers) in enumerate(zip(table.rows, *by_column, strict=True), 1):
        unknown = answers.count(None)
        if 0 < unknown < len(names):
            raise _neither(table, number, names[answers.index(None)], "")
        rows.append([*row, None if unknown else list(itertools.compress(names, answers))])
    return dataclasses.replace(table, header=[*table.header, LABEL_COLUMNS], rows=rows)


def _yes_or_no(table: Table, name: str) -> list[bool | None]:
    """Return a column as answers; an empty cell says no if no other word of the column does, else it is None."""
    words = ["" if is_missing(cell) else str(cell).strip().lower() for cell in table.column(name)]
    meaning = dict.fromkeys(_YES, True) | dict.fromkeys(_NO, False)
    meaning[""] = None if set(words) & set(_NO) else False
    for number, word in enumerate(words, 1):
        if word not in meaning:
            raise _neither(table, number, name, word)
    return [meaning[word] for word in words]


def _neither(table: Table, row: int, column: str, word: str) -> UserError:
    return UserError(
        f"{table.path} row {row}: column {column!r} has {word[:80]!r}, which says neither yes nor no (1 or 0, true or "
        "false, yes or no, x or an empty cell)"
    )


def text_columns(table: Table, settings: FitSettings) -> tuple[str, ...]:
    """Return the columns of --text, else the only one with texts. Raises UserError if it is ambiguous."""
    if settings.text:
        return named_columns(table, "--text", settings.text)
    others = [name for name in _usable_names(table) if name not in settings.label]
    long = [name for name in others if _mean_words(table.column(name)) >= _LONG]
    named = [name for name in others if name.lower() in _TEXT_NAMES]
    exact = [name for name in long if name.lower() == "text"]
    return (_only_one(table, (long, named, exact), "the texts with --text, or both columns of pairs"),)


def guess_label(table: Table, texts: Sequence[str]) -> str:
    """Return the label column. Raises UserError if it is ambiguous."""
    others = [name for name in _usable_names(table) if name not in texts]
    named = [name for name in others if name.lower() in LABEL_NAMES]
    lists = [name for name in others if any(isinstance(cell, list) for cell in table.column(name))]
    different = {name: len({str(cell)[:100] for cell in table.column(name)}) for name in others}
    few = [name for name, count in different.items() if 2 <= count <= max(2, len(table.rows) // 10)]
    return _only_one(table, (named, lists, few, others), "the labels with --label")


def check_texts(table: Table, name: str) -> None:
    """Raise UserError for a text column that is empty or has numbers."""
    cells = [str(cell) for cell in table.column(name) if not is_missing(cell) and cell != ""]
    if not cells:
        raise UserError(f"{table.path}: column {name!r} is empty")
    if sum(map(is_number, cells)) * 10 >= len(cells) * 9:
        raise UserError(f"{table.path}: column {name!r} contains numbers, not texts; give another one with --text")


def _usable_names(table: Table) -> list[str]:
    return [name for name in table.header if name and table.header.count(name) == 1]


def _only_one(table: Table, choices: Sequence[Sequence[str]], what: str) -> str:
    """Return the name in the first of the choices that has just one name."""
    for names in choices:
        if len(names) == 1:
            return names[0]
    columns = ", ".join(filter(None, table.header))[:500]
    raise UserError(f"{table.path}: give the column of {what} (columns: {columns})")


def _mean_words(cells: Sequence[Any]) -> float:
    """Return the mean number of words, 0 for a column without text or mostly of numbers.

    In texts of scripts without spaces, two letters count as a word.
    """
    texts = [cell for cell in cells[:1000] if isinstance(cell, str) and cell.strip()]
    if not texts or sum(map(is_number, texts)) * 2 > len(texts):
        return 0.0
    counts = (words_in(text_key(text)) if any(map(stands_alone, text)) else len(text.split()) for text in texts)
    return sum(counts) / len(texts)
