"""A grid's runs in a workspace: which they are, where each stands, and how long the rest will take."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.data.split import count_rows
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.distillation.distill import student_name
from compression.experiments.jobs import Job, job_settings, plain, told
from compression.experiments.report.record import RecordedRun
from compression.experiments.sweep.grid import Cell, Grid
from compression.experiments.sweep.identity import identify
from compression.experiments.sweep.runs import Status
from compression.experiments.sweep.work import Assignment
from compression.shrinking.settings import CompressSettings


@dataclasses.dataclass(frozen=True)
class Planned:
    """A cell and its run. Two cells with the same effective settings have the same run."""

    cell: Cell
    work: Assignment


def plan_runs(
    grid: Grid, paths: Workspace, experiment: str, teachers: dict[str, str], observers: Sequence[str], threads: int
) -> list[Planned]:
    """The runs of a grid, in its order. teachers: task -> name of the teacher that its shared jobs made.

    Raises UserError when something they read is not made yet.
    """
    return [_planned(cell, paths, experiment, teachers, tuple(observers), threads) for cell in grid.cells]


def _planned(
    cell: Cell,
    paths: Workspace,
    experiment: str,
    teachers: dict[str, str],
    observers: tuple[str, ...],
    threads: int,
) -> Planned:
    given = dict(cell.given)
    if given["task"] in teachers:
        given.setdefault("teacher", teachers[given["task"]])
    settings = job_settings(Job("compress", given), {})
    identity = identify(settings, cell.chains)
    # Any settings may tell runs apart: a part of their hash does so in names, where the seed stays last.
    stem = student_name(settings).removesuffix(f"-s{cell.seed}")
    given["model_name"] = f"{stem}-{identity.family}-s{cell.seed}"
    work = Assignment(
        id=identity.id,
        task=load_task(settings.task).name,
        workspace=paths.root,
        jobs=tuple(plain(job.given) for job in dataclasses.replace(cell, given=given).jobs),
        settings=identity.settings,
        inputs=identity.inputs,
        experiment=experiment,
        observers=observers,
        threads=threads,
        rows=_training_rows(settings) * settings.epochs,
    )
    return Planned(cell, work)


def _training_rows(settings: CompressSettings) -> int:
    """Rows a run learns from in an epoch, about."""
    paths, task = settings.paths, load_task(settings.task)
    rows = round(count_rows(paths.split(task.name, "train")) * settings.downsample_data)
    if settings.only_original_data:
        return rows
    more = count_rows(paths.augmented(task.name, settings.augmented))
    return rows + round(more * settings.bootstrap_data_ratio * settings.downsample_data)


def teachers_by_name(grid: Grid) -> dict[str, str]:
    """Task -> name that its shared jobs give the teacher, before they have run."""
    names = {}
    for task, jobs in grid.shared.items():
        for job in jobs:
            if job.kind == "finetune":
                settings = job_settings(job, {})
                usual = settings.ensemble_name if settings.ensemble else Path(settings.arch).name
                names[task] = settings.model_name or usual
    return names


def distinct(planned: Sequence[Planned]) -> list[Assignment]:
    """Every run once, in order."""
    return list({run.work.id: run.work for run in planned}.values())


def statuses(works: Sequence[Assignment]) -> dict[str, Status]:
    """Identity -> where the run stands."""
    return {work.id: work.folder.status() for work in works}


def recorded(planned: Sequence[Planned]) -> tuple[RecordedRun, ...]:
    """The runs as experiment.json has them."""
    return tuple(
        RecordedRun(id=run.work.id, cell=run.cell.labels, seed=run.cell.seed, settings=_told(run.work.jobs[0]))
        for run in planned
    )


def _told(job: dict[str, Any]) -> dict[str, Any]:
    """A run's settings but for its model's name, which the settings make."""
    return told({key: value for key, value in job.items() if key != "model_name"})


def recorded_cells(grid: Grid) -> tuple[RecordedRun, ...]:
    """The same before their inputs exist."""
    return tuple(RecordedRun(cell=cell.labels, seed=cell.seed, settings=told(cell.given)) for cell in grid.cells)


def describe_plan(grid: Grid, paths: Workspace, workers: int) -> dict[str, Any]:
    """What a sweep would do: numbers of runs, what is there already, and seconds it would take, where known."""
    from compression.experiments.sweep.estimate import Estimator

    plan: dict[str, Any] = {
        "name": grid.name,
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
        planned = plan_runs(grid, paths, grid.name, teachers_by_name(grid), (), 1)
    except UserError as error:
        return {**plan, "inputs": str(error)}
    works = distinct(planned)
    stands = statuses(works)
    counts = Counter(stands.values())
    estimator = Estimator(paths)
    left = [work for work in works if stands[work.id] in ("waiting", "running")]
    seconds = estimator.seconds(left)
    return {
        **plan,
        "distinct": len(works),
        "finished": counts["finished"],
        "failed": counts["failed"],
        "seconds": None if seconds is None else round(seconds / max(1, min(workers, len(left)))),
    }


def plan_text(told: dict[str, Any]) -> str:
    """What a sweep would do, for a terminal."""
    from compression.experiments.sweep.board import spoken

    lines = [f"{told['name']}: {told['cells']} cells x {len(told['seeds'])} seeds = {told['runs']} runs"]
    lines += [f"before them, once for {task}: {', '.join(kinds)}" for task, kinds in told["shared"].items() if kinds]
    if told["inputs"] != "there":
        return "\n".join([*lines, f"the runs' inputs are not there yet: {told['inputs']}"])
    same = told["runs"] - told["distinct"]
    lines += [f"{same} cells are the same run as others"] if same else []
    left = told["distinct"] - told["finished"] - told["failed"]
    lines.append(f"{told['finished']} finished before, {told['failed']} failed, {left} to do")
    if left:
        seconds = told["seconds"]
        known = "no run like them has finished yet" if seconds is None else f"about {spoken(seconds)}"
        lines.append(f"time: {known}")
    return "\n".join(lines)
