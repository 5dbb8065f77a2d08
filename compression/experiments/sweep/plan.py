"""The runs of a grid: their steps, inputs and names, and estimates of how long they take."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.data.split import count_rows, find_splits
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import fingerprint
from common.store.store import Store
from common.training.models import flat
from compression.distillation.distill import Distill, student_name
from compression.evaluation.evaluate import Evaluate
from compression.experiments.jobs import Job, to_plain
from compression.experiments.sweep.grid import Grid
from compression.experiments.sweep.runs import RunFolder
from compression.experiments.sweep.work import RunTask
from compression.shrinking.chain import SHRINK
from compression.shrinking.files import FILES
from compression.shrinking.settings import CompressSettings

_Kind = tuple[object, ...]
_SPEED = (
    *("student_arch", "pair_encoder", "embedding_type", "embedding_dim", "encoder_hidden_dim", "layers", "iterations"),
    *("intermediate_dim", "heads", "kernel_width", "max_tokens", "batch_size", "precision"),
    *("only_original_data", "augmented", "align_hidden", "align_attention", "align_embedding", "align_last", "chains"),
)
"""Settings that the time per row depends on."""


class RunIdentity(NamedTuple):
    """A run's steps and inputs, as stored in its record.

    id: 16 hex digits that name the run. family: 8 hex digits shared by runs that distil the same student with
    different seeds. settings: of all steps, in one flat mapping. inputs: role -> key.
    """

    id: str
    family: str
    settings: dict[str, Any]
    inputs: dict[str, str]


def identify(
    settings: CompressSettings, chains: Sequence[Sequence[str]], timing: Mapping[str, Any] | None = None
) -> RunIdentity:
    """Return the identity of a run. Raises UserError for an input that is missing or out of date.

    It depends on the versions of all steps, also of scoring and of files: a run whose scores or files are out of date
    is repeated, with the models that exist already.

    chains: lists of actions, each beginning with distill; if empty, the actions of the settings. timing: how the
    models are timed, if they are; such a run has a different id but reuses models that exist already.
    """
    chains = [list(chain) for chain in chains] or [list(settings.compression_actions)]
    step = Distill.of(settings)
    inputs = step.inputs(settings.paths)
    splits = find_splits(settings.paths, step.definition)
    later = [[_dump(settings, action) for action in chain] for chain in chains]
    return RunIdentity(
        id=fingerprint([step.key(inputs), later, Evaluate.version, *([timing] if timing else [])]),
        family=step.model_copy(update={"seed": 0}).key(inputs)[:8],
        settings={**flat(step.model_dump(mode="json")), "chains": chains},
        inputs={role: artifact.key for role, artifact in {**inputs, "splits": splits}.items()},
    )


def _dump(settings: CompressSettings, action: str) -> Any:
    """Return everything except the student that the result of an action after distilling depends on."""
    if action in FILES:
        return [action, FILES[action].version]
    if action not in SHRINK:
        return action
    step = SHRINK[action].of(settings, Path())
    return [action, step.version, step.model_dump(mode="json")]


def plan_runs(
    grid: Grid,
    paths: Store,
    experiment: str,
    teachers: dict[str, str],
    observers: Sequence[str] = (),
    threads: int = 1,
) -> list[RunTask]:
    """Return the run of every cell of a grid, in order. Cells with the same effective settings share a run.

    teachers: task -> name of the teacher that its shared jobs fine-tuned or imported last.
    Raises UserError if an input is missing.
    """
    runs = []
    for cell in grid.cells:
        flags = dict(cell.flags)
        if flags["task"] in teachers:
            flags.setdefault("teacher", teachers[flags["task"]])
        settings = Job("compress", flags).settings()
        identity = identify(settings, cell.chains, grid.timing)
        # Runs may differ in any setting, so their names contain, in front of the seed, part of a hash of the settings.
        stem = student_name(settings).removesuffix(f"-s{cell.seed}")
        flags["model_name"] = f"{stem}-{identity.family}-s{cell.seed}"
        runs.append(
            RunTask(
                id=identity.id,
                task=load_task(settings.task).name,
                workspace=paths.root,
                jobs=tuple(to_plain(job.flags) for job in dataclasses.replace(cell, flags=flags).jobs),
                settings=identity.settings,
                inputs=identity.inputs,
                timing=grid.timing,
                experiment=experiment,
                observers=tuple(observers),
                threads=threads,
                rows=_training_rows(settings) * settings.epochs,
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


def _teachers_by_name(grid: Grid) -> dict[str, str]:
    """Return task -> name that its shared jobs will give the teacher."""
    names = {}
    for task, jobs in grid.shared.items():
        for job in jobs:
            if job.kind == "finetune":
                settings = job.settings()
                default = settings.ensemble_name if settings.ensemble else Path(settings.arch).name
                names[task] = settings.model_name or default
            elif job.kind == "preprocess" and (settings := job.settings()).logits_from:
                names[task] = settings.model_name
    return names


class Estimator:
    """Estimates from the seconds per row and epoch of finished runs of the same kind, else of the same sweep.

    A kind is a task, a number of threads, and the settings that the time per row depends on.
    """

    def __init__(self, paths: Store, sweep: Iterable[RunTask] = ()) -> None:
        """sweep: all runs of the sweep to estimate."""
        ids = {run.id for run in sweep}
        self._rates: dict[_Kind, list[float]] = defaultdict(list)
        self._in_sweep: list[float] = []
        for file in paths.run("").glob("*/run.json"):
            record = RunFolder(paths, file.parent.name).record()
            if record and record.status == "finished" and record.work:
                rate = record.seconds / record.work
                self._rates[_kind(record.task, record.threads, record.settings)].append(rate)
                if record.id in ids:
                    self._in_sweep.append(rate)

    def seconds(self, runs: Iterable[RunTask]) -> float | None:
        """Return the seconds that the runs take one after the other, or None if no similar run has finished."""
        total = 0.0
        for run in runs:
            rates = self._rates.get(_kind(run.task, run.threads, run.settings), self._in_sweep)
            if not rates:
                return None
            total += statistics.median(rates) * run.rows
        return total


def _kind(task: str, threads: int, settings: dict[str, object]) -> _Kind:
    return (task, threads, *(str(settings.get(name)) for name in _SPEED))


def describe_plan(grid: Grid, paths: Store, at_once: int, threads: int) -> dict[str, Any]:
    """Return a sweep's numbers of runs, in all and by status, and the estimated seconds of the rest if known."""
    plan: dict[str, Any] = {
        "name": grid.file.name,
        "cells": len({tuple(cell.labels.items()) for cell in grid.cells}),
        "seeds": list(grid.seeds),
        "runs": len(grid.cells),
        "shared": {task: [job.kind for job in jobs] for task, jobs in grid.shared.items()},
        "inputs": "there",
        "finished": 0,
        "failed": 0,
        "seconds": None,
    }
    try:
        runs = distinct(plan_runs(grid, paths, grid.file.name, _teachers_by_name(grid), threads=threads))
    except UserError as error:
        return {**plan, "inputs": str(error)}
    statuses = {run.id: run.folder.status() for run in runs}
    counts = Counter(statuses.values())
    left = [run for run in runs if statuses[run.id] in ("waiting", "running")]
    seconds = Estimator(paths, runs).seconds(left)
    return {
        **plan,
        "distinct": len(runs),
        "finished": counts["finished"],
        "failed": counts["failed"],
        "seconds": None if seconds is None else round(seconds / max(1, min(at_once, len(left)))),
    }
