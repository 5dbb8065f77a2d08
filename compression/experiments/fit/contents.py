"""Reading and checking of the user's file. Imports no heavy library, so that errors are reported at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from common.errors import UserError
from compression.experiments.fit.candidates import find_candidates
from compression.experiments.fit.data import with_test
from compression.experiments.fit.detect import FileContents, Row, detect, read_rows, table_notes
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.table import read_any


@dataclasses.dataclass(frozen=True)
class FitData:
    """Contents of the file, and the rows of --test; None without --test."""

    found: FileContents
    test: Sequence[Row] | None


def read_contents(settings: FitSettings) -> FitData:
    """Return the contents of the file. Raises UserError if nothing can be learned from it or no student is so small."""
    read = functools.partial(
        read_any, seed=settings.seed, delimiter=settings.delimiter, header=settings.header, columns=settings.columns
    )
    found, test = detect(read(settings.file), settings), None
    if settings.test is not None:
        other = read(settings.test)
        rows = read_rows(other, found.texts, found.label, found.multilabel, settings.separator)
        found, test = with_test(rows, found, settings.test)
        notes = [*found.notes, *table_notes(other, found.texts)]
        if len(test) < len(rows):
            notes.append(
                f"{other.path.name}: {len(rows) - len(test):,} rows without a text or a usable label are left out."
            )
        found = dataclasses.replace(found, notes=tuple(notes))
    if settings.symmetric and not found.pair:
        raise UserError(f"--symmetric is for pairs of texts; {settings.file} has one text a row")
    words = float(np.median([len(row[0].split()) for row in found.values[:1000]]))
    find_candidates(settings.max_bytes, found.pair, found.labels, words, 30_000, settings.symmetric)
    return FitData(found, test)
