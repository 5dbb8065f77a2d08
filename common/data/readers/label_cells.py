"""Labels in a table's cells: rows with them, and whether they are lists, numbers to predict, or labels."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from common.data.readers.any_table import Table, named_columns
from common.data.readers.records import as_sentence, column_indices, is_missing, kind_of
from common.data.readers.tables import JOINED_SUFFIXES, as_label, as_labels
from common.data.tasks import JOINED_BY
from common.errors import UserError
from common.kinds.registry import LABELS, MULTILABEL, NUMBERS

FEWEST_OF_LABEL = 5
"""Rows of a label that has fewer rows are left out."""
MOST_LABELS = 500
"""A column with more distinct values is not a label column."""
SCORES = 20
"""A column of numbers with more distinct values is a regression target."""
_MOSTLY = 0.9
"""Share of a column's distinct values from which on they should all be numbers."""
_OTHER_SEPARATORS = (", ", ",", ";")
"""Separators of labels that are not taken as such without --separator."""
LABEL_COLUMNS = "label columns"
"""Name of the column of lists that several columns of labels become."""
_YES, _NO = ("1", "1.0", "true", "yes", "x"), ("0", "0.0", "false", "no")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_WITH_UNIT = re.compile(r"([^\w\s+.-]?) ?[+-]?\d[\d.,]*( ?[^\w\s]| [^\W\d]+|/\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")

Row = tuple[Any, ...]
"""A row's texts, then its label as text, or a tuple of labels for multilabel; None if the label is unknown."""


def read_rows(table: Table, texts: Sequence[str], label: str, kind: str, separator: str | None = None) -> list[Row]:
    """Return the texts and the label of every row. separator: of several labels in a cell; None: | in CSV and TSV.

    Raises UserError for a missing column, with the closest name, and, with its row, for a cell that is not text or not
    a label or list of labels like the others.
    """
    *indices, last = column_indices(str(table.path), table.header, [*texts, label])
    separator = separator or _joined_by(table.path)
    rows = []
    for number, cells in enumerate(table.rows, 1):
        try:
            answer = _answer(cells[last], kind == MULTILABEL.name, separator)
            rows.append((*(as_sentence(cells[index]) for index in indices), answer))
        except UserError as error:
            raise UserError(f"{table.path} row {number}: {error}") from None
    return rows


def _joined_by(path: Path) -> str | None:
    return JOINED_BY if kind_of(path) in JOINED_SUFFIXES else None


def _answer(cell: Any, several: bool, separator: str | None) -> tuple[str, ...] | str | None:
    """Return the label or labels in a cell, None if they are unknown."""
    if several:
        if cell is None:
            return None
        labels = tuple(dict.fromkeys(as_labels(cell, separator)))
        if "" in labels:
            raise UserError(f"an empty label ({str(cell)[:40]})")
        return labels
    if isinstance(cell, list):
        if len(cell) != 1:
            raise UserError(f"a list of {len(cell)} labels where a row has one label ({str(cell)[:40]})")
        cell = cell[0]
    return as_label(cell) or None


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


def labels_of(row: Row) -> tuple[str, ...]:
    """Return the labels of a row; empty if they are unknown."""
    label = row[-1]
    if label is None:
        return ()
    return label if isinstance(label, tuple) else (label,)


def label_counts(rows: Iterable[Row]) -> Counter[str]:
    """Return how many rows have each label."""
    return Counter(label for row in rows for label in labels_of(row))


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


def usual_labels(counts: Counter[str], where: str, kind: str = LABELS.name) -> tuple[tuple[str, ...], list[str]]:
    """Return the sorted labels on enough rows, and the labels left out. counts: label -> rows.

    Raises UserError for a single class, for more than MOST_LABELS labels (for multilabel, labels on enough rows), and
    for a multilabel label that contains |, which joins labels in predictions.
    """
    several = kind == MULTILABEL.name
    if len(counts) == 1:
        only = f"{next(iter(counts))[:80]!r}"
        if several:
            raise UserError(f"{where}: {only} is the only label; give a column with two, such as yes and no")
        raise UserError(f"{where}: every row has the label {only}; there is nothing to learn")
    kept = [name for name, count in counts.items() if count >= FEWEST_OF_LABEL]
    different = len(kept) if several else len(counts)
    if different > MOST_LABELS:
        raise UserError(f"{where} has {different:,} different values (labels: at most {MOST_LABELS}); is it an id?")
    joined = [name for name in kept if JOINED_BY in name]
    if several and joined:
        raise UserError(f"{where}: label {joined[0][:80]!r} contains {JOINED_BY}, which joins labels in predictions")
    if len(kept) < 2:
        raise UserError(
            f"{where}: {len(kept)} of {len(counts)} labels on {FEWEST_OF_LABEL} rows or more; two are needed "
            "(is it the right column?)"
        )
    order = float if all(map(is_number, kept)) else str
    return tuple(sorted(kept, key=order)), sorted(set(counts) - set(kept))


