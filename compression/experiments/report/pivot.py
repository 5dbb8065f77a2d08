"""Tables of means and deviations, in the layout of the thesis's table 7.1, for any axes of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from common.tables import UNITS, human_bytes
from compression.experiments.report.columns import columns_of, notes_of
from compression.experiments.report.models_table import SELECTED_ON_TEST
from compression.experiments.report.pivot_layout import (
    Cell,
    Labels,
    PivotTable,
    ScoreColumn,
    averaged,
    columns_of_scores,
    defined_task,
    pivot_tables,
)
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import (
    GZIPPED_TABLE,
    QUOTED_TEACHER,
    QuotedFigure,
    QuotedPoint,
    quoted_figures,
    quoted_points,
)
from compression.experiments.report.results import Row, grouped
from compression.experiments.report.seed_groups import (
    DASH,
    GZIPPED,
    SeedGroup,
    Stat,
    average_of_tasks,
    mean,
    mean_over_splits,
    name_without_seed,
    stat,
)
from compression.experiments.report.table import Entry, Group, Head, Line, Table, number_entry, plain_table

SEEDS = 4
"""Runs behind each of the thesis's figures (table 7.1)."""
SHORT = {"student_arch": "student", "embedding_type": "embedding", "embedding_dim": "dim", "vocab_size": "vocab"}
"""Names of axes on a terminal."""
_PRINTED = ("bytes", "times_smaller")
"""Columns that the thesis has, too."""
AVERAGE = "average of tasks"
"""Heading of the mean over tasks."""
_EMPTY = Entry(DASH)


