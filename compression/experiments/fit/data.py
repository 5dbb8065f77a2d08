"""The user's data, and the task made from it: its YAML file and rows, written for the ordinary stages.

This module imports no heavy library, so that errors in the user's file are reported at once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from common.data.overlap import FEW_WORDS, whole_rows
from common.data.tasks import Task, load_task
from common.data.text import near_key
from common.errors import UserError
from common.kinds.iob import as_iob
from common.kinds.registry import ANSWERS, LABELS, MULTILABEL, NUMBERS, TAGS
from common.seeds import derive
from common.store.files import whole_file, write_json, write_text
from compression.experiments.fit.answers import with_answers
from compression.experiments.fit.by_word import (
    LabelledWords,
    as_squad,
    questions_in_json,
    some_unanswerable,
    tags_of,
    words_in_columns,
    words_in_lines,
)
from compression.experiments.fit.columns import with_lists
from compression.experiments.fit.detect import FEWEST_ROWS, FileContents, detect, table_notes
from compression.experiments.fit.labels import (
    Row,
    is_number,
    labels_of,
    read_rows,
    with_plain_numbers,
    without_labels,
)
from compression.experiments.fit.others import with_others
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.table import MOST_BYTES, Table, read_any

TASK_FILE = "task.yaml"
_KEPT_OF_LABEL = 20
"""Minimum number of rows that each label keeps when rows are drawn."""
MOST_VALIDATION, MOST_TEST = 1000, 2000
"""Maximum number of rows held out: more cost the teacher time and change a score little."""
_MANY_PARTS = 0.2
"""Only whole texts are held out if more than this share of rows are parts of longer ones."""
_MOST_WORDS = 2_000_000
"""Larger files are not searched for parts."""


def read_contents(settings: FitSettings) -> FileContents:
    """Return the contents of the file. Raises UserError if nothing can be learned from it."""

    def read(path: Path) -> Table | LabelledWords:
        words = words_in_lines(path, settings) or questions_in_json(path, settings)
        if words:
            return words
        table = read_any(path, settings.seed, MOST_BYTES, settings.delimiter, settings.header, settings.columns)
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
        if is_tags and (unknown := {*tags_of(test.rows)} - {*labels}):
            raise UserError(f"{settings.test}: tag {min(unknown)} is not one of {', '.join(labels)[:300]}")
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


def held_out_rows(rows: int, most: int) -> int:
    """Return how many rows to hold out: a tenth, up to a fifth for a small file, at most `most`."""
    return min(most, max(rows // 10, min(100, rows // 5)))


def draw(values: Sequence[Row], most: int, seed: int) -> list[Row]:
    """Return at most about `most` rows, in order, with some of each label. values: as in FileContents."""
    if len(values) <= most:
        return list(values)
    order = np.random.default_rng(derive("fit rows", seed)).permutation(len(values)).tolist()
    seen: Counter[str] = Counter()
    first, others = [], []
    for index in order:
        labels = labels_of(values[index]) or ("",)
        seen.update(labels)
        (first if min(seen[label] for label in labels) <= _KEPT_OF_LABEL else others).append(index)
    return [values[index] for index in sorted([*first, *others][:most])]


def whole_texts(contents: FileContents) -> int | None:
    """Return how many labelled rows are whole texts if many rows are parts of longer ones, else None.

    Students that memorise a text's parts score well on the text (SST-2's train has phrases of the same sentences).
    """
    values = contents.values
    if contents.pair or contents.kind == TAGS.name or sum(row[0].count(" ") + 1 for row in values) > _MOST_WORDS:
        return None
    keys = [near_key(row[0]) for row in values]
    long, whole = sum(len(key.split()) >= FEW_WORDS for key in keys), whole_rows(keys)
    labelled = sum(values[row][-1] is not None for row in whole)
    return labelled if long - len(whole) > _MANY_PARTS * long and labelled >= FEWEST_ROWS else None


def write_task(
    folder: Path, name: str, contents: FileContents, whole: int | None = None, symmetric: bool = False
) -> Task:
    """Write a task's rows and YAML file into a folder. Returns the task.

    whole: the number of whole texts, if only these are held out. Holding out a tenth of them removes a tenth of all
    rows from train, including their parts. symmetric: whether the texts of a pair have no order.
    """
    labelled = sum(row[-1] is not None for row in contents.values) if whole is None else whole
    sentences = {} if whole is None else {"whole_sentences": True}
    columns = {f"sentence{number}": column for number, column in enumerate(contents.texts, 1)}
    columns["label"] = contents.label
    suffix = {TAGS.name: ".conll", ANSWERS.name: ".json"}.get(contents.kind, ".parquet")
    files = {"all": f"rows{suffix}"}
    if contents.others:
        for split, rows in zip(("unlabelled", "other"), contents.others, strict=True):
            files[split] = f"{split}{suffix}"
            _write_rows(folder / files[split], contents, rows)
    task: dict[str, object] = {
        "name": name,
        "kind": contents.kind,
        **({"range": list(contents.range)} if contents.range else {}),
        **({"labels": list(contents.labels)} if contents.labels else {}),
        **({"metrics": ["accuracy", "f1_macro"]} if contents.kind == LABELS.name else {}),
        **({"unanswerable": True} if contents.kind == ANSWERS.name and some_unanswerable(contents.values) else {}),
        **({"columns": columns} if suffix == ".parquet" else {}),
        "source": {"files": files},
        "validation": {"rows": held_out_rows(labelled, MOST_VALIDATION), **sentences},
        **({"symmetric": True} if symmetric else {}),
    }
    _write_rows(folder / files["all"], contents, contents.values)
    if contents.test is None:
        task["test"] = {"rows": held_out_rows(labelled, MOST_TEST), **sentences}
    else:
        files["test"] = f"test{suffix}"
        _write_rows(folder / files["test"], contents, contents.test)
    write_text(folder / TASK_FILE, yaml.safe_dump(task, allow_unicode=True, sort_keys=False))
    return load_task(str(folder / TASK_FILE))


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


def _write_rows(path: Path, contents: FileContents, rows: Sequence[Row]) -> None:
    """Write rows in the form that tasks of their kind read."""
    if contents.kind == TAGS.name:
        write_text(path, "".join(as_iob(text.split(" "), tags) for text, tags in rows))
        return
    if contents.kind == ANSWERS.name:
        write_json(path, as_squad(rows))
        return
    label = pa.list_(pa.string()) if contents.kind == MULTILABEL.name else pa.string()
    schema = pa.schema([*((name, pa.string()) for name in contents.texts), (contents.label, label)])
    columns = [pa.array(*column) for column in zip(zip(*rows, strict=True), schema.types, strict=True)]
    with whole_file(path) as partial:
        pq.write_table(pa.table(columns, schema=schema), partial, compression="zstd")
