"""Contents of a user's table: its columns of texts and labels, and sentences on what was guessed or left out.

Columns are those that the user names, or the only ones that look so.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from common.data.readers.any_table import Table, named_columns, table_notes
from common.data.readers.label_cells import (
    FEWEST_OF_LABEL,
    LABEL_COLUMNS,
    SCORES,
    Row,
    are_numbers,
    decimal_mark,
    has_lists,
    have_unit,
    is_number,
    label_counts,
    likely_separator,
    plain_number,
    read_rows,
    usual_labels,
    with_plain_numbers,
    without_labels,
)
from common.data.readers.records import is_empty, kind_of
from common.data.readers.tables import JOINED_SUFFIXES
from common.data.tasks import JOINED_BY
from common.data.text import text_key, words_in
from common.errors import UserError
from common.kinds.registry import LABELS, MULTILABEL, NUMBERS
from compression.experiments.fit.settings import FitSettings
from compression.experiments.report.results import grouped
from compression.runtime.words import stands_alone

_TEXT_NAMES = ("text", "texts", "sentence", "review", "content", "body", "comment", "message", "document")
LABEL_NAMES = ("label", "labels", "class", "category", "target")
_WORDS_FOR_MISSING = ("nan", "null", "na", "n/a", "#n/a", "<na>")
"""What programs write for a value that is missing."""
_CONTRADICTIONS = 0.01
"""Share of texts with several labels from which on they are noted."""
_LONG = 3.0
"""Mean number of words from which on a column counts as texts."""

FEWEST_ROWS = 50
"""Minimum number of labelled rows: a tenth each is held out as validation and test."""


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers to rows of a file: labels, or objects {label: value}.

    form: label, logits or probabilities; by_text: texts of a row -> its answer; are_labels: whether no row has another
    label.
    """

    where: str
    form: str
    by_text: dict[tuple[str, ...], Any]
    are_labels: bool


@dataclasses.dataclass(frozen=True)
class FileContents:
    """Contents of a file, as detected.

    texts: names of one or two columns; label: the label column; labels: the labels, empty for numbers; values: every
    usable row; kind: name of the kind of task; decimal_mark: of the file's numbers, which have points in `values`;
    left_out: labels on too few rows; notes: sentences on what was guessed or left out; test: usable rows of --test,
    None without it; answers: those of a model of the user's; others: texts of --other to learn from, and held out.
    """

    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    values: list[Row]
    kind: str = LABELS.name
    decimal_mark: str = "."
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    test: list[Row] | None = None
    answers: Answers | None = None
    others: tuple[list[Row], list[Row]] | None = None

    @property
    def range(self) -> tuple[float, float] | None:
        """The lowest and the highest number of all rows; None for labels."""
        if self.kind != NUMBERS.name:
            return None
        numbers = [float(row[-1]) for row in [*self.values, *(self.test or ())] if row[-1] is not None]
        return min(numbers), max(numbers)

    @property
    def pair(self) -> bool:
        """Whether a row has two texts."""
        return len(self.texts) == 2


def detect(table: Table, settings: FitSettings) -> FileContents:
    """Return the contents of the user's table.

    Raises UserError for a missing column, with the closest name; for columns that are ambiguous without --text or
    --label; and for texts that are numbers, a single class, labels that look like an id, or too few rows.
    """
    texts = text_columns(table, settings)
    columns = named_columns(table, "--label", settings.label) or (guess_label(table, texts),)
    label, kind = (columns[0], settings.kind) if len(columns) == 1 else (LABEL_COLUMNS, MULTILABEL.name)
    for name in texts:
        _check_texts(table, name)
    if has_lists(table, label, kind, settings.separator):
        kind = MULTILABEL.name
    rows = read_rows(table, texts, label, kind, settings.separator)
    usable = [row for row in rows if all(row[:-1])]
    counts = label_counts(usable)
    if label == LABEL_COLUMNS:
        counts = Counter(dict.fromkeys(columns, 0) | counts)  # a column may never say yes
    where = f"{table.path}: column{'s' * (label == LABEL_COLUMNS)} {', '.join(map(repr, columns))[:300]}"
    if not counts.total():
        raise UserError(f"{where} {'say yes nowhere' if label == LABEL_COLUMNS else 'is empty'}: no row has a label")
    labelled = sum(row[-1] is not None for row in usable)
    if labelled < FEWEST_ROWS:
        rows_with = f"{labelled} row{'s' * (labelled > 1)} with a label"
        raise UserError(f"{table.path}: {rows_with}; fit needs {FEWEST_ROWS} or more")
    notes = [*table_notes(table, texts), *_list_notes(table, label, kind, settings.separator)]
    if (label in counts or is_number(label)) and settings.header and kind_of(table.path) in JOINED_SUFFIXES:
        what = "also a label" if label in counts else "a number"
        notes.append(f"The first line is the columns' names, but {label!r} is {what} (--no-header: it is a row).")
    notes += _count_notes(len(rows) - len(usable), "Rows without text, left out")
    notes += _missing_notes(text for row in usable for text in row[:-1])
    mark = decimal_mark(counts) if kind in ("auto", NUMBERS.name) else None
    plain = with_plain_numbers(usable, mark) if mark else usable
    labels, left_out = (), []
    if kind != MULTILABEL.name and are_numbers(label_counts(plain), kind, where):
        usable = plain
        notes += _number_notes(label, counts, kind, mark or ".")
        kind = NUMBERS.name
    else:
        labels, left_out = usual_labels(counts, where, kind)
        usable = without_labels(usable, left_out)
        notes += _label_notes(counts, left_out, kind, mark is not None)
        kind = LABELS.name if kind == "auto" else kind
    if kind == LABELS.name:
        notes += _contradiction_notes(usable)
    answers = [row[-1] for row in usable]
    notes += _count_notes(answers.count(()), "Rows with none of the labels")
    notes += _count_notes(answers.count(None), "Rows without a label, only distilled on")
    return FileContents(texts, label, labels, usable, kind, mark or ".", tuple(left_out), tuple(notes))


