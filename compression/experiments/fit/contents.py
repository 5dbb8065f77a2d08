"""Reading and checking of the user's file. Imports no heavy library, so that errors are reported at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from common.errors import UserError
from compression.experiments.fit.candidates import find_candidates
from compression.experiments.fit.data import with_test
from compression.experiments.fit.detect import FileContents, Row, detect, read_rows
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.table import read_any


@dataclasses.dataclass(frozen=True)
class FitData:
    """Contents of the file, and the rows of --test; None without --test."""

    found: FileContents
    test: Sequence[Row] | None


def read_contents(settings: FitSettings) -> FitData:
    """Return the contents of the file. Raises UserError if nothing can be learned from it or no student is so small."""
    found, test = detect(read_any(settings.file, settings.seed), settings), None
    if settings.test is not None:
        other = read_any(settings.test, settings.seed)
        found, test = with_test(read_rows(other, found.texts, found.label, found.multilabel), found, settings.test)
        if other.sampled:
            found = dataclasses.replace(found, notes=(*found.notes, f"{other.path.name}: {other.sampled}."))
    if settings.symmetric and not found.pair:
        raise UserError(f"--symmetric is for pairs of texts; {settings.file} has one text a row")
    words = float(np.median([len(row[0].split()) for row in found.values[:1000]]))
    find_candidates(settings.max_bytes, found.pair, found.labels, words, 30_000, settings.symmetric)
    return FitData(found, test)
