"""Tables of means and deviations in the layout of the thesis's table 7.1, for any axes of a sweep."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Sequence

from common.tables import human_bytes
from compression.experiments.report.families import Row, Stat, name_without_seed, stat
from compression.experiments.report.pivot_columns import Column, columns_of
from compression.experiments.report.pivot_notes import notes_of
from compression.experiments.report.pivot_table import Pivot, PivotCell, PivotColumn, PivotRow
from compression.experiments.report.places import Labels, Scored, Sheet, Spot, sheets
from compression.experiments.report.record import ExperimentRecord, TableLayout
from compression.experiments.report.reference import QuotedFigure, QuotedPoint, quoted_figures, quoted_points
from compression.experiments.report.tables import DASH

__all__ = ["Pivot", "PivotCell", "PivotColumn", "PivotRow", "pivots"]
SEEDS = 4
"""Runs behind each of the thesis's figures (table 7.1)."""
_EMPTY = PivotCell(None, None, 0, best=False, text=DASH)


def pivots(rows: Sequence[Row], record: ExperimentRecord) -> list[Pivot]:
    """A table for each task, unless `task` is laid out, and for each value of an axis that the layout leaves out.

    None without a layout. Raises UserError when the record quotes a table of the thesis that is not here.
    """
    layout = record.table
    if layout is None:
        return []
    figures = quoted_figures(record.quote.table) if record.quote else []
    teachers = [row for row in rows if row.get("stage") == "teacher" and row.get("cell") is None]
    tables = []
    for sheet in sheets(rows, record, layout):
        columns = columns_of(sheet, layout, record.quote, figures)
        tables.append(_table(sheet, layout, columns, figures, teachers))
    return tables


def _table(
    sheet: Sheet, layout: TableLayout, columns: list[Column], figures: list[QuotedFigure], teachers: list[Row]
) -> Pivot:
    rows = [_row(sheet, labels, layout, columns, figures) for labels in sheet.rows]
    # A column of quotations that no row has is left out.
    kept = [i for i in range(len(columns)) if not columns[i].shown.quoted or any(row.cells[i].n for row in rows)]
    columns = [columns[i] for i in kept]
    rows = [dataclasses.replace(row, cells=tuple(row.cells[i] for i in kept)) for row in rows]
    width = len(layout.rows)
    baselines = [*_teachers(sheet, columns, teachers, width), *_quoted_baselines(sheet, columns, width)]
    return Pivot(
        title=sheet.title,
        row_headings=layout.rows,
        column_axes=layout.columns,
        columns=tuple(column.shown for column in columns),
        rows=tuple(rows),
        baselines=tuple(baselines),
        notes=tuple(notes_of(columns, rows, baselines)),
        sizes=layout.sizes,
    )


def _row(
    sheet: Sheet, labels: Labels, layout: TableLayout, columns: list[Column], figures: list[QuotedFigure]
) -> PivotRow:
    spots = [sheet.spots.get((labels, column.shown.labels)) for column in columns]
    found = [
        _stat(spot.scored, column, spot.task) if spot else None for spot, column in zip(spots, columns, strict=True)
    ]
    on_test = [spot is not None and _on_test(spot.rows) for spot in spots]
    scored_on_test = [chosen for chosen, score in zip(on_test, found, strict=True) if score]
    whole_row = bool(scored_on_test) and all(scored_on_test)
    best = _best(columns, found, on_test)
    cells = []
    for i, (spot, column) in enumerate(zip(spots, columns, strict=True)):
        if spot is None:
            cells.append(_EMPTY)
        elif column.shown.quoted:
            cells.append(_quoted_cell(spot, column, figures))
        else:
            packed = _packed(spot.rows) if layout.sizes else None
            cells.append(_cell(found[i], len(spot.planned), i in best, on_test[i] and not whole_row, packed))
    parameters, size, field = _sizes(row for key, spot in sheet.spots.items() if key[0] == labels for row in spot.rows)
    return PivotRow(labels, parameters, size, tuple(cells), field, selected_on_test=whole_row)


def _stat(scored: Scored, column: Column, task: str) -> Stat | None:
    """A metric over the seeds; a seed counts when all the splits that its score is the mean of are there."""
    splits = column.splits.get(task, ())
    values = [
        [(by_split.get(split, {}).get("metrics") or {}).get(column.metric) for split in splits]
        for by_split in scored.values()
    ]
    return stat(statistics.fmean(of_seed) for of_seed in values if of_seed and None not in of_seed)


def _on_test(rows: Iterable[Row]) -> bool:
    return any(row.get("select_on") == "test" for row in rows)


