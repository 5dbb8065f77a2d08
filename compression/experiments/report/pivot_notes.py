"""What a reader must know to read a table of means and deviations, one sentence or two a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.tables import UNITS
from compression.experiments.report.pivot_columns import Column, averaged
from compression.experiments.report.pivot_table import PivotRow
from compression.experiments.report.tables import SELECTED_ON_TEST

ABOUT_SIZES = (
    "P: parameters of the whole model. S: size on disk in MB, of the weights file for what was distilled, of that file "
    f"gzipped for what was pruned or quantized. {UNITS}"
)
ABOUT_QUOTES = "Quoted figures are the thesis's, of its own protocol and hardware; they are never the best of a row."


def notes_of(columns: Sequence[Column], rows: Sequence[PivotRow], baselines: Sequence[PivotRow]) -> Iterator[str]:
    """The sentences that this table needs."""
    cells = [cell for row in rows for cell in row.cells]
    text = "Scores are means over seeds ± the sample standard deviation (n − 1), all times 100."
    if any(cell.n < cell.planned for cell in cells):
        text += " (n/N): so far n of N seeds are scored; a dash: none is."
    yield text
    if any(cell.best for cell in cells):
        yield "Bold: the best mean of a row, of each metric; what shows the same number is as good."
    for split_names in dict.fromkeys(names for column in columns for names in column.splits.values()):
        if len(split_names) > 1:
            yield f"{averaged('accuracy', split_names)}: a seed's score is the mean over {' and '.join(split_names)}."
    if any(cell.packed is not None for cell in cells):
        yield f"Sizes are of the packed file, all in: weights, vocabulary, labels, settings. {UNITS}"
    else:
        yield from _about_sizes(rows, baselines)
    if any(not row.quoted for row in baselines):
        yield "A teacher's score stands in every column of its task."
    if any(column.shown.quoted for column in columns):
        yield ABOUT_QUOTES
    if any(row.selected_on_test for row in (*rows, *baselines)) or any("†" in cell.text for cell in cells):
        yield SELECTED_ON_TEST


def _about_sizes(rows: Sequence[PivotRow], baselines: Sequence[PivotRow]) -> Iterator[str]:
    if any(row.size is not None for row in (*rows, *baselines)):
        yield ABOUT_SIZES
    scored = [row for row in rows if any(cell.n and cell.planned for cell in row.cells)]
    if any(row.size is None for row in scored):
        yield "P and S are left out where a row's models differ in them."
