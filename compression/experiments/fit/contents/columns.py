"""Which of a table's columns are texts and labels: those that the user names, or the only ones that look so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.data.readers.any_table import Table, named_columns
from common.data.readers.label_cells import is_number
from common.data.readers.records import is_missing
from common.data.text import text_key, words_in
from common.errors import UserError
from compression.experiments.fit.settings import FitSettings
from compression.runtime.words import stands_alone

_TEXT_NAMES = ("text", "texts", "sentence", "review", "content", "body", "comment", "message", "document")
LABEL_NAMES = ("label", "labels", "class", "category", "target")
_LONG = 3.0
"""Mean number of words from which on a column counts as texts."""


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
