"""Texts that should get no label (`--other`), read from a file of their own.

This module imports no heavy library, so that errors in the user's file are reported at once.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from common.data.readers.any_table import Table, read_any
from common.data.readers.label_cells import read_rows
from common.data.readers.records import kind_of, read_lines
from common.errors import UserError
from common.kinds.registry import LABELS
from common.reading import regular_file
from common.seeds import derive
from compression.experiments.fit.contents.columns import text_columns
from compression.experiments.fit.contents.detect import FileContents
from compression.experiments.fit.settings import FitSettings

_HELD_OUT = 10
"""One text of so many is held out to choose the threshold."""
_FEWEST = 2 * _HELD_OUT


def with_others(contents: FileContents, settings: FitSettings) -> FileContents:
    """Return the contents with the texts of --other, at most as many as the file has rows, and a note.

    Texts that the file has too are left out. Raises UserError for a file without enough texts, or with other columns.
    """
    table = _read(settings)
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


def _read(settings: FitSettings) -> Table:
    path = settings.other
    if kind_of(regular_file(path)) != ".txt":
        return read_any(path, settings.seed, encoding=settings.encoding)
    with path.open("rb") as file:
        lines = read_lines(file, str(path), settings.encoding)
        return Table(path, ["text"], [[line.strip()] for _, line in lines])
