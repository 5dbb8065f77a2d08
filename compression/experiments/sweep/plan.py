"""The runs of a grid: their steps, inputs and names, and estimates of how long they take."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.data.split import count_rows, find_splits
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import fingerprint
from common.store.store import Store
from common.training.models import flat
from compression.distillation.distill import Distill, student_name
from compression.evaluation.evaluate import Evaluate
from compression.experiments.jobs import Job, Plan
from compression.experiments.report.results import grouped
from compression.experiments.sweep.runs import RunFolder, RunRecord
from compression.experiments.sweep.work import RunTask
from compression.shrinking.chain import SHRINK
from compression.shrinking.files import FILES
from compression.shrinking.settings import CompressSettings

_SPEED = (
    *("student_arch", "pair_encoder", "embedding_type", "embedding_dim", "encoder_hidden_dim", "layers", "iterations"),
    *("intermediate_dim", "heads", "kernel_width", "max_tokens", "batch_size", "precision"),
    *("only_original_data", "augmented", "align_hidden", "align_attention", "align_embedding", "align_last", "chains"),
)
"""Settings that the time per row depends on."""


def identify(
    settings: CompressSettings,
    chains: Sequence[Sequence[str]],
    timing: Mapping[str, Any] | None = None,
    threads: int = 1,
) -> RunRecord:
    """Return a run's record before it starts. Raises UserError for an input that is missing or out of date.

    Its id depends on the versions of all steps, also of scoring and of files: a run whose scores or files are out of
    date is repeated, with the models that exist already.

    chains: lists of actions, each beginning with distill; if empty, the actions of the settings. timing: how the
    models are timed, if they are; such a run has a different id but reuses models that exist already.
    """
    chains = [list(chain) for chain in chains] or [list(settings.compression_actions)]
    step = Distill.of(settings)
    inputs = step.inputs(settings.paths)
    later = [[_dump(settings, action) for action in chain] for chain in chains]
    artifacts = {**inputs, "splits": find_splits(settings.paths, step.definition)}
    return RunRecord(
        id=fingerprint([step.key(inputs), later, Evaluate.version, *([timing] if timing else [])]),
        family=step.model_copy(update={"seed": 0}).key(inputs)[:8],
        task=step.definition.name,
        settings={**flat(step.model_dump(mode="json")), "chains": chains},
        inputs={role: artifact.key for role, artifact in artifacts.items()},
        threads=threads,
        work=_training_rows(settings) * settings.epochs,
    )


def _dump(settings: CompressSettings, action: str) -> Any:
    """Return everything except the student that the result of an action after distilling depends on."""
    if action in FILES:
        return [action, FILES[action].version]
    if action not in SHRINK:
        return action
    step = SHRINK[action].of(settings, Path())
    return [action, step.version, step.model_dump(mode="json")]


def plan_runs(plan: Plan, teachers: Mapping[str, str]) -> list[RunTask]:
    """Return the run of every cell of a plan, in order. Cells with the same effective settings share a run.

    teachers: task -> name of the teacher that its shared jobs fine-tuned or imported last.
    Raises UserError if an input is missing.
    """
    runs = []
    for cell in plan.cells:
        flags = cell.with_teacher(teachers.get(cell.flags["task"]))
        settings = Job("compress", flags).settings()
        record = identify(settings, cell.chains, plan.timing, plan.threads)
        # Runs may differ in any setting, so their names contain, in front of the seed, part of a hash of the settings.
        stem = student_name(settings).removesuffix(f"-s{cell.seed}")
        flags["model_name"] = f"{stem}-{record.family}-s{cell.seed}"
        flags["loadbar"] = False
        shared = {key: flags[key] for key in ("task", "workspace", "cpu", "loadbar") if key in flags}
        runs.append(
            RunTask(
                record=record,
                workspace=plan.workspace.root,
                jobs=(*dataclasses.replace(cell, flags=flags).jobs, Job("evaluate", {**shared, **plan.timing})),
                experiment=plan.name,
                observers=tuple(plan.observers),
            )
        )
    return runs


def _training_rows(settings: CompressSettings) -> int:
    """Return the approximate number of rows that a run reads in an epoch."""
    paths, task = settings.paths, load_task(settings.task)
    rows = round(count_rows(paths.split(task.name, "train")) * settings.downsample_data)
    augmented = sum(count_rows(paths.augmented(task.name, name)) for name in settings.augmented_sets)
    return rows + round(augmented * settings.bootstrap_data_ratio * settings.downsample_data)


def distinct(runs: Sequence[RunTask]) -> list[RunTask]:
    """Return the runs without duplicates, in order."""
    return list({run.id: run for run in runs}.values())


def _teachers_by_name(plan: Plan) -> dict[str, str]:
    """Return task -> name that its shared jobs will give the teacher."""
    names = {}
    for task, jobs in plan.shared.items():
        for job in jobs:
            if job.kind == "finetune":
                names[task] = job.settings().name
            elif job.kind == "preprocess" and (settings := job.settings()).logits_from:
                names[task] = settings.model_name
    return names


class Estimator:
    """Estimates from the seconds per row and epoch of finished runs of the same kind, else of the same sweep.

    A kind is a task, a number of threads, and the settings that the time per row depends on.
    """

    def __init__(self, paths: Store, sweep: Iterable[RunTask] = ()) -> None:
        """sweep: all runs of the sweep to estimate."""
        records = [RunFolder(paths, file.parent.name).record() for file in paths.run("").glob("*/run.json")]
        ended = [record for record in records if record and record.status == "finished" and record.work]
        ids = {run.id for run in sweep}
        self._of_kind = grouped(ended, _kind)
        self._of_sweep = [record for record in ended if record.id in ids]

    def seconds(self, runs: Iterable[RunTask]) -> float | None:
        """Return the seconds that the runs take one after the other, or None if no similar run has finished."""
        total = 0.0
        for run in runs:
            similar = self._of_kind.get(_kind(run.record), self._of_sweep)
            if not similar:
                return None
            total += statistics.median(record.seconds / record.work for record in similar) * run.rows
        return total


def _kind(record: RunRecord) -> tuple[object, ...]:
    return (record.task, record.threads, *(str(record.settings.get(name)) for name in _SPEED))


def plan_sweep(plan: Plan, at_once: int) -> dict[str, Any]:
    """Return a sweep's numbers of runs, in all and by status, and the estimated seconds of the rest if known."""
    numbers: dict[str, Any] = {
        "name": plan.name,
        "cells": len({tuple(cell.labels.items()) for cell in plan.cells}),
        "seeds": list(plan.record.seeds),
        "runs": len(plan.cells),
        "shared": {task: [job.kind for job in jobs] for task, jobs in plan.shared.items()},
        "inputs": "there",
        "finished": 0,
        "failed": 0,
        "seconds": None,
    }
    try:
        runs = distinct(plan_runs(plan, _teachers_by_name(plan)))
    except UserError as error:
        return {**numbers, "inputs": str(error)}
    statuses = {run.id: run.folder.status() for run in runs}
    counts = Counter(statuses.values())
    left = [run for run in runs if statuses[run.id] in ("waiting", "running")]
    seconds = Estimator(plan.workspace, runs).seconds(left)
    return {
        **numbers,
        "distinct": len(runs),
        "finished": counts["finished"],
        "failed": counts["failed"],
        "seconds": None if seconds is None else round(seconds / max(1, min(at_once, len(left)))),
    }
