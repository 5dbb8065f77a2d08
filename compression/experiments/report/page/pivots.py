"""The page's tables of means and deviations: headings of several levels, as the thesis's table 7.1 has them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from compression.experiments.report.pivot_text import SIZE_HEADINGS, has_sizes, shown_name, size_cells
from compression.experiments.report.tables import Cell, metric_heading

if TYPE_CHECKING:
    from compression.experiments.report.pivot import Pivot, PivotColumn, PivotRow


@dataclasses.dataclass(frozen=True)
class LevelHead:
    """A heading over `span` columns. column: the one it sorts by, for headings over a single one."""

    text: str
    span: int
    quoted: bool
    column: int | None = None


@dataclasses.dataclass(frozen=True)
class PivotLine:
    """A row: what it is of, its parameters and size, and its cells as text, number to sort by, and classes."""

    labels: list[Cell]
    numbers: list[Cell]
    cells: list[tuple[Cell, str]]
    quoted: bool


@dataclasses.dataclass(frozen=True)
class PivotTable:
    """A pivot as the template lays it out. first: headings of the columns before the cells."""

    title: str
    first: list[str]
    row_axes: int
    levels: list[list[LevelHead]]
    baselines: list[PivotLine]
    lines: list[PivotLine]
    notes: tuple[str, ...]


def pivot_table(pivot: Pivot) -> PivotTable:
    """Headings are merged where neighbours are the same on this level and all above it."""
    numbers = SIZE_HEADINGS if has_sizes(pivot) else ()
    first = [*pivot.row_headings, *numbers]
    return PivotTable(
        pivot.title,
        first,
        len(pivot.row_headings),
        _levels(pivot, len(first)),
        [_line(pivot, row) for row in pivot.baselines],
        [_line(pivot, row) for row in pivot.rows],
        pivot.notes,
    )


def _levels(pivot: Pivot, before: int) -> list[list[LevelHead]]:
    paths = [_path(pivot, column) for column in pivot.columns]
    levels = []
    for depth in range(len(paths[0]) if paths else 0):
        heads: list[LevelHead] = []
        keyed = enumerate(zip(paths, pivot.columns, strict=True))
        last = depth == len(paths[0]) - 1
        for _, same in itertools.groupby(keyed, key=lambda item: (item[0] if last else -1, item[1][0][: depth + 1])):
            members = list(same)
            index, (path, _) = members[0]
            quoted = all(column.quoted for _, (_, column) in members)
            heads.append(LevelHead(path[depth], len(members), quoted, before + index if last else None))
        levels.append(heads)
    return levels


def _path(pivot: Pivot, column: PivotColumn) -> tuple[str, ...]:
    """A column's headings from top to bottom: its labels, then metric and source where they are not all the same."""
    several = len({other.metric for other in pivot.columns}) > 1
    metric = (metric_heading(column.metric),) if several else ()
    source = (column.source if column.quoted else "ours",) if any(other.quoted for other in pivot.columns) else ()
    return (*column.labels, *metric, *source) or (metric_heading(column.metric),)


def _line(pivot: Pivot, row: PivotRow) -> PivotLine:
    cells = [
        (Cell(cell.text, cell.mean), " ".join(["best"] * cell.best + ["quoted"] * (column.quoted or row.quoted)))
        for cell, column in zip(row.cells, pivot.columns, strict=True)
    ]
    labels = [Cell(text, label) for text, label in zip(shown_name(row), row.labels, strict=True)]
    sizes = zip(size_cells(row), (row.parameters, row.size), strict=True) if has_sizes(pivot) else ()
    return PivotLine(labels, [Cell(*size) for size in sizes], cells, row.quoted)
