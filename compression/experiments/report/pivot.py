"""Tables of means and deviations, in the layout of the thesis's table 7.1, for any axes of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from common.tables import UNITS, human_bytes
from compression.experiments.report import reference
from compression.experiments.report.columns import columns_of, notes_of
from compression.experiments.report.models_table import SELECTED_ON_TEST
from compression.experiments.report.pivot_layout import (
    Cell,
    Labels,
    PivotTable,
    ScoreColumn,
    averaged,
    columns_of_scores,
    pivot_tables,
)
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import QuotedFigure, QuotedPoint
from compression.experiments.report.results import Row, grouped
from compression.experiments.report.seed_groups import (
    GZIPPED,
    PACKED,
    SeedGroup,
    Stat,
    average_of_tasks,
    mean_over_splits,
    name_without_seed,
)
from compression.experiments.report.table import Entry, Group, Head, Line, Table, number_entry, plain_table, text_entry

SEEDS = 4
"""Runs behind each of the thesis's figures (table 7.1)."""
SHORT = {"student_arch": "student", "embedding_type": "embedding", "embedding_dim": "dim", "vocab_size": "vocab"}
"""Names of axes on a terminal."""
AVERAGE = "average of tasks"
"""Heading of the mean over tasks."""
_EMPTY = text_entry(None)


def pivots(rows: Sequence[Row], record: ExperimentRecord) -> list[Table]:
    """Return a table for each combination of values of the axes, including `task`, that the layout leaves out.

    Baselines are the teachers, then the thesis's baselines (quoted), with scores in the columns they belong to. Empty
    without a layout. Raises UserError if the record quotes a table of the thesis that is not available.
    """
    if record.table is None:
        return []
    figures = reference.quoted_figures(record.quote.table) if record.quote else []
    teachers = [row for row in rows if row.get("stage") == "teacher" and row.get("cell") is None]
    return [_Pivot(table, record, figures, teachers).table() for table in pivot_tables(rows, record, record.table)]