def _best(columns: list[Column], found: list[Stat | None], on_test: list[bool]) -> set[int]:
    """Places of the best mean of each metric: of all that show the same number, and only where two or more are scored.

    A mean whose weights the test split chose counts only where it chose all.
    """
    groups: dict[tuple, list[int]] = {}
    for i, column in enumerate(columns):
        if found[i] is not None:
            groups.setdefault((column.task, column.metric, *column.splits.values()), []).append(i)
    best: set[int] = set()
    for group in groups.values():
        shown = {i: _percent(score.mean) for i in group if (score := found[i])}
        rivals = [i for i in group if not on_test[i]] or group
        highest = max(float(shown[i]) for i in rivals)
        best |= {i for i in rivals if float(shown[i]) == highest and len(group) > 1}
    return best


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _cell(
    found: Stat | None, planned: int = 0, best: bool = False, marked: bool = False, packed: float | None = None
) -> PivotCell:
    if found is None:
        return dataclasses.replace(_EMPTY, planned=planned)
    text = _percent(found.mean) + (f" ± {_percent(found.sd)}" if found.sd is not None else "")
    text += f" ({found.n}/{planned})" if found.n < planned else ""
    text += " †" if marked else ""
    text += f" · {human_bytes(packed)}" if packed is not None else ""
    return PivotCell(found.mean, found.sd, found.n, best, text, planned, packed)


def _packed(rows: Iterable[Row]) -> float | None:
    size = stat(row.get("bytes_packed") for row in rows)
    return size.mean if size else None


def _quoted_cell(spot: Spot, column: Column, figures: list[QuotedFigure]) -> PivotCell:
    """The one figure of such a student; a table that does not tell its students apart so far is not quoted."""
    fields = spot.student_fields()
    task = column.task or spot.task
    same = [
        figure
        for figure in figures
        if (figure.task, figure.metric) == (task, column.metric)
        and all(fields.get(name) == value for name, value in figure.fields.items())
    ]
    return PivotCell(same[0].mean, same[0].sd, SEEDS, best=False, text=same[0].text) if len(same) == 1 else _EMPTY


def _sizes(rows: Iterable[Row]) -> tuple[float | None, float | None, str | None]:
    """Parameters, bytes and which bytes; none where models of several sizes stand in one row."""
    listed = list(rows)
    counts = {row.get("parameters") for row in listed}
    fields = {"bytes_gzip" if row.get("stage") in ("pruned", "quantized") else "bytes_model" for row in listed}
    if len(counts) != 1 or len(fields) != 1:
        return None, None, None
    field = fields.pop()
    size = stat(row.get(field) for row in listed)
    return counts.pop(), size.mean if size else None, field if size else None


def _teachers(sheet: Sheet, columns: list[Column], rows: list[Row], width: int) -> Iterator[PivotRow]:
    """A row for each teacher, its score in all columns of its task; where rows have their own task, one for each."""
    by_name: dict[str, dict[str, Scored]] = {}
    for row in rows:
        if row["task"] in sheet.tasks and str(row["split"]).startswith("test"):
            scored = by_name.setdefault(_named(name_without_seed(row), row["task"], columns), {})
            scored.setdefault(row["task"], {}).setdefault(row.get("seed"), {})[row["split"]] = row
    for name, by_task in by_name.items():
        cells = []
        for column in columns:
            task = column.task or next(iter(by_task))
            cells.append(_cell(_stat(by_task.get(task, {}), column, task)))
        all_rows = [row for scored in by_task.values() for by_split in scored.values() for row in by_split.values()]
        parameters, size, field = _sizes(all_rows)
        labels = (name, *[""] * (width - 1))
        yield PivotRow(labels, parameters, size, tuple(cells), field, selected_on_test=_on_test(all_rows))


def _quoted_baselines(sheet: Sheet, columns: list[Column], width: int) -> Iterator[PivotRow]:
    """The thesis's own baselines, in the columns that quote it."""
    quoted = [column for column in columns if column.shown.quoted]
    by_name: dict[str, dict[str, QuotedPoint]] = {}
    for task in dict.fromkeys(task for column in quoted for task in ([column.task] if column.task else sheet.tasks)):
        for point in quoted_points(task):
            if point.baseline:
                by_name.setdefault(_named(point.name, task, columns), {})[task] = point
    for name, by_task in by_name.items():
        cells = []
        for column in columns:
            point = by_task.get(column.task or next(iter(by_task))) if column.shown.quoted else None
            mean = point.metrics.get(column.metric) if point else None
            cells.append(_EMPTY if mean is None else PivotCell(mean, None, 1, best=False, text=_percent(mean)))
        sizes = {point.size_bytes for point in by_task.values()}
        parameters = next(iter(by_task.values())).parameters
        labels = (name, *[""] * (width - 1))
        size = sizes.pop() if len(sizes) == 1 else None
        yield PivotRow(labels, parameters, size, tuple(cells), "bytes_model" if size else None, quoted=True)


def _named(name: str, task: str, columns: list[Column]) -> str:
    """A baseline's name, with the task where the columns do not say it."""
    return name if all(column.task for column in columns) else f"{name}, {task}"
