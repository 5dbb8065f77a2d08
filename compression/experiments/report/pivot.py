"""Tables of means and deviations, in the layout of the thesis's table 7.1, for any axes of a sweep.

Runs and rows are put into cells by their labels. A table has the cells that agree in all axes that are not laid out.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common.data.tasks import TASK_SUFFIXES, Task, load_task
from common.errors import UserError
from common.tables import UNITS, human_bytes
from compression.evaluation.rows import Row
from compression.experiments.report import reference
from compression.experiments.report.columns import SELECTED_ON_TEST, Column, columns_of, notes_of
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import QuotedFigure
from compression.experiments.report.results import (
    GZIPPED,
    PACKED,
    SeedGroup,
    Stat,
    average_of_tasks,
    grouped,
    means_over_splits,
    name_without_seed,
    stage_label,
)
from compression.experiments.report.table import Entry, Group, Head, Line, Table, number_entry, plain_table

Labels = tuple[str, ...]
Cells = dict[tuple[Labels, Labels], "Cell"]
"""Labels of the row and of the column -> cell."""
QUOTED_SEEDS = 4
"""Runs behind each of the thesis's figures (table 7.1)."""
SHORT_NAMES = {"student_arch": "student", "embedding_type": "embedding", "embedding_dim": "dim", "vocab_size": "vocab"}
"""Names of axes on a terminal."""
AVERAGE = "average of tasks"
"""Heading of the mean over tasks."""
_STAGES = ("distilled", "+f", "+p", "+f+p", "+q", "+f+q", "+p+q", "+f+p+q")
"""Labels of the axis `stage`, in order: the actions applied to a student."""
_DEFAULTS = {"student_arch": "bilstm", "vocab_size": 5000, "alpha": 0.0}
"""compress.py's defaults that do not depend on the architecture."""
_OF_STUDENT = ("student_arch", "embedding_type", "embedding_dim", "vocab_size", "alpha", "augmented")
_MATCHED = "test_matched and test_mismatched"
_EMPTY = number_entry(None)


@dataclasses.dataclass
class Cell:
    """A cell of a table. planned: seeds of its runs; settings: settings of its runs; by_seed: rows of its models."""

    task: str
    stage: str
    planned: set[int] = dataclasses.field(default_factory=set)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    by_seed: dict[int, Row] = dataclasses.field(default_factory=dict)

    @property
    def group(self) -> SeedGroup:
        """Its models."""
        return SeedGroup("", tuple(self.by_seed.values()))

    def figures(self, quoted: Iterable[QuotedFigure], task: str | None) -> dict[str, QuotedFigure]:
        """Return metric -> the only figure of the cell's students. task: of the figures; unset: the cell's."""
        fields = {**_DEFAULTS, **self.settings, "augmented": not self.settings.get("only_original_data", False)}
        for row in self.by_seed.values():
            fields |= {name: row["settings"][name] for name in ("pooling", "loss") if name in row["settings"]}
            fields |= {name: row[name] for name in _OF_STUDENT if row[name] is not None}
        fields["stage"] = self.stage
        same = [one for one in quoted if one.task == (task or self.task) and one.fields.items() <= fields.items()]
        by_metric = grouped(same, lambda figure: figure.metric)
        return {metric: figures[0] for metric, figures in by_metric.items() if len(figures) == 1}


@dataclasses.dataclass(frozen=True)
class ScoreColumn:
    """One metric for one combination of labels of the column axes.

    heading: the metric as shown; task: task of the scores, None if every row has its own; quoted: whether these are
    the thesis's figures.
    """

    labels: Labels
    metric: str
    heading: str
    task: str | None
    quoted: bool = False


