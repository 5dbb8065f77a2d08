"""Detection of a table's text and label columns, and of the kind of labels. Pure functions, except for messages."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from common.data.readers.records import MAX_CHARACTERS, as_sentence, column_indices, is_missing, kind_of
from common.data.readers.tables import JOINED_SUFFIXES, as_label, as_labels, too_long
from common.data.tasks import JOINED_BY
from common.data.text import text_key, words_in
from common.errors import UserError
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.table import Table
from compression.runtime.words import stands_alone

FEWEST_ROWS = 50
"""Minimum number of labelled rows: a tenth each is held out as validation and test."""
FEWEST_OF_LABEL = 5
"""Rows of a label that has fewer rows are left out."""
MOST_LABELS = 500
"""A column with more distinct values is not a label column."""
SCORES = 20
"""A column of numbers with more distinct values is a regression target."""
_TEXT_NAMES = ("text", "texts", "sentence", "review", "content", "body", "comment", "message", "document")
_LABEL_NAMES = ("label", "labels", "class", "category", "target")
_OTHER_SEPARATORS = (", ", ",", ";")
"""Separators of labels that are not taken as such without --separator."""
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")
_LONG = 3.0
"""Mean number of words from which on a column counts as texts."""

Row = tuple[Any, ...]
"""A row's texts, then its label as text, or a tuple of labels for multilabel; None if the label is unknown."""


@dataclasses.dataclass(frozen=True)
class FileContents:
    """Contents of a file, as detected.

    texts: names of one or two columns; label: the label column; labels: the labels, empty for numbers; range: lowest
    and highest number; values: every usable row; multilabel: whether a row has any number of labels; decimal_mark: of
    the file's numbers, which have points in `values`; left_out: labels on too few rows; notes: sentences on what was
    guessed or left out; test: usable rows of --test, None without it.
    """

    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    range: tuple[float, float] | None
    values: list[Row]
    multilabel: bool = False
    decimal_mark: str = "."
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    test: Sequence[Row] | None = None

    @property
    def pair(self) -> bool:
        """Whether a row has two texts."""
        return len(self.texts) == 2


def detect(table: Table, settings: FitSettings) -> FileContents:
    """Return the contents of the user's table.

    Raises UserError for a missing column, with the closest name; for columns that are ambiguous without --text or
    --label; and for texts that are numbers, a single class, labels that look like an id, or too few rows.
    """
    texts = _named(table, "--text", settings.text) or (_guess_text(table, settings.label),)
    (label,) = _named(table, "--label", [settings.label] if settings.label else []) or (_guess_label(table, texts),)
    for name in texts:
        _check_text(table, name)
    notes = table_notes(table, texts)
    multilabel = is_multilabel(table, label, settings.kind, settings.separator)
    notes += _form_notes(table, label, multilabel, settings.separator)
    rows = read_rows(table, texts, label, multilabel, settings.separator)
    usable = [row for row in rows if all(row[:-1])]
    if len(usable) < len(rows):
        notes.append(f"{len(rows) - len(usable):,} rows without text are left out.")
    counts = Counter(itertools.chain.from_iterable(map(labels_of, usable)))
    where = f"{table.path}: column {label!r}"
    _check_rows(table, label, counts, sum(row[-1] is not None for row in usable))
    mark = None if multilabel or settings.kind == "labels" else decimal_mark(counts)
    plain = with_plain_numbers(usable, mark) if mark else []
    if mark and is_numbers(Counter(row[-1] for row in plain if row[-1] is not None), settings.kind, where):
        if settings.kind == "auto":
            notes.append(f"Column {label!r} has numbers to predict (--kind labels takes each as a label).")
        if with_comma := [value for value in counts if "," in value]:
            shown = plain_number(with_comma[0], mark)
            notes.append(f"Numbers such as {with_comma[0]} are read as {shown} (--kind labels takes each as a label).")
        usable = plain
        numbers = [float(row[-1]) for row in usable if row[-1] is not None]
        contents = FileContents(texts, label, (), (min(numbers), max(numbers)), usable, decimal_mark=mark)
    else:
        if not multilabel:
            is_numbers(counts, settings.kind, where)
        kept, left_out = usual_labels(counts, where, multilabel)
        if settings.kind == "auto" and not multilabel:
            notes += _guess_notes(counts, mark is not None)
        notes += _variant_notes(counts)
        if left_out:
            shown = ", ".join(map(repr, left_out[:5])) + (", ..." if len(left_out) > 5 else "")
            rows_out = sum(counts[name] for name in left_out)
            notes.append(f"Labels on fewer than {FEWEST_OF_LABEL} rows are left out: {shown} ({rows_out} rows).")
            usable = without_labels(usable, left_out)
        contents = FileContents(texts, label, kept, None, usable, multilabel, left_out=tuple(left_out))
    if none := sum(row[-1] == () for row in usable):
        notes.append(f"{none:,} rows have none of the labels.")
    if unknown := sum(row[-1] is None for row in usable):
        notes.append(f"{unknown:,} rows have no label: they are only distilled on.")
    return dataclasses.replace(contents, notes=tuple(notes))