def has_lists(table: Table, label: str, kind: str, separator: str | None) -> bool:
    """Return whether rows have any number of labels: at least one list has several labels or none.

    In CSV and TSV a list is a text joined by |. Since a | may be part of a label there, some label must also occur in
    several different cells. kind: --kind; separator: --separator. Raises UserError for lists as text, such as
    ['a', 'b'], and if lists are asked for and no cell has the separator.
    """
    cells, joined_by = table.column(label), separator or _joined_by(table.path)
    texts = {cell for cell in cells if isinstance(cell, str) and cell.strip()}
    lists = [cell for cell in cells if isinstance(cell, list)]  # in CSV, only of a teacher's answers
    if len({*map(len, lists)}) == 1 < len(lists[0]) and all(item in (0, 1) for item in itertools.chain(*lists)):
        raise UserError(
            f"{table.path}: column {label!r} has 0 or 1 for each of {len(lists[0])} labels, such as "
            f"{str(lists[0])[:40]}; save lists of the labels' names, or a column for each label, all given with --label"
        )
    if separator or kind == MULTILABEL.name:
        if joined_by and texts and not any(joined_by in text for text in texts):
            likely = likely_separator(texts)
            raise UserError(
                f"{table.path}: no cell of column {label!r} has the separator {joined_by!r} of several labels; give it "
                f"with --separator{f' {likely!r}' if likely else ''}"
            )
        return True
    if kind != "auto":
        return False
    if not joined_by or lists:
        return any(len(cell) != 1 for cell in lists)
    is_list = any("," in text or text[1:2] in ("'", '"') for text in texts)
    if is_list and all(text.startswith("[") and text.endswith("]") for text in texts):
        raise UserError(
            f"{table.path}: column {label!r} contains lists as text, such as {min(texts)[:80]}; join the labels of "
            f"a row by {JOINED_BY}, or save lists as JSONL; --kind labels takes each text as a label"
        )
    return _are_lists(texts, JOINED_BY)


def likely_separator(values: Collection[str]) -> str | None:
    """Return what seems to join labels in values, if anything does."""
    return next((separator for separator in _OTHER_SEPARATORS if _are_lists(values, separator)), None)


def _are_lists(values: Iterable[str], separator: str) -> bool:
    """Return whether a separator joins parts of values that also occur in other values."""
    lists = [as_labels(value, separator) for value in values]
    if any("" in names or len(set(names)) < len(names) for names in lists):
        return False
    counts = Counter(name for names in lists for name in names)
    return any(counts[name] > 1 for names in lists if len(names) > 1 for name in names)


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def are_numbers(counts: Counter[str], kind: str, where: str) -> bool:
    """Return whether the values of a label column are numbers to predict rather than labels.

    counts: value -> rows; kind: --kind. Raises UserError for a column that looks like an id; for one of numbers but
    for a few values, such as NA; and if --kind numbers is given and a value is not a number.
    """
    strange = next((value for value in counts if not is_number(value)), None)
    if kind == NUMBERS.name:
        if strange is not None:
            raise UserError(f"{where}: {strange[:80]!r} is not a number, but --kind numbers was given")
        if len(counts) < 2:
            raise UserError(f"{where}: every row has the number {next(iter(counts))}; there is nothing to learn")
        return True
    if kind != "auto" or len(counts) <= SCORES:
        return False
    numbers = Counter({value: count for value, count in counts.items() if is_number(value)})
    if strange is not None and len(numbers) >= _MOSTLY * len(counts) and are_numbers(numbers, kind, where):
        raise UserError(
            f"{where}: {strange[:80]!r} is not a number, but most values are; leave the cells of unknown numbers "
            "empty, or give --kind labels"
        )
    whole = strange is None and all(float(value).is_integer() for value in counts)
    if (whole or strange is not None) and len(counts) == counts.total():
        raise UserError(
            f"{where} has a different value on each of {len(counts):,} rows; is it an id? Give the column of labels "
            f"with --label{', or give --kind numbers' if whole else ''}"
        )
    if strange is not None:
        return False
    values = set(map(float, counts))
    no_gaps = whole and max(values) - min(values) == len(values) - 1
    return not (no_gaps and min(counts.values()) > 1 and len(counts) <= MOST_LABELS)


def decimal_mark(values: Collection[str]) -> str | None:
    """Return the mark of decimals of a column's numbers, a point or a comma; None if some value is not a number.

    The other mark may separate thousands. Numbers such as 1,234 have thousands only if others of the column show it.
    """
    points = all(is_number(value) or _THOUSANDS.fullmatch(value) for value in values)
    commas = all(map(_DECIMAL_COMMA.fullmatch, values))
    if points and not (commas and all("," in value for value in values)):
        return "."
    return "," if commas else None


def have_unit(values: Collection[str]) -> bool:
    """Return whether all values are numbers with the same sign or unit, such as 50%, $9.99, 3 kg or 7/10."""
    matches = [_WITH_UNIT.fullmatch(value) for value in values]
    units = {match.groups("") for match in matches if match}
    return all(matches) and len(units) == 1 and units != {("", "")}


def plain_number(text: str, mark: str) -> str:
    """Return a number with a decimal point and without marks of thousands."""
    return text.replace(",", "") if mark == "." else text.replace(".", "").replace(",", ".")


def with_plain_numbers(rows: Sequence[Row], mark: str) -> list[Row]:
    """Return rows whose labels are numbers with decimal points."""
    return [(*row[:-1], None if row[-1] is None else plain_number(row[-1], mark)) for row in rows]
