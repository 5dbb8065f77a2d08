"""Which columns a table of means and deviations has: metrics, their test splits, the thesis's figures beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from common.data.tasks import Task, load_task
from common.errors import UserError
from compression.experiments.report.pivot_table import PivotColumn
from compression.experiments.report.places import Labels, Sheet
from compression.experiments.report.record import Quote, TableLayout
from compression.experiments.report.reference import QuotedFigure

_MATCHED = ("test_matched", "test_mismatched")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column, and where its scores come from.

    task: whose scores these are, None where every row has its own; splits: task -> test splits to take the mean of.
    """

    shown: PivotColumn
    task: str | None
    metric: str
    splits: dict[str, tuple[str, ...]]


def columns_of(sheet: Sheet, layout: TableLayout, quote: Quote | None, figures: Sequence[QuotedFigure]) -> list[Column]:
    """Under every label of the columns our metrics, the main one first, then those quoted."""
    columns = []
    for labels in sheet.columns:
        tasks = [labels[layout.columns.index("task")]] if "task" in layout.columns else sheet.tasks
        columns += _own(sheet, labels, tasks, layout.average_splits)
        if quote is not None:
            columns += _quoted(labels, [quote.task] if quote.task else tasks, figures)
    return columns


def _own(sheet: Sheet, labels: Labels, tasks: list[str], average: bool) -> Iterator[Column]:
    splits = {task: _splits(sheet, task) for task in tasks}
    only = _only(tasks)
    for metric in dict.fromkeys(metric for task in tasks for metric in _metrics(sheet, task)):
        # Rows of several tasks share one column, which cannot be of one task's splits.
        if average or only is None:
            heading = averaged(metric, splits[only]) if only else metric
            yield Column(PivotColumn(labels, heading, quoted=False), only, metric, splits)
        else:
            for split in splits[only]:
                heading = metric if len(splits[only]) == 1 else f"{metric} {split}"
                yield Column(PivotColumn(labels, heading, quoted=False), only, metric, {only: (split,)})


def _quoted(labels: Labels, tasks: list[str], figures: Sequence[QuotedFigure]) -> Iterator[Column]:
    only = _only(tasks)
    source = f"thesis, {only.upper()} (quoted)" if only else "thesis (quoted)"
    for metric in dict.fromkeys(figure.metric for figure in figures if figure.task in tasks):
        # The thesis has one figure for MNLI's two test splits.
        heading = averaged(metric, _MATCHED) if only == "mnli" else metric
        yield Column(PivotColumn(labels, heading, quoted=True, source=source), only, metric, {})


def _only(tasks: list[str]) -> str | None:
    return tasks[0] if len(tasks) == 1 else None


def averaged(metric: str, splits: Sequence[str]) -> str:
    """'accuracy' over MNLI's two test splits is 'accuracy (m+mm)/2'."""
    if len(splits) == 1:
        return metric
    return f"{metric} (m+mm)/2" if tuple(splits) == _MATCHED else f"{metric}, mean of {' and '.join(splits)}"


def _metrics(sheet: Sheet, task: str) -> tuple[str, ...]:
    """A task's metrics as its rows have them, else as it is defined."""
    for spot in sheet.spots.values():
        for row in spot.rows if spot.task == task else ():
            if row.get("metrics"):
                return tuple(row["metrics"])
    defined = _definition(sheet, task)
    return defined.all_metrics if defined else ("score",)


def _splits(sheet: Sheet, task: str) -> tuple[str, ...]:
    rows = [row for spot in sheet.spots.values() if spot.task == task for row in spot.rows]
    defined = _definition(sheet, task) if not rows else None
    return tuple(dict.fromkeys(row["split"] for row in rows)) or (defined.test_splits if defined else ("test",))


def _definition(sheet: Sheet, task: str) -> Task | None:
    """The task by the name or YAML file that its runs were given; None when that is gone."""
    given = [spot.settings["task"] for spot in sheet.spots.values() if spot.task == task and "task" in spot.settings]
    try:
        return load_task(str(given[0] if given else task))
    except UserError:
        return None