def _named(table: Table, flag: str, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(table.header[index] for index in column_indices(f"{flag}: {table.path}", table.header, columns))


def table_notes(table: Table, texts: Sequence[str]) -> list[str]:
    """Return notes on a table's sampled rows and its long texts."""
    notes = [table.sampled] if table.sampled else []
    cells = itertools.chain.from_iterable(map(table.column, texts))
    if long := sum(isinstance(cell, str) and len(cell) > MAX_CHARACTERS for cell in cells):
        notes.append(too_long(long).removesuffix("."))
    return [f"{table.path.name}: {note}." for note in notes]


def is_multilabel(table: Table, label: str, kind: str, separator: str | None = None) -> bool:
    """Return whether rows have any number of labels: at least one list has several labels or none.

    In CSV and TSV a list is a text joined by |. Since a | may be part of a label there, some label must also occur in
    several different cells. kind: --kind; separator: --separator. Raises UserError for lists as text, such as
    ['a', 'b'], and if lists are asked for and no cell has the separator.
    """
    joined = kind_of(table.path) in JOINED_SUFFIXES
    if separator or kind == "multilabel":
        texts = {cell for cell in table.column(label) if isinstance(cell, str) and cell.strip()}
        if texts and (joined or separator) and not any((separator or JOINED_BY) in text for text in texts):
            likely = next((other for other in _OTHER_SEPARATORS if _are_lists(texts, other)), None)
            raise UserError(
                f"{table.path}: no cell of column {label!r} has the separator {separator or JOINED_BY!r} of several "
                f"labels; give it with --separator{f' {likely!r}' if likely else ''}"
            )
        return True
    if kind != "auto":
        return False
    if not joined:
        return any(isinstance(cell, list) and len(cell) != 1 for cell in table.column(label))
    values = {cell for cell in table.column(label) if cell.strip()}
    if all(value.startswith("[") and value.endswith("]") for value in values) and any("," in value for value in values):
        raise UserError(
            f"{table.path}: column {label!r} contains lists as text, such as {min(values)[:80]}; join the labels of "
            f"a row by {JOINED_BY}, or save lists as JSONL; --kind labels takes each text as a label"
        )
    return _are_lists(values, JOINED_BY)


def _are_lists(values: Iterable[str], separator: str) -> bool:
    """Return whether a separator joins parts of values that also occur in other values."""
    lists = [as_labels(value, separator) for value in values]
    if any("" in names or len(set(names)) < len(names) for names in lists):
        return False
    joined = {name for names in lists if len(names) > 1 for name in names}
    return any(count > 1 for name, count in Counter(itertools.chain(*lists)).items() if name in joined)


def _form_notes(table: Table, label: str, multilabel: bool, separator: str | None) -> list[str]:
    """Return a note if labels are joined by |, or if every label is a list of one; else an empty list."""
    if multilabel and kind_of(table.path) in JOINED_SUFFIXES and not separator:
        return [f"Labels of a row are joined by {JOINED_BY} (--kind labels takes each text as one label)."]
    if not multilabel and any(isinstance(cell, list) for cell in table.column(label)):
        return ["Every list has one label: a text has one of the labels, not any number of them."]
    return []


def _guess_notes(counts: Counter[str], numbers: bool) -> list[str]:
    """Return notes on labels that could be numbers or lists. counts: label -> rows."""
    if numbers:
        return [f"{len(counts)} numbers are taken as labels (--kind numbers predicts them)."] * (len(counts) > 2)
    for separator in _OTHER_SEPARATORS:
        joined = [name for name in counts if separator in name]
        if joined and _are_lists(counts, separator):
            return [
                f"Labels such as {joined[0][:80]!r} are taken as one (--kind multilabel --separator {separator!r} "
                "takes their parts as labels)."
            ]
    return []


def _variant_notes(counts: Counter[str]) -> list[str]:
    """Return a note on labels that differ only in case, white space or invisible characters."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(counts):
        groups[text_key(name).replace(" ", "")].append(name)
    alike = [", ".join(map(ascii, names)) for names in groups.values() if len(names) > 1]
    if not alike:
        return []
    shown = "; ".join(alike[:5]) + ("; ..." if len(alike) > 5 else "")
    return [f"Labels that differ only in case, white space or invisible characters are different labels: {shown}."]


def read_rows(
    table: Table, texts: Sequence[str], label: str, multilabel: bool, separator: str | None = None
) -> list[Row]:
    """Return the texts and the label of every row. separator: of several labels in a cell; None: | in CSV and TSV.

    Raises UserError for a missing column, with the closest name, and, with its row, for a cell that is not text or not
    a label or list of labels like the others.
    """
    *indices, last = column_indices(str(table.path), table.header, [*texts, label])
    separator = separator or (JOINED_BY if kind_of(table.path) in JOINED_SUFFIXES else None)
    rows = []
    for number, cells in enumerate(table.rows, 1):
        try:
            answer = _list_of(cells[last], separator) if multilabel else _one_of(cells[last])
            rows.append((*(as_sentence(cells[index]) for index in indices), answer))
        except UserError as error:
            raise UserError(f"{table.path} row {number}: {error}") from None
    return rows


def _one_of(cell: Any) -> str | None:
    if isinstance(cell, list):
        if len(cell) != 1:
            raise UserError(f"a list of {len(cell)} labels where a row has one label ({str(cell)[:40]})")
        cell = cell[0]
    return as_label(cell) or None


def _list_of(cell: Any, separator: str | None) -> tuple[str, ...] | None:
    if cell is None:
        return None
    labels = tuple(dict.fromkeys(as_labels(cell, separator)))
    if "" in labels:
        raise UserError(f"an empty label ({str(cell)[:40]})")
    return labels


def labels_of(row: Row) -> tuple[str, ...]:
    """Return the labels of a row; empty if they are unknown."""
    label = row[-1]
    return label if isinstance(label, tuple) else () if label is None else (label,)


def without_labels(rows: Sequence[Row], left_out: Iterable[str]) -> list[Row]:
    """Return rows without the labels in `left_out`; rows that have no other label are dropped."""
    kept, out = [], set(left_out)
    for row in rows:
        labels = labels_of(row)
        others = tuple(label for label in labels if label not in out)
        if others == labels:
            kept.append(row)
        elif others:
            kept.append((*row[:-1], others))
    return kept


def _guess_text(table: Table, label: str | None) -> str:
    """Return the text column. Raises UserError if it is ambiguous."""
    others = [name for name in _usable_names(table) if name != label]
    long = [name for name in others if _mean_words(table.column(name)) >= _LONG]
    named = [name for name in others if name.lower() in _TEXT_NAMES]
    for choice in (long, named):
        if len(choice) == 1:
            return choice[0]
    if exact := [name for name in long if name.lower() == "text"]:
        return exact[0]
    raise UserError(
        f"{table.path}: give the column of the texts with --text, or both columns of pairs ({_described(table)})"
    )


def _guess_label(table: Table, texts: Sequence[str]) -> str:
    """Return the label column. Raises UserError if it is ambiguous."""
    others = [name for name in _usable_names(table) if name not in texts]
    named = [name for name in others if name.lower() in _LABEL_NAMES]
    lists = [name for name in others if any(isinstance(cell, list) for cell in table.column(name))]
    different = {name: len({str(cell)[:100] for cell in table.column(name)}) for name in others}
    few = [name for name, count in different.items() if 2 <= count <= max(2, len(table.rows) // 10)]
    for choice in (named, lists, few, others):
        if len(choice) == 1:
            return choice[0]
    raise UserError(f"{table.path}: give the column of the labels with --label ({_described(table)})")


def _usable_names(table: Table) -> list[str]:
    return [name for name in table.header if name and table.header.count(name) == 1]


def _described(table: Table) -> str:
    return "columns: " + ", ".join(filter(None, table.header))[:500]


def _mean_words(cells: Sequence[Any]) -> float:
    """Return the mean number of words, 0 for a column without text or mostly of numbers.

    In texts of scripts without spaces, two letters count as a word.
    """
    texts = [cell for cell in cells[:1000] if isinstance(cell, str) and cell.strip()]
    if not texts or sum(map(is_number, texts)) * 2 > len(texts):
        return 0.0
    counts = (words_in(text_key(text)) if any(map(stands_alone, text)) else len(text.split()) for text in texts)
    return sum(counts) / len(texts)


def _check_text(table: Table, name: str) -> None:
    cells = [cell for cell in table.column(name) if not is_missing(cell) and cell != ""]
    numbers = sum(isinstance(cell, int | float) or (isinstance(cell, str) and is_number(cell)) for cell in cells)
    if not cells:
        raise UserError(f"{table.path}: column {name!r} is empty")
    if numbers * 10 >= len(cells) * 9:
        raise UserError(f"{table.path}: column {name!r} contains numbers, not texts; give another one with --text")


def _check_rows(table: Table, label: str, counts: Counter[str], total: int) -> None:
    """Raise UserError for too few labelled rows. counts: label -> rows; total: rows whose label is known."""
    if not counts:
        raise UserError(f"{table.path}: column {label!r} is empty: no row has a label")
    if total < FEWEST_ROWS:
        raise UserError(f"{table.path}: {total} row{'s' * (total > 1)} with a label; fit needs {FEWEST_ROWS} or more")


def is_numbers(counts: Counter[str], kind: str, where: str) -> bool:
    """Return whether the values of a label column are numbers to predict rather than labels.

    counts: value -> rows. Raises UserError for a column that looks like an id, and if --kind numbers is given but the
    values are not numbers.
    """
    numbers = all(map(is_number, counts))
    if kind == "numbers":
        if not numbers:
            strange = next(value for value in counts if not is_number(value))
            raise UserError(f"{where}: {strange[:80]!r} is not a number, but --kind numbers was given")
        if len(counts) < 2:
            raise UserError(f"{where}: every row has the number {next(iter(counts))}; there is nothing to learn")
        return True
    whole = numbers and all(float(value).is_integer() for value in counts)
    if kind == "auto" and (whole or not numbers) and len(counts) > SCORES and len(counts) == counts.total():
        raise UserError(
            f"{where} has a different value on each of {len(counts):,} rows; is it an id? Give the column of labels "
            f"with --label{', or give --kind numbers' if whole else ''}"
        )
    if kind == "labels" or not numbers or len(counts) <= SCORES:
        return False
    values = sorted(map(float, counts))
    no_gaps = whole and values[-1] - values[0] == len(set(values)) - 1
    return not (no_gaps and min(counts.values()) > 1 and len(counts) <= MOST_LABELS)


def decimal_mark(values: Collection[str]) -> str | None:
    """Return the mark of decimals of a column's numbers, a point or a comma; None if some value is not a number.

    The other mark may separate thousands. Numbers such as 1,234 have thousands only if others of the column show it.
    """
    with_comma = [value for value in values if "," in value]
    others = [value for value in values if "," not in value]
    thousands = all(map(is_number, others)) and all(map(_THOUSANDS.fullmatch, with_comma))
    if thousands and (not with_comma or others or any(value.count(",") > 1 or "." in value for value in with_comma)):
        return "."
    return "," if all(map(_DECIMAL_COMMA.fullmatch, values)) else None


def plain_number(text: str, mark: str) -> str:
    """Return a number with a decimal point and without marks of thousands."""
    return text.replace(",", "") if mark == "." else text.replace(".", "").replace(",", ".")


def with_plain_numbers(rows: Sequence[Row], mark: str) -> list[Row]:
    """Return rows whose labels are numbers with decimal points."""
    return [(*row[:-1], None if row[-1] is None else plain_number(row[-1], mark)) for row in rows]


def usual_labels(counts: Counter[str], where: str, multilabel: bool = False) -> tuple[tuple[str, ...], list[str]]:
    """Return the sorted labels on enough rows, and the labels left out. counts: label -> rows.

    Raises UserError for a single class, for more than MOST_LABELS labels (for multilabel, labels on enough rows), and
    for a multilabel label that contains |, which joins labels in predictions.
    """
    if len(counts) == 1:
        only = f"{next(iter(counts))[:80]!r}"
        if multilabel:
            raise UserError(f"{where}: {only} is the only label; give a column with two, such as yes and no")
        raise UserError(f"{where}: every row has the label {only}; there is nothing to learn")
    kept = [name for name, count in counts.items() if count >= FEWEST_OF_LABEL]
    if (different := len(kept if multilabel else counts)) > MOST_LABELS:
        raise UserError(f"{where} has {different:,} different values (labels: at most {MOST_LABELS}); is it an id?")
    if multilabel and (joined := [name for name in kept if JOINED_BY in name]):
        raise UserError(f"{where}: label {joined[0][:80]!r} contains {JOINED_BY}, which joins labels in predictions")
    if len(kept) < 2:
        raise UserError(
            f"{where}: {len(kept)} of {len(counts)} labels on {FEWEST_OF_LABEL} rows or more; two are needed "
            "(is it the right column?)"
        )
    order = float if all(map(is_number, kept)) else str
    return tuple(sorted(kept, key=order)), sorted(set(counts) - set(kept))


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False