class _Pivot:
    """Builder of one table."""

    def __init__(
        self, cells: PivotTable, record: ExperimentRecord, figures: Sequence[QuotedFigure], teachers: Sequence[Row]
    ) -> None:
        self._cells, self._layout, self._figures = cells, record.table, figures
        self._teachers = [row for row in teachers if row["task"] in cells.tasks]
        self._columns = [
            column
            for column in columns_of_scores(cells, record, figures)
            # A quoted column without any figure is left out.
            if not column.quoted
            or any(self._figure(cell, column) for (_, label), cell in cells.cells.items() if label == column.labels)
        ]
        self._kinds = cells.kinds("task" in record.table.columns)
        self._measured = [
            (kind, column, quoted)
            for kind in self._kinds
            for table, quoted in (("pivot", False), ("printed", True))
            for column in columns_of(table)
        ]
        stages = {row["stage"] for cell in cells.cells.values() for row in cell.rows}
        quotes_gzipped = record.quote is not None and record.quote.table == reference.GZIPPED_TABLE
        self._disk_field = GZIPPED if quotes_gzipped or {"pruned", "quantized"} & stages else "bytes_model"
        self._incomplete = self._incomparable = False

    def table(self) -> Table:
        """Return the table."""
        heads = [Head((axis,), numeric=False) for axis in self._layout.rows]
        for kind, column, quoted in self._measured:
            title = column.heading.replace("{than}", "")
            group: Group = "csv" if self._layout.sizes or not title else "quoted" if quoted else "size"
            text = ", ".join([title, *([kind] if kind else []), *(["thesis (quoted)"] if quoted else [])])
            name = "_".join([*([kind] if kind else []), *(["thesis"] if quoted else []), column.name])
            heads.append(Head((text,), group=group, name=name))
        heads.append(Head(("selected_on_test",), group="csv"))
        for column in self._columns:
            heads.append(Head(column.levels, group="quoted" if column.quoted else "", seeds=True))
            heads.append(Head(column.levels, group="csv", name=f"{heads[-1].text}, bytes_packed"))
        heads.append(Head((AVERAGE,)))
        lines = [self._student(labels) for labels in self._cells.rows]
        baselines = list(self._baselines())
        table = Table(self._cells.title, heads, lines, baselines, labels=len(self._layout.rows)).with_values()
        return dataclasses.replace(table, notes=dict(self._notes(table)))

    def _line(
        self,
        labels: Labels,
        kind: str,
        scores: Sequence[Entry],
        rows: Sequence[Row],
        packed: Mapping[int, float] | None = None,
        printed: Sequence[Row] = (),
        on_test: bool = False,
    ) -> Line:
        """Return a line. scores: an entry for each column of scores; packed: the bytes behind some of them.

        rows: of its models, for sizes and speeds; printed: rows with the thesis's sizes of the same models.
        """
        labels = (*labels, *[""] * (len(self._layout.rows) - len(labels)))
        # The last label gets a dagger if all weights were selected on test, and '(quoted)' in the thesis's rows.
        last = max((i for i, label in enumerate(labels) if label), default=0)
        mark = " †" * on_test + " (quoted)" * (kind == "quoted")
        entries = [Entry(label + mark * (i == last), label) for i, label in enumerate(labels)]
        names = {(row["task"], row.get("teacher")) for row in rows}
        teachers = [row for row in self._teachers if (row["task"], row["model"]) in names]
        points = [(row["task"], point) for row in printed for point in reference.quoted_points(row["task"])]
        large = [_point_row(task, point) for task, point in points if point.name == reference.QUOTED_TEACHER]
        for of_kind, column, quoted in self._measured:
            tasks = self._kinds[of_kind]
            disk_field = self._disk_field if kind == "student" and not quoted else "bytes_model"
            group = _of_tasks(printed if quoted else rows, tasks, disk_field)
            known = _comparable(group)
            self._incomparable |= not known
            entries.append(column.entry(group, _of_tasks(large if quoted else teachers, tasks)) if known else _EMPTY)
        entries.append(Entry("", str(on_test).lower()))
        for i, score in enumerate(scores):
            entries += [score, number_entry((packed or {}).get(i))]
        return Line([*entries, self._average(scores)], kind)

    def _average(self, scores: Sequence[Entry]) -> Entry:
        """Return the average of a line's scores if the columns are tasks."""
        by_task: dict[str, dict[str, float | None]] = {}
        for column, entry in zip(self._columns, scores, strict=True):
            if tuple(self._layout.columns) == ("task",) and column.task and not column.quoted:
                by_task.setdefault(column.task, {})[column.metric] = entry.sort
        return number_entry(average_of_tasks(by_task), ".2f", 0.01)

    def _student(self, labels: Labels) -> Line:
        cells = [self._cells.cells.get((labels, column.labels), Cell("", "")) for column in self._columns]
        pairs = list(zip(cells, self._columns, strict=True))
        stats = [None if column.quoted else self._stat(cell.rows, column) for cell, column in pairs]
        on_test = [_on_test(cell.rows) for cell in cells]
        scored_on_test = {test for test, score in zip(on_test, stats, strict=True) if score}
        best = _best(self._columns, stats, on_test)
        packed = {i: _of_tasks(cells[i].rows, self._cells.tasks).mean(PACKED) for i, score in enumerate(stats) if score}
        scores, printed = [], []
        for i, (cell, column) in enumerate(pairs):
            if column.quoted and cell.task:
                figure = self._figure(cell, column)
                scores.append(Entry(figure.text, Stat(figure.mean, figure.sd, SEEDS), "quoted") if figure else _EMPTY)
                sized = figure and figure.size_bytes
                printed += [{"task": figure.task, "bytes_model": figure.size_bytes}] if sized else []
            else:
                mark = " †" if on_test[i] and scored_on_test != {True} else ""
                mark += f" · {human_bytes(packed[i])}" if self._layout.sizes and packed.get(i) is not None else ""
                scores.append(self._planned(stats[i], len(cell.planned), "best" if i in best else "", mark))
        of_line = [cell for (row_labels, _), cell in self._cells.cells.items() if row_labels == labels]
        rows = [row for cell in of_line for row in cell.rows]
        return self._line(labels, "student", scores, rows, packed, printed, scored_on_test == {True})

    def _planned(self, score: Stat | None, planned: int, kind: str, mark: str) -> Entry:
        """Return the entry of a score, '78.50 ± 1.02', with '(3/4)' if planned seeds are missing."""
        scored = score.n if score else 0
        self._incomplete |= scored < planned
        missing = f" ({scored}/{planned})" if scored < planned else ""
        return Entry(score.text + missing + mark, score, kind) if score else _EMPTY

    def _stat(self, rows: Sequence[Row], column: ScoreColumn) -> Stat | None:
        """Return a metric over the seeds; a seed counts only if it has scores on all test splits of its task."""
        if not column.quoted and rows:
            splits = self._cells.metrics_and_splits(rows[0]["task"])[1]
            by_seed = grouped(rows, lambda row: row.get("seed")).values()
            rows = [row for of_seed in by_seed if (row := mean_over_splits(of_seed, splits))]
        return SeedGroup("", tuple(rows)).metric(column.metric)

    def _figure(self, cell: Cell, column: ScoreColumn) -> QuotedFigure | None:
        """Return the figure of a cell's students; None if the table has no figure or several for their fields."""
        fields = cell.student_fields()
        same = [
            figure
            for figure in self._figures
            if (figure.task, figure.metric) == (column.task or cell.task, column.metric)
            and all(fields.get(name) == value for name, value in figure.fields.items())
        ]
        return same[0] if len(same) == 1 else None

    def _baselines(self) -> Iterator[Line]:
        """Yield teachers, with scores in all columns of their tasks, then the thesis's baselines, in quoted columns."""
        tests = [row for row in self._teachers if str(row["split"]).startswith("test")]
        quoted = [column for column in self._columns if column.quoted]
        tasks = dict.fromkeys(t for column in quoted for t in ([column.task] if column.task else self._cells.tasks))
        points = [(task, point) for task in tasks for point in reference.quoted_points(task) if point.baseline]
        for kind, rows in (("teacher", tests), ("quoted", [_point_row(task, point) for task, point in points])):
            for name, of_line in grouped(rows, self._baseline_name).items():
                scores = []
                for column in self._columns:
                    of_task = [row for row in of_line if row["task"] == (column.task or of_line[0]["task"])]
                    score = self._stat(of_task, column) if column.quoted == (kind == "quoted") else None
                    scores.append(Entry(score.text, score, "quoted" * column.quoted) if score else _EMPTY)
                yield self._line((name,), kind, scores, of_line, on_test=_on_test(of_line))

    def _baseline_name(self, row: Row) -> str:
        name = name_without_seed(row)
        return name if all(column.task for column in self._columns) else f"{name}, {row['task']}"

    def _notes(self, table: Table) -> Iterator[tuple[str, Group]]:
        """Yield notes on how to read the table, and the columns they are about."""
        entries = [entry for line in table.every for entry in line.entries]
        sizes = {head.name for head in table.heads if head.group == "size"}
        shown = [column for column in columns_of("pivot") if any(name.endswith(column.name) for name in sizes)]
        rows = [row for cell in self._cells.cells.values() for row in cell.rows]
        several = [splits for task in self._cells.tasks if len(splits := self._cells.metrics_and_splits(task)[1]) > 1]
        means = [f"{averaged('accuracy', s)}: a seed's score is the mean over {' and '.join(s)}." for s in several]
        missing = " (n/N): so far n of N seeds are scored; a dash: none of them." if self._incomplete else ""
        yield f"Scores are means over seeds ± the sample standard deviation (n − 1), all times 100.{missing}", ""
        if any(entry.kind == "best" for entry in entries):
            yield "Bold: the best mean of a row, of each metric; all that show the same number.", ""
        yield from ((note, "") for note in dict.fromkeys(means))
        if table.heads[-1].text == AVERAGE:
            yield "Average of tasks: the mean over tasks of the means over their metrics, as GLUE's score.", ""
        if any(line.kind == "teacher" for line in table.baselines):
            yield "A teacher's score is in every column of its task.", ""
        if any(column.quoted for column in self._columns):
            text = "Quoted figures are the thesis's, of its own protocol and hardware; they are never the best."
            yield text, "quoted"
        if any("†" in entry.text for entry in entries):
            yield SELECTED_ON_TEST, ""
        if self._layout.sizes:
            yield f"Sizes are of the packed file, all in: weights, vocabulary, labels, settings. {UNITS}", ""
        if sizes and len(self._kinds) == 2:
            yield "single: of tasks of single sentences; pairs: of tasks of pairs; both are means over tasks.", "size"
        if self._incomparable and not self._layout.sizes:
            yield "Parameters and sizes are left out where a row's models differ in them.", "size"
        yield from ((note, "size") for note in notes_of(shown, [*rows, *self._teachers]))


