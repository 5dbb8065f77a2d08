"""Reading of a user's file, whatever it labels: texts, words, or questions; with its test file and a teacher's answers.

This module imports no heavy library, so that errors in the user's file are reported at once.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from common.config import flag
from common.data.readers.any_table import MOST_BYTES, Table, read_any, table_notes, with_label_names
from common.data.readers.label_cells import (
    Row,
    is_number,
    labels_of,
    read_rows,
    with_lists,
    with_plain_numbers,
    without_labels,
)
from common.data.readers.records import kind_of, read_lines
from common.errors import UserError
from common.kinds.registry import LABELS, NUMBERS
from common.reading import regular_file
from common.seeds import derive
from compression.experiments.fit.contents.answers import with_answers
from compression.experiments.fit.contents.by_word import questions_in_json, tags_of, words_in_columns, words_in_lines
from compression.experiments.fit.contents.detect import FEWEST_ROWS, FileContents, detect, text_columns
from compression.experiments.fit.settings import FitSettings

_HELD_OUT = 10
"""One text of so many is held out to choose the threshold."""
_FEWEST = 2 * _HELD_OUT


def read_contents(settings: FitSettings) -> FileContents:
    """Return the contents of the file. Raises UserError if nothing can be learned from it."""

    def read(path: Path) -> Table | FileContents:
        words = words_in_lines(path, settings) or questions_in_json(path, settings)
        if words:
            return words
        table = read_any(
            path, settings.seed, MOST_BYTES, settings.delimiter, settings.header, settings.columns, settings.encoding
        )
        table = with_label_names(table)
        if words := words_in_columns(table, settings):
            return words
        return with_lists(table, settings.label) if len(settings.label) > 1 else table

    if settings.test is not None and regular_file(settings.test).samefile(regular_file(settings.file)):
        raise UserError(f"--test {settings.test}: fit learns from this file; without --test, a part of it is held out")
    table = read(settings.file)
    if isinstance(table, FileContents):
        return _with_words(table, settings, None if settings.test is None else read(settings.test))
    table, settings, answers = with_answers(table, settings)
    contents = dataclasses.replace(detect(table, settings), answers=answers)
    if settings.test is not None:
        table = read(settings.test)
        if isinstance(table, FileContents):
            raise UserError(f"{settings.test} labels words, but {settings.file} labels texts")
        rows = read_rows(table, contents.texts, contents.label, contents.kind, settings.separator)
        contents = with_test(rows, contents, settings.test)
        notes = [*contents.notes, *table_notes(table, contents.texts)]
        if left_out := len(rows) - len(contents.test):
            notes.append(f"{table.path.name}: rows without a text or a usable label, left out: {left_out:,}.")
        contents = dataclasses.replace(contents, notes=tuple(notes))
    if settings.reject and contents.kind != LABELS.name:
        raise UserError(f"--reject is for texts with one label each; {settings.file} is of kind {contents.kind}")
    if settings.other:
        contents = _with_others(contents, settings)
    if settings.symmetric and not contents.pair:
        raise UserError(f"--symmetric is for pairs of texts; {settings.file} has one text a row")
    return contents


def _with_words(contents: FileContents, settings: FitSettings, test: FileContents | Table | None) -> FileContents:
    """Return the contents of a file that labels words, with its test file.

    Raises UserError for flags of other files, and as `detect`.
    """
    for name in ("reject", "separator", "symmetric", "teacher_file", "teacher_column"):
        if getattr(settings, name):
            raise UserError(f"{flag(name)} is for labels of texts; {settings.file} has {contents.kind}")
    labelled = sum(row[-1] is not None for row in contents.values)
    if labelled < FEWEST_ROWS:
        why = f" ({contents.notes[-1]})" if contents.notes else ""
        raise UserError(f"{settings.file}: {labelled} usable rows with {contents.kind}{why}; fit needs {FEWEST_ROWS}")
    if test is None:
        return contents
    if not isinstance(test, FileContents) or test.kind != contents.kind:
        raise UserError(f"{settings.test}: not {contents.kind}, which {settings.file} has")
    entities = {tag[2:] for tag in contents.labels}
    if unknown := [tag for tag in test.labels if tag[2:] not in entities]:
        raise UserError(f"{settings.test}: tag {unknown[0]} is not one of {', '.join(contents.labels)[:300]}")
    if not test.values:
        raise UserError(f"{settings.test}: no usable row")
    # Of all rows: train may have no entity of several words.
    labels = tags_of([*contents.values, *test.values]) if contents.labels else ()
    notes = *contents.notes, *(f"{settings.test.name}: {note}" for note in test.notes)
    return dataclasses.replace(contents, labels=labels, notes=notes, test=test.values)


def with_test(rows: Sequence[Row], contents: FileContents, path: Path) -> FileContents:
    """Return `contents` with a test file's usable rows.

    Raises UserError for a label that the training file does not have, and for a label that is not a number where the
    training file has numbers.
    """
    if contents.kind == NUMBERS.name:
        rows = with_plain_numbers(rows, contents.decimal_mark)
    usable = without_labels([row for row in rows if all(row[:-1]) and row[-1] is not None], contents.left_out)
    if not usable:
        raise UserError(f"{path}: no row has texts and a label")
    for label in itertools.chain.from_iterable(map(labels_of, usable)):
        if contents.kind == NUMBERS.name and not is_number(label):
            raise UserError(f"{path}: column {contents.label!r}: {label[:80]!r} is not a number")
        if contents.kind != NUMBERS.name and label not in contents.labels:
            raise UserError(f"{path}: label {label[:80]!r} is not one of {', '.join(contents.labels)[:300]}")
    return dataclasses.replace(contents, test=usable)


def _with_others(contents: FileContents, settings: FitSettings) -> FileContents:
    """Return the contents with the texts of --other, at most as many as the file has rows, and a note.

    Texts that the file has too are left out. Raises UserError for a file without enough texts, or with other columns.
    """
    table = _others_table(settings)
    texts = contents.texts
    if not {*texts} <= {*table.header}:
        texts = text_columns(table, settings.model_copy(update={"text": (), "label": ()}))
    if len(texts) != len(contents.texts):
        raise UserError(f"--other: {table.path} needs the columns {' and '.join(contents.texts)}")
    known = {row[:-1] for row in (*contents.values, *(contents.test or ()))}
    # A text column in the place of the labels is not looked at.
    read = dict.fromkeys(row[:-1] for row in read_rows(table, texts, texts[0], LABELS.name))
    usable = [(*row, None) for row in read if all(row) and row not in known]
    if len(usable) < _FEWEST:
        raise UserError(f"--other: {table.path} has {len(usable)} texts that {settings.file} has not; give {_FEWEST}")
    order = np.random.default_rng(derive("fit others", settings.seed)).permutation(len(usable))
    drawn = [usable[index] for index in order[: len(contents.values)]]
    held_out = len(drawn) // _HELD_OUT
    note = f"{table.path.name}: {len(drawn):,} texts that have no label, of which {held_out:,} are held out."
    others = drawn[held_out:], drawn[:held_out]
    return dataclasses.replace(contents, others=others, notes=(*contents.notes, note))


def _others_table(settings: FitSettings) -> Table:
    path = settings.other
    if kind_of(regular_file(path)) != ".txt":
        return read_any(path, settings.seed, encoding=settings.encoding)
    with path.open("rb") as file:
        lines = read_lines(file, str(path), settings.encoding)
        return Table(path, ["text"], [[line.strip()] for _, line in lines])