def pivots(rows: Sequence[Row], record: ExperimentRecord) -> list[Table]:
    """Return a table for each combination of values of the axes, including `task`, that the layout leaves out.

    Baselines are the teachers, then the thesis's baselines (quoted), with scores in the columns they belong to. Empty
    without a layout. Raises UserError if the record quotes a table of the thesis that is not available.
    """
    if record.table is None:
        return []
    rows = means_over_splits(rows)
    figures = reference.quoted_figures(record.quote.table) if record.quote else []
    teachers = [row for row in rows if row["stage"] == "teacher" and row.get("cell") is None]
    return [_Pivot(cells, record, figures, teachers).table(title) for title, cells in _pages(rows, record)]


def _pages(rows: Sequence[Row], record: ExperimentRecord) -> Iterator[tuple[str, Cells]]:
    """Yield the title and the cells of each table, in the order of the axes that are not laid out."""
    layout = record.table
    laid_out = (*layout.rows, *layout.columns)
    by_stage = "stage" in laid_out
    others = [axis for axis in record.axes if axis not in (*laid_out, "task")]
    others = [axis for axis in others if not (by_stage and _only_actions_differ(record, axis))]
    others = others if "task" in laid_out else ["task", *others]
    pages: dict[Labels, Cells] = {}

    def cell_of(labels: dict[str, str]) -> Cell:
        page, row, column = (tuple(labels.get(a, "") for a in axes) for axes in (others, layout.rows, layout.columns))
        return pages.setdefault(page, {}).setdefault((row, column), Cell(labels["task"], labels["stage"]))

    last_stage: dict[str, str] = {}
    for run in record.runs:
        actions = run.settings.get("compression_actions") or ["distill"]
        actions = [actions] if isinstance(actions, str) else actions
        stages = [stage_label({"actions": actions[: i + 1]}) for i in range(len(actions))]  # one model for each action
        last_stage[_key(run.cell, run.seed)] = stages[-1]
        for stage in stages if by_stage else stages[-1:]:
            cell = cell_of({**run.cell, "task": _task_name(str(run.settings.get("task", ""))), "stage": stage})
            cell.planned.add(run.seed)
            cell.settings = run.settings
    for row in rows:
        labels, stage = row.get("cell"), stage_label(row)
        # If the table does not show stages, a run's result is the model of its last action.
        if labels is not None and (by_stage or last_stage.get(_key(labels, row["seed"]), stage) == stage):
            cell_of({**labels, "task": row["task"], "stage": stage}).by_seed[row["seed"]] = row
    for page in _in_order(pages, others, record):
        names = [label if axis == "task" else f"{axis} {label}" for axis, label in zip(others, page, strict=True)]
        yield ", ".join(names) or record.title, pages[page]


def _in_order(labels: Iterable[Labels], axes: Sequence[str], record: ExperimentRecord) -> list[Labels]:
    """Return the distinct labels in the order of the axes; labels that an axis does not have come last."""
    order = {**record.axes, "task": [_task_name(task) for task in record.axes.get("task", ())], "stage": _STAGES}
    known = [list(order.get(axis, ())) for axis in axes]
    return sorted(
        dict.fromkeys(labels),
        key=lambda line: [[*names, label].index(label) for names, label in zip(known, line, strict=True)],
    )


def _key(cell: dict[str, str], seed: int) -> str:
    return str((sorted(cell.items()), seed))


def _only_actions_differ(record: ExperimentRecord, axis: str) -> bool:
    """Return whether runs along an axis differ only in their actions, so that `stage` tells their models apart."""
    alike = grouped(record.runs, lambda run: _key({n: label for n, label in run.cell.items() if n != axis}, run.seed))
    settings = [[{**run.settings, "compression_actions": None} for run in runs] for runs in alike.values()]
    return all(setting == group[0] for group in settings for setting in group)


def _task_name(value: str) -> str:
    """Return the task's name for a value of --task: a name, or the path of a YAML file, which may no longer exist."""
    if not value.endswith(TASK_SUFFIXES):
        return value
    task = _defined(value)
    return task.name if task else Path(value).stem


def _defined(value: str) -> Task | None:
    """Return a task, or None if the file of a user's own task no longer exists."""
    try:
        return load_task(value)
    except UserError:
        return None


