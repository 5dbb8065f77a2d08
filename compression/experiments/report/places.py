"""Where in a table a run of a sweep and the rows of its models belong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from common.config import OLD_NAMES
from common.data.tasks import load_task
from common.errors import UserError
from compression.experiments.report.families import Row
from compression.experiments.report.record import ExperimentRecord, RecordedRun, TableLayout

STAGES = ("distilled", "+f", "+p", "+f+p", "+q", "+f+q", "+p+q", "+f+p+q")
"""Labels of the axis `stage`, in order: what was done to a student."""
Labels = tuple[str, ...]
Scored = dict[Any, dict[str, Row]]
"""Seed -> split -> row."""
_SUFFIX = {"factorize": "+f", "prune": "+p", "quantize": "+q"}
_ENDING = re.compile(r"(?:\+[fpq][^+]*)+$")
_DEFAULTS = {"student_arch": "bilstm", "vocab_size": 5000, "alpha": 0.0}
"""compress.py's defaults that do not hang on the architecture."""


@dataclasses.dataclass
class Spot:
    """What stands where a row and a column meet, before metrics are looked at.

    task, stage: of its models; planned: seeds there are to be; settings: of its runs; scored: its rows.
    """

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
        """What tells its student from others, under the names that reference.py uses; what is unknown is missing."""
        fields = {**_DEFAULTS, **self.settings, "augmented": not self.settings.get("only_original_data", False)}
        for row in self.rows:
            made_by = row.get("settings") or {}
            known = {name: made_by[name] for name in ("pooling", "loss", "vocab_size") if name in made_by}
            names = ("student_arch", "embedding_type", "embedding_dim", "alpha", "augmented")
            fields |= known | {name: row[name] for name in names if row.get(name) is not None}
        fields["student_arch"] = OLD_NAMES.get(fields["student_arch"], fields["student_arch"])
        return {**fields, "stage": self.stage}


@dataclasses.dataclass
class Sheet:
    """One table's spots, by the labels of row and column, and these labels in order. title: what the table is of."""

    title: str
    rows: list[Labels]
    columns: list[Labels]
    spots: dict[tuple[Labels, Labels], Spot]

    @property
    def tasks(self) -> list[str]:
        """The tasks there are in it."""
        return list(dict.fromkeys(spot.task for spot in self.spots.values()))


def stage_label(row: Row) -> str:
    """One of STAGES, by the end of the model's name: +p+q of 'x+p+q4'; by its stage where the name does not tell."""
    by_stage = {"factorized": "+f", "pruned": "+p", "quantized": "+q"}
    if row.get("stage") not in by_stage:
        return "distilled"
    ending = _ENDING.search(str(row["model"]))
    return "".join(re.findall(r"\+[fpq]", ending.group())) if ending else by_stage[row["stage"]]


def task_name(given: str) -> str:
    """A task's name from what --task was given: the name itself, or the path of a YAML file, which may be gone."""
    if not given.endswith((".yaml", ".yml")):
        return given
    try:
        return load_task(given).name
    except UserError:
        return Path(given).stem


def sheets(rows: Sequence[Row], record: ExperimentRecord, layout: TableLayout) -> list[Sheet]:
    """A sheet for each value of the axes that the layout leaves out, and for each task unless that is laid out."""
    laid_out = (*layout.rows, *layout.columns)
    others = [axis for axis in record.axes if axis not in (*laid_out, "task") and not _told_by_stage(record, axis)]
    others = others if "task" in laid_out else ["task", *others]
    found: dict[Labels, dict[tuple[Labels, Labels], Spot]] = {}

    def spot(labels: dict[str, str]) -> Spot:
        page, row, column = (_labels(axes, labels) for axes in (others, layout.rows, layout.columns))
        return found.setdefault(page, {}).setdefault((row, column), Spot(labels["task"], labels["stage"]))

    last_stage: dict[tuple, str] = {}
    for run in record.runs:
        stages = _planned_stages(run)
        last_stage[_key(run.cell, run.seed)] = stages[-1]
        for stage in stages if "stage" in laid_out else stages[-1:]:
            planned = spot({**run.cell, "task": task_name(str(run.settings.get("task", ""))), "stage": stage})
            planned.planned.add(run.seed)
            planned.settings = run.settings
    for row in rows:
        if row.get("cell") is None or not str(row["split"]).startswith("test"):
            continue
        stage = stage_label(row)
        # Where stages are not told apart, a run's result is what its last action made.
        if "stage" in laid_out or last_stage.get(_key(row["cell"], row.get("seed")), stage) == stage:
            scored = spot({**row["cell"], "task": row["task"], "stage": stage}).scored
            scored.setdefault(row.get("seed"), {})[row["split"]] = row
    order = _order(record)
    return [
        Sheet(
            _title(others, page, record),
            _sorted((row for row, _ in found[page]), layout.rows, order),
            _sorted((column for _, column in found[page]), layout.columns, order),
            found[page],
        )
        for page in _sorted(found, others, order)
    ]


def _labels(axes: Sequence[str], labels: dict[str, str]) -> Labels:
    return tuple(labels.get(axis, "") for axis in axes)


def _told_by_stage(record: ExperimentRecord, axis: str) -> bool:
    """Whether runs along an axis differ in their actions alone: then `stage` says where their models belong."""
    layout = record.table
    if layout is None or "stage" not in (*layout.rows, *layout.columns):
        return False
    settings: dict[tuple, list[dict[str, Any]]] = {}
    for run in record.runs:
        key = _key({name: label for name, label in run.cell.items() if name != axis}, run.seed)
        settings.setdefault(key, []).append({**run.settings, "compression_actions": None})
    return all(given == group[0] for group in settings.values() for given in group)


def _key(cell: dict[str, str], seed: Any) -> tuple:
    return (*sorted(cell.items()), seed)


def _planned_stages(run: RecordedRun) -> list[str]:
    """Stages of the models that a run makes: every action saves one."""
    suffix, stages = "", []
    actions = run.settings.get("compression_actions") or ["distill"]
    for action in [actions] if isinstance(actions, str) else actions:
        suffix += _SUFFIX.get(action, "")
        stages.append(suffix or STAGES[0])
    return stages


def _order(record: ExperimentRecord) -> dict[str, list[str]]:
    """Axis -> its labels in the order in which they are to stand."""
    known = {axis: list(labels) for axis, labels in record.axes.items()}
    return known | {"task": list(map(task_name, known.get("task", ()))), "stage": list(STAGES)}


def _sorted(labels: Iterable[Labels], axes: Sequence[str], order: dict[str, list[str]]) -> list[Labels]:
    """Each once, in the axes' order; a label that its axis does not have comes after those it has."""

    def place(each: Labels) -> list[int]:
        known = [order.get(axis, []) for axis in axes]
        return [names.index(label) if label in names else len(names) for names, label in zip(known, each, strict=True)]

    return sorted(dict.fromkeys(labels), key=place)


def _title(axes: Sequence[str], labels: Labels, record: ExperimentRecord) -> str:
    parts = [label if axis == "task" else f"{axis} {label}" for axis, label in zip(axes, labels, strict=True)]
    return ", ".join(parts) or record.title