def _of_tasks(rows: Iterable[Row], tasks: Collection[str], disk_field: str = "bytes_model") -> SeedGroup:
    return SeedGroup("", tuple(row for row in rows if row["task"] in tasks), disk_field)


def _point_row(task: str, point: QuotedPoint) -> Row:
    sizes = {"parameters": point.parameters, "bytes_model": point.size_bytes}
    return {"task": task, "model": point.name, "metrics": point.metrics, **sizes}


def _comparable(group: SeedGroup) -> bool:
    """Return whether models have one size: the same stage, and the same parameters on each task."""
    by_task = grouped(group.rows, lambda row: row["task"]).values()
    return all(len({(row.get("stage"), row.get("parameters")) for row in rows}) == 1 for rows in by_task)


def _on_test(rows: Iterable[Row]) -> bool:
    return any(row.get("select_on") == "test" for row in rows)


def _best(columns: list[ScoreColumn], stats: list[Stat | None], on_test: list[bool]) -> set[int]:
    """Return the columns with the best mean of each metric, including ties of the shown number.

    A metric with a single scored column has none. Means of models selected on test count only if all of them are.
    """
    shown = {i: round(100 * score.mean, 2) for i, score in enumerate(stats) if score is not None}
    best: set[int] = set()
    for group in grouped(shown, lambda i: (columns[i].task, columns[i].metric)).values():
        rivals = [i for i in group if not on_test[i]] or group
        highest = max(shown[i] for i in rivals)
        best |= {i for i in rivals if shown[i] == highest and len(group) > 1}
    return best


def terminal_pivot(table: Table, width: int) -> tuple[str, list[str]] | None:
    """Return the table in plain text, with stars at the best means, and its notes; None if it is wider than `width`.

    If the table does not fit, quoted figures are left out, then parameters, sizes and speeds.
    """
    for groups in ((), ("quoted",), ("quoted", "size")):
        shown = table.without("csv", *groups)
        metrics = {head.levels[-1] for head in shown.heads if head.seeds}
        heads = [
            dataclasses.replace(head, levels=tuple(SHORT.get(name, name) for name in head.levels))
            for head in shown.heads
        ]
        if groups and len(metrics) == 1:
            heads = [dataclasses.replace(head, levels=head.levels[: -1 if head.seeds else None]) for head in heads]
        text = plain_table(dataclasses.replace(shown, heads=heads))
        if max(map(len, text.splitlines())) <= width:
            return text, [note.replace("Bold:", "*:") for note in shown.notes]
    return None