def averaged(metric: str, splits: str) -> str:
    """Return the heading of a metric on several splits: 'accuracy (m+mm)/2' for its mean over MNLI's test splits."""
    if " and " not in splits:
        return metric
    return f"{metric} (m+mm)/2" if splits == _MATCHED else f"{metric}, mean of {splits}"


class _Pivot:
    """Builder of one table."""

    def __init__(
        self, cells: Cells, record: ExperimentRecord, figures: Sequence[QuotedFigure], teachers: Sequence[Row]
    ) -> None:
        self._cells, self._record, self._layout, self._figures = cells, record, record.table, figures
        self._quoted_task = record.quote.task if record.quote else None
        self._quoted = {place: cell.figures(figures, self._quoted_task) for place, cell in cells.items()}
        self._tasks = list(dict.fromkeys(cell.task for cell in cells.values()))
        self._scored = {task: self._metrics_and_splits(task) for task in self._tasks}
        self._teachers = [row for row in teachers if row["task"] in self._tasks]
        columns = _in_order((column for _, column in cells), self._layout.columns, record)
        self._columns = [column for labels in columns for column in self._score_columns(labels)]
        pairs = [task for task in self._tasks if (defined := _defined(task)) and defined.pair]
        single = [task for task in self._tasks if task not in pairs]
        both = "task" in self._layout.columns and single and pairs
        self._kinds = {"single": single, "pairs": pairs} if both else {"": self._tasks}
        stages = {row["stage"] for cell in cells.values() for row in cell.group.rows}
        quotes_gzipped = record.quote is not None and record.quote.table == reference.GZIPPED_TABLE
        self._disk_field = GZIPPED if quotes_gzipped or {"pruned", "quantized"} & stages else "bytes_model"
        self._measures = [
            (column, kind, quoted)
            for kind in self._kinds
            for table, quoted in (("pivot", False), ("printed", True))
            for column in columns_of(table)
        ]
        self._incomplete = self._incomparable = False

    def _metrics_and_splits(self, task: str) -> tuple[Sequence[str], str]:
        """Return a task's metrics and test splits from its rows, else from its definition if it is still available."""
        cells = [cell for cell in self._cells.values() if cell.task == task]
        for row in (row for cell in cells for row in cell.group.rows):
            if row["metrics"]:
                return list(row["metrics"]), row["split"]
        files = (str(cell.settings["task"]) for cell in cells if "task" in cell.settings)
        defined = _defined(next(files, task))
        return (defined.all_metrics, " and ".join(defined.test_splits)) if defined else (["score"], "test")

    def _score_columns(self, labels: Labels) -> Iterator[ScoreColumn]:
        """Yield the columns of a combination of labels: our metrics, the main one first, then the quoted ones."""
        axes = self._layout.columns
        tasks = [labels[axes.index("task")]] if "task" in axes else self._tasks
        only = tasks[0] if len(tasks) == 1 else None
        for metric in dict.fromkeys(metric for task in tasks for metric in self._scored[task][0]):
            yield ScoreColumn(labels, metric, averaged(metric, self._scored[only][1]) if only else metric, only)
        only = self._quoted_task or only
        source = f"thesis, {only.upper()} (quoted)" if only else "thesis (quoted)"
        known = {metric for (_, column), figures in self._quoted.items() if column == labels for metric in figures}
        for metric in dict.fromkeys(figure.metric for figure in self._figures if figure.metric in known):
            # The thesis has one figure for MNLI's two test splits.
            heading = averaged(metric, _MATCHED) if only == "mnli" else metric
            yield ScoreColumn(labels, metric, f"{heading}, {source}", only, quoted=True)

    def table(self, title: str) -> Table:
        heads = [Head((axis,), numeric=False) for axis in self._layout.rows]
        heads += [self._measure_head(column, kind, quoted) for column, kind, quoted in self._measures]
        heads.append(Head(("selected_on_test",), group="csv"))
        for column in self._columns:
            heads.append(Head((*column.labels, column.heading), group="quoted" if column.quoted else "", seeds=True))
            heads.append(Head(heads[-1].levels, group="csv", name=f"{heads[-1].text}, bytes_packed"))
        heads.append(Head((AVERAGE,)))
        lines, baselines = list(self._students()), list(self._baselines())
        table = Table(title, heads, lines, baselines, labels=len(self._layout.rows)).with_values()
        return dataclasses.replace(table, notes=dict(self._notes(table)))

    def _measure_head(self, column: Column, kind: str, quoted: bool) -> Head:
        """Return the heading of a column of sizes or speeds. kind: of its tasks; quoted: of the thesis's models."""
        measure = column.heading.replace("{than}", "")
        group: Group = "quoted" if quoted else "size"
        if self._layout.sizes or not measure:
            group = "csv"
        text = ", ".join(filter(None, (measure, kind, "thesis (quoted)" if quoted else "")))
        name = "_".join(filter(None, (kind, "thesis" if quoted else "", column.name)))
        return Head((text,), group=group, name=name)

    def _students(self) -> Iterator[Line]:
        """Yield a line for each combination of labels of the row axes."""
        for labels in _in_order((row for row, _ in self._cells), self._layout.rows, self._record):
            cells = [self._cells.get((labels, column.labels), Cell("", "")) for column in self._columns]
            rows = [row for (line, _), cell in self._cells.items() if line == labels for row in cell.group.rows]
            yield self._line(labels, "student", cells, rows)

    def _baselines(self) -> Iterator[Line]:
        """Yield teachers, with scores in all columns of their tasks, then the thesis's baselines, in quoted columns."""
        one_task = all(column.task for column in self._columns)
        quoted = [column.task for column in self._columns if column.quoted]
        tasks = dict.fromkeys(name for task in quoted for name in ([task] if task else self._tasks))
        thesis = [row for task in tasks for row in reference.quoted_rows(task) if row["stage"] == "baseline"]

        def name_of(row: Row) -> str:
            name = name_without_seed(row["model"], row["seed"])
            return name if one_task else f"{name}, {row['task']}"

        for kind, rows in (("teacher", self._teachers), ("quoted", thesis)):
            for name, of_line in grouped(rows, name_of).items():
                cells = []
                for column in self._columns:
                    task = column.task or of_line[0]["task"]
                    cells.append(Cell(task, "", by_seed={row["seed"]: row for row in of_line if row["task"] == task}))
                yield self._line((name, *[""] * (len(self._layout.rows) - 1)), kind, cells, of_line)

    def _line(self, labels: Labels, kind: str, cells: list[Cell], rows: list[Row]) -> Line:
        """Return a line. cells: one for each column of scores; rows: of its models, for sizes and speeds."""
        stats = [
            cell.group.metric(column.metric) if column.quoted == (kind == "quoted") else None
            for cell, column in zip(cells, self._columns, strict=True)
        ]
        on_test = [cell.group.selected_on_test for cell in cells]
        all_on_test = {test for test, score in zip(on_test, stats, strict=True) if score} == {True}
        best = _best(self._columns, stats, on_test) if kind == "student" else ()
        scores = []
        printed = []  # rows of the quoted figures
        by_task = {}  # task -> metric -> score
        for i, (cell, column, score) in enumerate(zip(cells, self._columns, stats, strict=True)):
            figures = self._quoted.get((labels, column.labels), {}) if column.quoted and kind == "student" else {}
            scored = score.n if score else 0
            self._incomplete |= scored < len(cell.planned) and not column.quoted
            packed, entry = None, _EMPTY
            if figure := figures.get(column.metric):
                entry = Entry(figure.text, Stat(figure.mean, figure.sd, QUOTED_SEEDS), "quoted")
                if figure.size_bytes:
                    printed.append({"task": figure.task, "bytes_model": figure.size_bytes})
            elif score:
                packed = cell.group.mean(PACKED)
                text = self._score_text(cell, score, packed, on_test[i] and not all_on_test)
                of_thesis = "quoted" if column.quoted else ""
                entry = Entry(text, score, "best" if i in best else of_thesis)
            scores += [entry, number_entry(packed)]
            if tuple(self._layout.columns) == ("task",) and column.task and not column.quoted:
                by_task.setdefault(column.task, {})[column.metric] = entry.sort
        # The last label says if all weights were selected on test, and if the scores are quoted.
        mark = " †" * all_on_test + " (quoted)" * (kind == "quoted")
        last = max((i for i, label in enumerate(labels) if label), default=0)
        entries = [Entry(label + mark * (i == last), label) for i, label in enumerate(labels)]
        disk_field = self._disk_field if kind == "student" else "bytes_model"
        for column, kind_of_task, quoted in self._measures:
            tasks = self._kinds[kind_of_task]
            of_tasks = tuple(row for row in (printed if quoted else rows) if row["task"] in tasks)
            entries.append(self._measured(column, SeedGroup("", of_tasks, disk_field), tasks, quoted))
        average = number_entry(average_of_tasks(by_task), ".2f", 0.01)
        return Line([*entries, Entry("", str(all_on_test).lower()), *scores, average], kind)

    def _score_text(self, cell: Cell, score: Stat, packed: float | None, marked: bool) -> str:
        """Return a score, the number of seeds if some are missing, a dagger if it is marked, and the packed size."""
        text = score.text
        if score.n < len(cell.planned):
            text += f" ({score.n}/{len(cell.planned)})"
        if marked:
            text += " †"
        if self._layout.sizes and packed is not None:
            text += f" · {human_bytes(packed)}"
        return text

    def _measured(self, column: Column, group: SeedGroup, tasks: Collection[str], quoted: bool) -> Entry:
        """Return the entry of a size or speed, the mean over tasks. quoted: of the thesis's models."""
        by_task = grouped(group.rows, lambda row: row["task"]).values()
        if any(len({(row.get("stage"), row.get("parameters")) for row in rows}) > 1 for rows in by_task):
            self._incomparable = True
            return _EMPTY
        if quoted:
            group = dataclasses.replace(group, disk_field="bytes_model")
            large = (row for task in tasks for row in reference.quoted_rows(task))
            teachers = [row for row in large if row["model"] == reference.QUOTED_TEACHER]
        else:
            names = {(row["task"], row["teacher"]) for row in group.rows}
            teachers = [row for row in self._teachers if (row["task"], row["model"]) in names]
        return column.entry(group, SeedGroup("", tuple(teachers)))

    def _notes(self, table: Table) -> Iterator[tuple[str, Group]]:
        """Yield notes on how to read the table, and the columns they are about."""
        entries = [entry for line in table.all_lines for entry in line.entries]
        sizes = {head.name for head in table.heads if head.group == "size"}
        shown = [column for column in columns_of("pivot") if any(name.endswith(column.name) for name in sizes)]
        rows = [row for cell in self._cells.values() for row in cell.group.rows]
        missing = " (n/N): so far n of N seeds are scored; a dash: none of them." if self._incomplete else ""
        yield f"Scores are means over seeds ± the sample standard deviation (n − 1), all times 100.{missing}", ""
        if any(entry.kind == "best" for entry in entries):
            yield "Bold: the best mean of a row, of each metric; all that show the same number.", ""
        for splits in dict.fromkeys(splits for _, splits in self._scored.values() if " and " in splits):
            yield f"{averaged('accuracy', splits)}: a seed's score is the mean over {splits}.", ""
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
        one_metric = len({head.levels[-1] for head in shown.heads if head.seeds}) == 1
        heads = []
        for head in shown.heads:
            levels = head.levels[:-1] if groups and one_metric and head.seeds else head.levels
            heads.append(dataclasses.replace(head, levels=tuple(SHORT_NAMES.get(name, name) for name in levels)))
        text = plain_table(dataclasses.replace(shown, heads=heads))
        if max(map(len, text.splitlines())) <= width:
            return text, [note.replace("Bold:", "*:") for note in shown.notes]
    return None