def pivots(rows: Sequence[Row], record: ExperimentRecord) -> list[Table]:
    """Return a table for each combination of values of the axes, including `task`, that the layout leaves out.

    Baselines are the teachers, then the thesis's baselines (quoted), with scores in the columns they belong to. Empty
    without a layout. Raises UserError if the record quotes a table of the thesis that is not available.
    """
    if record.table is None:
        return []
    figures = quoted_figures(record.quote.table) if record.quote else []
    teachers = [row for row in rows if row.get("stage") == "teacher" and row.get("cell") is None]
    tables = pivot_tables(rows, record, record.table)
    return [_Pivot(table, record, figures, teachers).table() for table in tables]


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
        self._kinds = _kinds(cells.tasks, "task" in record.table.columns)
        stages = {row["stage"] for cell in cells.cells.values() for row in cell.rows}
        quotes_gzipped = record.quote is not None and record.quote.table == GZIPPED_TABLE
        self._disk_field = GZIPPED if quotes_gzipped or {"pruned", "quantized"} & stages else "bytes_model"
        self._incomplete = self._incomparable = False

    def table(self) -> Table:
        """Return the table."""
        lines = [self._student(labels) for labels in self._cells.rows]
        baselines = [*self._of_teachers(), *self._of_thesis()]
        heads = [Head((axis,), numeric=False) for axis in self._layout.rows]
        heads += [*self._measured_heads(), Head(("selected_on_test",), group="csv")]
        for column in self._columns:
            heads.append(Head(column.levels, group="quoted" if column.quoted else "", seeds=True))
            heads.append(Head(column.levels, group="csv", name=f"{heads[-1].text}, bytes_packed"))
        heads.append(Head((AVERAGE,)))
        table = Table(self._cells.title, heads, lines, baselines, labels=len(self._layout.rows))
        known = [any(line.entries[i].value is not None for line in table.every) for i in range(len(heads))]
        table = table.of_columns([i for i, head in enumerate(heads) if known[i] or head.seeds or i < table.labels])
        return dataclasses.replace(table, notes=dict(self._notes(table)))

    def _measured_heads(self) -> list[Head]:
        """Return the headings of sizes and speeds, of each kind of task."""
        heads = []
        for kind in self._kinds:
            prefix, ending = (f"{kind}_", f", {kind}") if kind else ("", "")
            titles = [(column, column.heading.replace("{than}", "")) for column in columns_of("pivot")]
            for column, title in titles:
                group: Group = "csv" if self._layout.sizes or not title else "size"
                heads.append(Head((f"{title}{ending}",), group=group, name=f"{prefix}{column.name}"))
            for column, title in titles:
                if column.name in _PRINTED:
                    group = "csv" if self._layout.sizes else "quoted"
                    text = f"{title}{ending}, thesis (quoted)"
                    heads.append(Head((text,), group=group, name=f"{prefix}thesis_{column.name}"))
        return heads

    def _line(
        self,
        labels: Labels,
        kind: str,
        scores: Iterable[Entry],
        rows: Iterable[Row],
        figures: Sequence[QuotedFigure] = (),
        on_test: bool = False,
    ) -> Line:
        """Return a line. rows: of its models, for sizes and speeds; figures: the thesis's of the same models."""
        labels = (*labels, *[""] * (len(self._layout.rows) - len(labels)))
        # The last label gets a dagger if all weights were selected on test, and '(quoted)' in the thesis's rows.
        last = max((i for i, label in enumerate(labels) if label), default=0)
        mark = " †" * on_test + " (quoted)" * (kind == "quoted")
        entries = [Entry(label + mark * (i == last), label) for i, label in enumerate(labels)]
        rows = list(rows)
        names = {(row["task"], row.get("teacher")) for row in rows}
        teachers = [row for row in self._teachers if (row["task"], row["model"]) in names]
        printed = [{"task": f.task, "bytes_model": f.size_bytes} for f in figures if f.size_bytes]
        for tasks in self._kinds.values():
            group, teacher = _of_tasks(rows, tasks), _of_tasks(teachers, tasks)
            if kind == "student":
                group = dataclasses.replace(group, disk_field=self._disk_field)
            known = _comparable(group)
            self._incomparable |= bool(group.rows) and not known
            entries += [column.entry(group, teacher) if known else _EMPTY for column in columns_of("pivot")]
            quoted = _of_tasks(printed, tasks)
            large = [_point_row(task, p) for task in tasks for p in quoted_points(task) if p.name == QUOTED_TEACHER]
            teacher = _of_tasks(large, {row["task"] for row in quoted.rows})
            entries += [column.entry(quoted, teacher) for column in columns_of("pivot") if column.name in _PRINTED]
        scores = list(scores)
        return Line([*entries, Entry("", str(on_test).lower()), *scores, self._average(scores[::2])], kind)

    def _average(self, scores: Sequence[Entry]) -> Entry:
        """Return the average of a line's scores if the columns are tasks. scores: an entry for each column."""
        by_task: dict[str, dict[str, float | None]] = {}
        for column, entry in zip(self._columns, scores, strict=True):
            if tuple(self._layout.columns) == ("task",) and column.task and not column.quoted:
                by_task.setdefault(column.task, {})[column.metric] = entry.value.mean if entry.value else None
        return number_entry(average_of_tasks(by_task), ".2f", 0.01)

    def _student(self, labels: Labels) -> Line:
        cells = [self._cells.cells.get((labels, column.labels), Cell("", "")) for column in self._columns]
        stats = [self._stat(cell, column) for cell, column in zip(cells, self._columns, strict=True)]
        on_test = [_on_test(cell.rows) for cell in cells]
        scored_on_test = {test for test, score in zip(on_test, stats, strict=True) if score}
        best = _best(self._columns, stats, on_test)
        scores, quoted = [], []
        for i, (cell, column) in enumerate(zip(cells, self._columns, strict=True)):
            if column.quoted and cell.task:
                figure = self._figure(cell, column)
                quoted += [figure] if figure else []
                value = Stat(figure.mean, figure.sd, SEEDS) if figure else None
                scores += _score(Entry(figure.text if figure else DASH, value, "quoted"))
            else:
                marked = on_test[i] and scored_on_test != {True}
                scores += self._planned(stats[i], cell, "best" if i in best else "", " †" * marked)
        in_row = [
            row for (row_labels, _), cell in self._cells.cells.items() if row_labels == labels for row in cell.rows
        ]
        return self._line(labels, "student", scores, in_row, quoted, scored_on_test == {True})

    def _stat(self, cell: Cell, column: ScoreColumn) -> Stat | None:
        """Return a metric over the seeds; a seed counts only if it has scores on all test splits of its task."""
        if column.quoted or not cell.scored:
            return None
        splits = self._cells.metrics_and_splits(cell.task)[1]
        means = [mean_over_splits(by_split.values(), splits) for by_split in cell.scored.values()]
        return stat(row["metrics"].get(column.metric) for row in means if row)

    def _planned(self, score: Stat | None, cell: Cell, kind: str, mark: str) -> list[Entry]:
        """Return the entry of a score, '78.50 ± 1.02', with '(3/4)' if seeds are missing, and its size if laid out."""
        planned, scored = len(cell.planned), score.n if score else 0
        self._incomplete |= scored < planned
        packed = mean(row.get("bytes_packed") for row in cell.rows)
        if score is None:
            return _score(_EMPTY)
        text = score.text + (f" ({scored}/{planned})" if scored < planned else "") + mark
        text += f" · {human_bytes(packed)}" if self._layout.sizes and packed is not None else ""
        return _score(Entry(text, score, kind), packed)

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

    def _of_teachers(self) -> Iterator[Line]:
        """Yield a line per teacher, with its score in all columns of its task; one per task if the rows have tasks."""
        tests = [row for row in self._teachers if str(row["split"]).startswith("test")]
        by_name = grouped(tests, lambda row: self._baseline_name(name_without_seed(row), row["task"]))
        for name, rows in by_name.items():
            by_task: dict[str, Cell] = {}
            for row in rows:
                cell = by_task.setdefault(row["task"], Cell(row["task"], "teacher"))
                cell.scored.setdefault(row.get("seed"), {})[row["split"]] = row
            scores = []
            for column in self._columns:
                cell = by_task.get(column.task or rows[0]["task"], Cell("", ""))
                score = self._stat(cell, column)
                scores += _score(Entry(score.text, score) if score else _EMPTY)
            yield self._line((name,), "teacher", scores, rows, on_test=_on_test(rows))

    def _of_thesis(self) -> Iterator[Line]:
        """Yield the thesis's baselines, with scores in the quoted columns."""
        quoted = [column for column in self._columns if column.quoted]
        tasks = dict.fromkeys(t for column in quoted for t in ([column.task] if column.task else self._cells.tasks))
        points = [(task, point) for task in tasks for point in quoted_points(task) if point.baseline]
        by_name = grouped(points, lambda pair: self._baseline_name(pair[1].name, pair[0]))
        for name, pairs in by_name.items():
            by_task = dict(pairs)
            scores = []
            for column in self._columns:
                point = by_task.get(column.task or pairs[0][0]) if column.quoted else None
                score = point.metrics.get(column.metric) if point else None
                entry = _EMPTY if score is None else Entry(f"{100 * score:.2f}", Stat(score, None, 1), "quoted")
                scores += _score(entry)
            yield self._line((name,), "quoted", scores, [_point_row(task, point) for task, point in pairs])

    def _baseline_name(self, name: str, task: str) -> str:
        return name if all(column.task for column in self._columns) else f"{name}, {task}"

    def _notes(self, table: Table) -> Iterator[tuple[str, Group]]:
        """Yield notes on how to read the table, and the columns they are about."""
        entries = [entry for line in table.every for entry in line.entries]
        sizes = {head.name for head in table.heads if head.group == "size"}
        text = "Scores are means over seeds ± the sample standard deviation (n − 1), all times 100."
        yield text + (" (n/N): so far n of N seeds are scored; a dash: none of them." if self._incomplete else ""), ""
        if any(entry.kind == "best" for entry in entries):
            yield "Bold: the best mean of a row, of each metric; all that show the same number.", ""
        for splits in dict.fromkeys(self._cells.metrics_and_splits(task)[1] for task in self._cells.tasks):
            if len(splits) > 1:
                yield f"{averaged('accuracy', splits)}: a seed's score is the mean over {' and '.join(splits)}.", ""
        if table.heads[-1].text == AVERAGE:
            yield "Average of tasks: the mean over tasks of the means over their metrics, as GLUE's score.", ""
        if any(line.kind == "teacher" for line in table.baselines):
            yield "A teacher's score is in every column of its task.", ""
        if any(column.quoted for column in self._columns):
            yield (
                "Quoted figures are the thesis's, of its own protocol and hardware; they are never the best.",
                "quoted",
            )
        if any("†" in entry.text for entry in entries):
            yield SELECTED_ON_TEST, ""
        if self._layout.sizes:
            yield f"Sizes are of the packed file, all in: weights, vocabulary, labels, settings. {UNITS}", ""
        if sizes and len(self._kinds) == 2:
            yield "single: of tasks of single sentences; pairs: of tasks of pairs; both are means over tasks.", "size"
        if self._incomparable and not self._layout.sizes:
            yield "Parameters and sizes are left out where a row's models differ in them.", "size"
        shown = [column for column in columns_of("pivot") if any(name.endswith(column.name) for name in sizes)]
        rows = [row for cell in self._cells.cells.values() for row in cell.rows]
        for note in notes_of(shown, [*rows, *self._teachers]):
            yield note, "size"


def _score(entry: Entry, packed: float | None = None) -> list[Entry]:
    return [entry, number_entry(packed)]


def _kinds(tasks: Sequence[str], by_task: bool) -> Mapping[str, Sequence[str]]:
    """Return kind -> tasks: a single kind, or single sentences and pairs if a table has columns of both."""
    defined = {task: defined_task(task) for task in tasks}
    pairs = {name for name, task in defined.items() if task and task.pair}
    by_kind = grouped(tasks, lambda task: "pairs" if task in pairs else "single") if by_task else {}
    return {kind: by_kind[kind] for kind in ("single", "pairs")} if len(by_kind) == 2 else {"": tasks}


def _of_tasks(rows: Iterable[Row], tasks: Iterable[str]) -> SeedGroup:
    return SeedGroup("", tuple(row for row in rows if row["task"] in tasks))


def _point_row(task: str, point: QuotedPoint) -> Row:
    return {"task": task, "parameters": point.parameters, "bytes_model": point.size_bytes}


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
