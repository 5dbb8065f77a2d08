"""Columns of a table of means and deviations: metrics, their test splits, and the thesis's figures next to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from common.data.tasks import Task, load_task
from common.errors import UserError
from compression.experiments.report.pivot_layout import Labels, PivotTable
from compression.experiments.report.record import Quote, TableLayout
from compression.experiments.report.reference import QuotedFigure

_MATCHED = ("test_matched", "test_mismatched")


@dataclasses.dataclass(frozen=True)
class PivotColumn:
    """One metric under one label of every column axis.

    heading: the metric as shown; task: whose scores these are, None where every row has its own; splits: task -> test
    splits to average; quoted: the thesis's figures, of `source`.
    """

    labels: Labels
    metric: str
    heading: str
    task: str | None
    splits: dict[str, tuple[str, ...]]
    quoted: bool = False
    source: str = ""

    @property
    def levels(self) -> tuple[str, ...]:
        """Its labels, then 'accuracy' or 'accuracy, thesis, SST-2 (quoted)'."""
        return (*self.labels, f"{self.heading}, {self.source}" if self.source else self.heading)

    def of_row(self, tasks: Sequence[str]) -> str:
        """Return the task that it shows for a row of these tasks."""
        return self.task or tasks[0]


def columns_of(
    table: PivotTable, layout: TableLayout, quote: Quote | None, figures: Sequence[QuotedFigure]
) -> list[PivotColumn]:
    """Return, under every label of the columns, our metrics, the main one first, then those quoted."""
    columns: list[PivotColumn] = []
    for labels in table.columns:
        tasks = [labels[layout.columns.index("task")]] if "task" in layout.columns else table.tasks
        columns += _own(table, labels, tasks, layout.average_splits)
        if quote is not None:
            columns += _quoted(labels, [quote.task] if quote.task else tasks, figures)
    return columns


def _own(table: PivotTable, labels: Labels, tasks: list[str], average: bool) -> Iterator[PivotColumn]:
    splits = {task: _splits(table, task) for task in tasks}
    only = tasks[0] if len(tasks) == 1 else None
    for metric in dict.fromkeys(metric for task in tasks for metric in _metrics(table, task)):
        # Rows of several tasks share one column, which cannot be of one task's splits.
        if average or only is None:
            yield PivotColumn(labels, metric, averaged(metric, splits[only]) if only else metric, only, splits)
        else:
            for split in splits[only]:
                heading = metric if len(splits[only]) == 1 else f"{metric} {split}"
                yield PivotColumn(labels, metric, heading, only, {only: (split,)})


def _quoted(labels: Labels, tasks: list[str], figures: Sequence[QuotedFigure]) -> Iterator[PivotColumn]:
    only = tasks[0] if len(tasks) == 1 else None
    source = f"thesis, {only.upper()} (quoted)" if only else "thesis (quoted)"
    for metric in dict.fromkeys(figure.metric for figure in figures if figure.task in tasks):
        # The thesis has one figure for MNLI's two test splits.
        heading = averaged(metric, _MATCHED) if only == "mnli" else metric
        yield PivotColumn(labels, metric, heading, only, {}, quoted=True, source=source)


def averaged(metric: str, splits: Sequence[str]) -> str:
    """'accuracy' over MNLI's two test splits is 'accuracy (m+mm)/2'."""
    if len(splits) == 1:
        return metric
    return f"{metric} (m+mm)/2" if tuple(splits) == _MATCHED else f"{metric}, mean of {' and '.join(splits)}"


def _metrics(table: PivotTable, task: str) -> tuple[str, ...]:
    """A task's metrics as its rows have them, else as it is defined."""
    found = (tuple(row["metrics"]) for cell in table.of_task(task) for row in cell.rows if row.get("metrics"))
    defined = _definition(table, task)
    return next(found, None) or (defined.all_metrics if defined else ("score",))


def _splits(table: PivotTable, task: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(row["split"] for cell in table.of_task(task) for row in cell.rows))
    defined = None if found else _definition(table, task)
    return found or (defined.test_splits if defined else ("test",))


def _definition(table: PivotTable, task: str) -> Task | None:
    """The task by the name or YAML file that its runs were given; None when that is gone."""
    given = (str(cell.settings["task"]) for cell in table.of_task(task) if "task" in cell.settings)
    try:
        return load_task(next(given, task))
    except UserError:
        return None