def _count_notes(count: int, what: str) -> list[str]:
    return [f"{what}: {count:,}."] if count else []


def _missing_notes(texts: Iterable[str]) -> list[str]:
    """Return a note if texts are nothing but a program's word for a value that is missing."""
    words = Counter(text for text in texts if text.lower() in _WORDS_FOR_MISSING)
    shown = _first_five(list(map(repr, words)), ", ")
    what = f"Texts that are only {shown}, not left out as an empty cell would be"
    return _count_notes(words.total(), what)


def _list_notes(table: Table, label: str, kind: str, separator: str | None) -> list[str]:
    """Return a note if labels are joined by |, or if every label is a list of one; else an empty list."""
    types = set(map(type, table.column(label)))
    if kind == MULTILABEL.name and str in types and not separator:
        return [f"Labels of a row are joined by {JOINED_BY} (--kind labels takes each text as one label)."]
    if kind != MULTILABEL.name and list in types:
        return ["Every list has one label: a text has one of the labels, not any number of them."]
    return []


def _number_notes(label: str, counts: Counter[str], kind: str, mark: str) -> list[str]:
    notes = []
    if kind == "auto":
        notes.append(f"Column {label!r} has numbers to predict (--kind labels takes each as a label).")
    if with_comma := next((value for value in counts if "," in value), None):
        shown = plain_number(with_comma, mark)
        notes.append(f"Numbers such as {with_comma} are read as {shown} (--kind labels takes each as a label).")
    return notes


def _label_notes(counts: Counter[str], left_out: Sequence[str], kind: str, numbers: bool) -> list[str]:
    """Return notes on labels that could be numbers or lists, that look alike, or that are left out."""
    notes = []
    separator = likely_separator(counts) if kind == "auto" else None
    if kind == "auto" and numbers and len(counts) > 2:
        notes.append(f"{len(counts)} numbers are taken as labels (--kind numbers predicts them).")
    elif kind == "auto" and len(counts) > SCORES and have_unit(counts):
        shown = next(iter(counts))
        notes.append(
            f"Numbers such as {shown} are taken as labels (without the sign or unit, they are numbers to predict)."
        )
    elif separator and not numbers:
        joined = next(name for name in counts if separator in name)
        flags = f"--kind multilabel --separator {separator!r}"
        notes.append(f"Labels such as {joined[:80]!r} are taken as one ({flags} takes their parts as labels).")
    groups = grouped(
        sorted(counts), lambda name: str(float(name)) if is_number(name) else text_key(name).replace(" ", "")
    )
    if alike := [", ".join(map(ascii, names)) for names in groups.values() if len(names) > 1]:
        shown = _first_five(alike, "; ")
        notes.append(
            "Labels that differ only in case, white space, invisible characters or the form of a number are different "
            f"labels: {shown}."
        )
    if missing := [name for name in counts if name.lower() in _WORDS_FOR_MISSING]:
        shown = _first_five(list(map(repr, missing)), ", ")
        notes.append(f"Taken as labels: {shown}. An empty cell means that the label is unknown.")
    if left_out:
        rows = sum(counts[name] for name in left_out)
        shown = _first_five(list(map(repr, left_out)), ", ")
        notes.append(f"Labels on fewer than {FEWEST_OF_LABEL} rows are left out: {shown} ({rows} rows).")
    return notes


def _contradiction_notes(rows: Sequence[Row]) -> list[str]:
    """Return a note if many texts occur with different labels."""
    labels: dict[tuple[str, ...], set[str]] = {}
    for *texts, label in rows:
        if label is not None:
            labels.setdefault(tuple(texts), set()).add(label)
    count = sum(len(names) > 1 for names in labels.values())
    return (
        _count_notes(count, "Texts that occur with different labels") if count > _CONTRADICTIONS * len(labels) else []
    )


def _first_five(names: Sequence[str], separator: str) -> str:
    return separator.join([*names[:5], *(["..."] if len(names) > 5 else [])])


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


def _check_texts(table: Table, name: str) -> None:
    """Raise UserError for a text column that is empty or has numbers."""
    cells = [str(cell) for cell in table.column(name) if not is_empty(cell)]
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
    numbered = [str(number) for number in range(1, len(table.header) + 1)]
    is_row = kind_of(table.path) in JOINED_SUFFIXES and table.header != numbered and any(map(is_number, table.header))
    hint = "; --no-header if these are a row" if is_row else ""
    raise UserError(f"{table.path}: give the column of {what} (columns: {columns}{hint})")


def _mean_words(cells: Sequence[Any]) -> float:
    """Return the mean number of words, 0 for a column without text or mostly of numbers.

    In texts of scripts without spaces, two letters count as a word.
    """
    texts = [cell for cell in cells[:1000] if isinstance(cell, str) and cell.strip()]
    if not texts or sum(map(is_number, texts)) * 2 > len(texts):
        return 0.0
    counts = (words_in(text_key(text)) if any(map(stands_alone, text)) else len(text.split()) for text in texts)
    return sum(counts) / len(texts)
