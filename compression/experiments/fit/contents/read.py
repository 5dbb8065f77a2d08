"""Reading of a user's file, whatever it labels: texts, words, or questions; with its test file and a teacher's answers.

This module imports no heavy library, so that errors in the user's file are reported at once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from common.data.readers.any_table import MOST_BYTES, Table, read_any, table_notes
from common.data.readers.label_cells import (
    Row,
    is_number,
    labels_of,
    read_rows,
    with_lists,
    with_plain_numbers,
    without_labels,
)
from common.errors import UserError
from common.kinds.registry import LABELS, NUMBERS, TAGS
from compression.experiments.fit.contents.answers import with_answers
from compression.experiments.fit.contents.by_word import (
    LabelledWords,
    questions_in_json,
    tags_of,
    words_in_columns,
    words_in_lines,
)
from compression.experiments.fit.contents.detect import FEWEST_ROWS, FileContents, detect
from compression.experiments.fit.contents.others import with_others
from compression.experiments.fit.settings import FitSettings


def read_contents(settings: FitSettings) -> FileContents:
    """Return the contents of the file. Raises UserError if nothing can be learned from it."""

    def read(path: Path) -> Table | LabelledWords:
        words = words_in_lines(path, settings) or questions_in_json(path, settings)
        if words:
            return words
        table = read_any(
            path, settings.seed, MOST_BYTES, settings.delimiter, settings.header, settings.columns, settings.encoding
        )
        if words := words_in_columns(table, settings):
            return words
        return with_lists(table, settings.label) if len(settings.label) > 1 else table

    table = read(settings.file)
    if isinstance(table, LabelledWords):
        return _contents_of_words(table, settings, None if settings.test is None else read(settings.test))
    table, settings, answers = with_answers(table, settings)
    contents = dataclasses.replace(detect(table, settings), answers=answers)
    if settings.test is not None:
        table = read(settings.test)
        if isinstance(table, LabelledWords):
            raise UserError(f"{settings.test} labels words, but {settings.file} labels texts")
        rows = read_rows(table, contents.texts, contents.label, contents.kind, settings.separator)
        contents = with_test(rows, contents, settings.test)
        notes = [*contents.notes, *table_notes(table, contents.texts)]
        if left_out := len(rows) - len(contents.test):
            notes.append(f"{table.path.name}: {left_out:,} rows without a text or a usable label are left out.")
        contents = dataclasses.replace(contents, notes=tuple(notes))
    if settings.reject and contents.kind != LABELS.name:
        raise UserError(f"--reject is for texts with one label each; {settings.file} is of kind {contents.kind}")
    if settings.other:
        contents = with_others(contents, settings)
    if settings.symmetric and not contents.pair:
        raise UserError(f"--symmetric is for pairs of texts; {settings.file} has one text a row")
    return contents


def _contents_of_words(words: LabelledWords, settings: FitSettings, test: LabelledWords | Table | None) -> FileContents:
    """Return the contents of a file that labels words. Raises UserError for flags of other files, and as `detect`."""
    for flag, value in (
        ("--reject", settings.reject),
        ("--separator", settings.separator),
        ("--symmetric", settings.symmetric),
        ("--teacher-file", settings.teacher_file),
        ("--teacher-column", settings.teacher_column),
    ):
        if value:
            raise UserError(f"{flag} is for labels of texts; {settings.file} has {words.kind}")
    labelled = sum(row[-1] is not None for row in words.rows)
    if labelled < FEWEST_ROWS:
        reason = f" ({words.all_notes[-1]})" if words.left_out else ""
        raise UserError(f"{settings.file}: {labelled} usable rows with {words.kind}{reason}; fit needs {FEWEST_ROWS}")
    notes = words.all_notes
    is_tags = words.kind == TAGS.name
    labels = tags_of(words.rows) if is_tags else ()
    if test is not None:
        if not isinstance(test, LabelledWords) or test.kind != words.kind:
            raise UserError(f"{settings.test}: not {words.kind}, which {settings.file} has")
        if is_tags:
            entities = {tag[2:] for tag in labels}
            if unknown := [tag for tag in tags_of(test.rows) if tag[2:] not in entities]:
                raise UserError(f"{settings.test}: tag {unknown[0]} is not one of {', '.join(labels)[:300]}")
            labels = tags_of([*words.rows, *test.rows])  # train may have no entity of several words
        if not test.rows:
            raise UserError(f"{settings.test}: no usable row")
        notes += [f"{settings.test.name}: {note}" for note in test.all_notes]
    return FileContents(
        texts=words.texts,
        label=words.kind,
        labels=labels,
        values=words.rows,
        kind=words.kind,
        notes=tuple(notes),
        test=test and test.rows,
    )


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
