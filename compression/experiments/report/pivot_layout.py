"""Rows, columns and cells of a table of means, from a sweep's runs and its rows of results.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common.data.tasks import Task, load_task
from common.errors import UserError
from compression.experiments.report.record import ExperimentRecord, RecordedRun, TableLayout
from compression.experiments.report.reference import QuotedFigure
from compression.experiments.report.results import Row, grouped

Labels = tuple[str, ...]
_SUFFIX = {"factorize": "+f", "prune": "+p", "quantize": "+q"}
_STAGES = ("distilled", "+f", "+p", "+f+p", "+q", "+f+q", "+p+q", "+f+p+q")
"""Labels of the axis `stage`, in order: the actions applied to a student."""
_DEFAULTS = {"student_arch": "bilstm", "vocab_size": 5000, "alpha": 0.0}
"""compress.py's defaults that do not depend on the architecture."""
_MATCHED = ("test_matched", "test_mismatched")


@dataclasses.dataclass
class Cell:
    """A cell of a table. planned: seeds of its runs; settings: settings of its runs; scored: (seed, split) -> row."""

    task: str
    stage: str
    planned: set[int] = dataclasses.field(default_factory=set)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    scored: dict[tuple[Any, str], Row] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """All rows of the cell."""
        return list(self.scored.values())

    def student_fields(self) -> dict[str, Any]:
        """Return the fields by which reference.py identifies a student, without unknown ones."""
        fields = {**_DEFAULTS, **self.settings, "augmented": not self.settings.get("only_original_data", False)}
        for row in self.rows:
            settings = row.get("settings") or {}
            fields |= {name: settings[name] for name in ("pooling", "loss") if name in settings}
            names = ("student_arch", "embedding_type", "embedding_dim", "vocab_size", "alpha", "augmented")
            fields |= {name: row[name] for name in names if row.get(name) is not None}
        return {**fields, "stage": self.stage}


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

    @property
    def levels(self) -> Labels:
        """Labels and heading: the last level is 'accuracy' or 'accuracy, thesis, SST-2 (quoted)'."""
        return (*self.labels, self.heading)


