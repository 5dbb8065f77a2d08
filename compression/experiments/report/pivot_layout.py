"""Where in a table of means a run of a sweep and the rows of its models belong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from common.data.tasks import load_task
from common.errors import UserError
from compression.experiments.report.record import ExperimentRecord, RecordedRun, TableLayout
from compression.experiments.report.results import Row

STAGES = ("distilled", "+f", "+p", "+f+p", "+q", "+f+q", "+p+q", "+f+p+q")
"""Labels of the axis `stage`, in order: what was done to a student."""
Labels = tuple[str, ...]
Scored = dict[Any, dict[str, Row]]
"""Seed -> split -> row."""
_SUFFIX = {"factorize": "+f", "prune": "+p", "quantize": "+q"}
_DEFAULTS = {"student_arch": "bilstm", "vocab_size": 5000, "alpha": 0.0}
"""compress.py's defaults that do not depend on the architecture."""


@dataclasses.dataclass
class Cell:
    """Where a row and a column meet. planned: seeds of its runs; settings: of its runs; scored: its rows."""

    task: str
    stage: str
    planned: set[int] = dataclasses.field(default_factory=set)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    scored: Scored = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """All its rows."""
        return [row for by_split in self.scored.values() for row in by_split.values()]

    def student_fields(self) -> dict[str, Any]:
        """Return the fields by which reference.py identifies a student; what is unknown is missing."""
        fields = {**_DEFAULTS, **self.settings, "augmented": not self.settings.get("only_original_data", False)}
        for row in self.rows:
            settings = row.get("settings") or {}
            fields |= {name: settings[name] for name in ("pooling", "loss", "vocab_size") if name in settings}
            names = ("student_arch", "embedding_type", "embedding_dim", "alpha", "augmented")
            fields |= {name: row[name] for name in names if row.get(name) is not None}
        return {**fields, "stage": self.stage}


@dataclasses.dataclass
class PivotTable:
    """A table's cells by the labels of row and column, and these labels in order."""

    title: str
    rows: list[Labels]
    columns: list[Labels]
    cells: dict[tuple[Labels, Labels], Cell]

    @property
    def tasks(self) -> list[str]:
        """Tasks of its cells."""
        return list(dict.fromkeys(cell.task for cell in self.cells.values()))

    def of_task(self, task: str) -> list[Cell]:
        """Return a task's cells."""
        return [cell for cell in self.cells.values() if cell.task == task]


def stage_label(row: Row) -> str:
    """Return one of STAGES, by the end of the model's name: +p+q of 'x+p+q4', or else by the row's stage."""
    by_stage = {"factorized": "+f", "pruned": "+p", "quantized": "+q"}
    if row.get("stage") not in by_stage:
        return "distilled"
    ending = re.search(r"(?:\+[fpq][^+]*)+$", str(row["model"]))
    return "".join(re.findall(r"\+[fpq]", ending.group())) if ending else by_stage[row["stage"]]


def task_name(given: str) -> str:
    """Return a task's name from the value of --task: the name itself, or the path of a YAML file, which may be gone."""
    if not given.endswith((".yaml", ".yml")):
        return given
    try:
        return load_task(given).name
    except UserError:
        return Path(given).stem


def pivot_tables(rows: Sequence[Row], record: ExperimentRecord, layout: TableLayout) -> list[PivotTable]:
    """Return a table for each value of the axes that the layout leaves out, and for each task unless it is laid out."""
    laid_out = (*layout.rows, *layout.columns)
    by_stage = "stage" in laid_out
    others = [axis for axis in record.axes if axis not in (*laid_out, "task")]
    others = [axis for axis in others if not (by_stage and _only_actions_differ(record, axis))]
    others = others if "task" in laid_out else ["task", *others]
    found: dict[Labels, dict[tuple[Labels, Labels], Cell]] = {}

    def cell_of(labels: dict[str, str]) -> Cell:
        page, *at = (tuple(labels.get(a, "") for a in axes) for axes in (others, layout.rows, layout.columns))
        return found.setdefault(page, {}).setdefault((at[0], at[1]), Cell(labels["task"], labels["stage"]))

    last_stage: dict[str, str] = {}
    for run in record.runs:
        stages = _planned_stages(run)
        last_stage[_key(run.cell, run.seed)] = stages[-1]
        for stage in stages if by_stage else stages[-1:]:
            cell = cell_of({**run.cell, "task": task_name(str(run.settings.get("task", ""))), "stage": stage})
            cell.planned.add(run.seed)
            cell.settings = run.settings
    for row in rows:
        if row.get("cell") is None or not str(row["split"]).startswith("test"):
            continue
        stage = stage_label(row)
        # Where the table does not show stages, a run's result is the model of its last action.
        if by_stage or last_stage.get(_key(row["cell"], row.get("seed")), stage) == stage:
            cell = cell_of({**row["cell"], "task": row["task"], "stage": stage})
            cell.scored.setdefault(row.get("seed"), {})[row["split"]] = row
    order = {axis: list(labels) for axis, labels in record.axes.items()}
    order |= {"task": list(map(task_name, order.get("task", ()))), "stage": list(STAGES)}
    return [
        PivotTable(
            ", ".join(x if axis == "task" else f"{axis} {x}" for axis, x in zip(others, page, strict=True))
            or record.title,
            _sorted((row for row, _ in found[page]), layout.rows, order),
            _sorted((column for _, column in found[page]), layout.columns, order),
            found[page],
        )
        for page in _sorted(found, others, order)
    ]


def _only_actions_differ(record: ExperimentRecord, axis: str) -> bool:
    """Whether runs along an axis differ in their actions alone, so that `stage` tells their models apart."""
    settings: dict[str, list[dict[str, Any]]] = {}
    for run in record.runs:
        key = _key({name: label for name, label in run.cell.items() if name != axis}, run.seed)
        settings.setdefault(key, []).append({**run.settings, "compression_actions": None})
    return all(given == group[0] for group in settings.values() for given in group)


def _key(cell: dict[str, str], seed: Any) -> str:
    return str((sorted(cell.items()), seed))


def _planned_stages(run: RecordedRun) -> list[str]:
    """Stages of the models of a run: every action saves one."""
    actions = run.settings.get("compression_actions") or ["distill"]
    suffixes = [_SUFFIX.get(action, "") for action in ([actions] if isinstance(actions, str) else actions)]
    return ["".join(suffixes[: i + 1]) or STAGES[0] for i in range(len(suffixes))]


def _sorted(labels: Iterable[Labels], axes: Sequence[str], order: dict[str, list[str]]) -> list[Labels]:
    """Each once, in the axes' order; a label that its axis does not have comes after those it has."""

    def rank(each: Labels) -> list[int]:
        known = [order.get(axis, []) for axis in axes]
        return [names.index(label) if label in names else len(names) for names, label in zip(known, each, strict=True)]

    return sorted(dict.fromkeys(labels), key=rank)