@dataclasses.dataclass
class PivotTable:
    """A table's cells by the labels of row and column, and the row and column labels in order."""

    title: str
    rows: list[Labels]
    columns: list[Labels]
    cells: dict[tuple[Labels, Labels], Cell]

    @property
    def tasks(self) -> list[str]:
        """Tasks of the cells."""
        return list(dict.fromkeys(cell.task for cell in self.cells.values()))

    def kinds(self, by_task: bool) -> dict[str, list[str]]:
        """Return kind -> tasks: a single kind, or single sentences and pairs if a table has columns of both."""
        pairs = [name for name in self.tasks if (task := defined_task(name)) and task.pair]
        single = [name for name in self.tasks if name not in pairs]
        return {"single": single, "pairs": pairs} if by_task and single and pairs else {"": self.tasks}

    def metrics_and_splits(self, task: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return a task's metrics and test splits from its rows, else from its definition if it is still available."""
        cells = [cell for cell in self.cells.values() if cell.task == task]
        rows = [row for cell in cells for row in cell.rows]
        metrics = next((tuple(row["metrics"]) for row in rows if row.get("metrics")), ())
        splits = tuple(dict.fromkeys(row["split"] for row in rows))
        if not (metrics and splits):
            names = (str(cell.settings["task"]) for cell in cells if "task" in cell.settings)
            defined = defined_task(next(names, task))
            metrics = metrics or (defined.all_metrics if defined else ("score",))
            splits = splits or (defined.test_splits if defined else ("test",))
        return metrics, splits


def stage_label(row: Row) -> str:
    """Return 'distilled', '+p', '+p+q', ... for the actions applied to a student."""
    return "".join(_SUFFIX.get(action, "") for action in row.get("actions") or ()) or "distilled"


def pivot_tables(rows: Sequence[Row], record: ExperimentRecord, layout: TableLayout) -> list[PivotTable]:
    """Return a table for each combination of values of the axes, including `task`, that the layout leaves out."""
    laid_out = (*layout.rows, *layout.columns)
    by_stage = "stage" in laid_out
    left_out = [axis for axis in record.axes if axis not in (*laid_out, "task")]
    others = [] if "task" in laid_out else ["task"]
    others += [axis for axis in left_out if not (by_stage and _only_actions_differ(record, axis))]
    pages: dict[Labels, dict[tuple[Labels, Labels], Cell]] = {}

    def cell_of(labels: dict[str, str]) -> Cell:
        page, row, column = (tuple(labels.get(a, "") for a in axes) for axes in (others, layout.rows, layout.columns))
        return pages.setdefault(page, {}).setdefault((row, column), Cell(labels["task"], labels["stage"]))

    last_stage: dict[str, str] = {}
    for run in record.runs:
        stages = _planned_stages(run)
        last_stage[_key(run.cell, run.seed)] = stages[-1]
        for stage in stages if by_stage else stages[-1:]:
            cell = cell_of({**run.cell, "task": _task_name(str(run.settings.get("task", ""))), "stage": stage})
            cell.planned.add(run.seed)
            cell.settings = run.settings
    for row in rows:
        if row.get("cell") is None or not str(row["split"]).startswith("test"):
            continue
        stage = stage_label(row)
        # If the table does not show stages, a run's result is the model of its last action.
        if by_stage or last_stage.get(_key(row["cell"], row.get("seed")), stage) == stage:
            cell = cell_of({**row["cell"], "task": row["task"], "stage": stage})
            cell.scored[row.get("seed"), row["split"]] = row
    order = {**record.axes, "task": list(map(_task_name, record.axes.get("task", ()))), "stage": _STAGES}

    def in_order(labels: Iterable[Labels], axes: Sequence[str]) -> list[Labels]:
        """Return the distinct labels in the order of the axes; labels that an axis does not have come last."""

        def ranks(of_line: Labels) -> list[int]:
            known = [list(order.get(axis, ())) for axis in axes]
            return [(*k, label).index(label) for k, label in zip(known, of_line, strict=True)]

        return sorted(dict.fromkeys(labels), key=ranks)

    tables = []
    for page in in_order(pages, others):
        names = [label if axis == "task" else f"{axis} {label}" for axis, label in zip(others, page, strict=True)]
        row_labels, column_labels = zip(*pages[page], strict=True)
        rows, columns = in_order(row_labels, layout.rows), in_order(column_labels, layout.columns)
        tables.append(PivotTable(", ".join(names) or record.title, rows, columns, pages[page]))
    return tables


def _task_name(value: str) -> str:
    """Return the task's name for a value of --task: a name, or the path of a YAML file, which may no longer exist."""
    if not value.endswith((".yaml", ".yml")):
        return value
    task = defined_task(value)
    return task.name if task else Path(value).stem


def defined_task(value: str) -> Task | None:
    """Return a task, or None if the file of a user's own task no longer exists."""
    try:
        return load_task(value)
    except UserError:
        return None


def _only_actions_differ(record: ExperimentRecord, axis: str) -> bool:
    """Return whether runs along an axis differ only in their actions, so that `stage` tells their models apart."""
    alike = grouped(record.runs, lambda run: _key({n: label for n, label in run.cell.items() if n != axis}, run.seed))
    settings = [[{**run.settings, "compression_actions": None} for run in runs] for runs in alike.values()]
    return all(setting == group[0] for group in settings for setting in group)


def _key(cell: dict[str, str], seed: Any) -> str:
    return str((sorted(cell.items()), seed))


def _planned_stages(run: RecordedRun) -> list[str]:
    """Return the stages of a run's models; every action saves one model."""
    actions = run.settings.get("compression_actions") or ["distill"]
    actions = [actions] if isinstance(actions, str) else actions
    return [stage_label({"actions": actions[: i + 1]}) for i in range(len(actions))]


def columns_of_scores(
    table: PivotTable, record: ExperimentRecord, figures: Sequence[QuotedFigure]
) -> Iterator[ScoreColumn]:
    """Yield the columns for each combination of labels: our metrics, the main one first, then the quoted ones."""
    layout, quote = record.table, record.quote
    for labels in table.columns:
        tasks = [labels[layout.columns.index("task")]] if "task" in layout.columns else table.tasks
        only = tasks[0] if len(tasks) == 1 else None
        for metric in dict.fromkeys(metric for task in tasks for metric in table.metrics_and_splits(task)[0]):
            heading = averaged(metric, table.metrics_and_splits(only)[1]) if only else metric
            yield ScoreColumn(labels, metric, heading, only)
        if quote is not None:
            tasks = [quote.task] if quote.task else tasks
            only = tasks[0] if len(tasks) == 1 else None
            source = f"thesis, {only.upper()} (quoted)" if only else "thesis (quoted)"
            for metric in dict.fromkeys(figure.metric for figure in figures if figure.task in tasks):
                # The thesis has one figure for MNLI's two test splits.
                heading = averaged(metric, _MATCHED) if only == "mnli" else metric
                yield ScoreColumn(labels, metric, f"{heading}, {source}", only, quoted=True)


def averaged(metric: str, splits: Sequence[str]) -> str:
    """Return the heading of a mean over splits: 'accuracy (m+mm)/2' over MNLI's two test splits."""
    if len(splits) == 1:
        return metric
    return f"{metric} (m+mm)/2" if tuple(splits) == _MATCHED else f"{metric}, mean of {' and '.join(splits)}"
