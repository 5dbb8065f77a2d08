"""The runs of a grid: their steps, inputs and names, and the numbers of a dry run."""

from __future__ import annotations

import dataclasses
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.data.split import count_rows, find_splits
from common.data.tasks import load_task
from common.errors import UserError
from common.store.files import fingerprint, write_json
from common.store.store import Store
from common.training.models import flat
from compression.distillation.distill import Distill, student_name
from compression.evaluation.evaluate import Evaluate
from compression.experiments.jobs import Job, Plan
from compression.experiments.sweep.runs import Estimator, RunFolder, RunRecord, duration
from compression.shrinking.chain import SHRINK
from compression.shrinking.files import FILES
from compression.shrinking.settings import CompressSettings


@dataclasses.dataclass(frozen=True)
class RunTask:
    """A run in the form that is sent to a worker: names, numbers and settings."""

    record: RunRecord
    """What is known of the run before it starts."""
    workspace: Path
    jobs: tuple[Job, ...]
    """Compress jobs, which share one distilled student, and one that evaluates the models."""
    experiment: str
    observers: tuple[str, ...]

    @property
    def id(self) -> str:
        """Identity of the run."""
        return self.record.id

    @property
    def rows(self) -> int:
        """Training rows times epochs."""
        return self.record.work

    @property
    def name(self) -> str:
        """Name of the distilled student."""
        return self.jobs[0].flags["model_name"]

    @property
    def folder(self) -> RunFolder:
        """The run's folder in the workspace."""
        return RunFolder(Store(self.workspace), self.id)

    def save(self, **fields: Any) -> None:
        """Write the record of the run. fields: those that have changed since it was planned."""
        record = self.record.model_copy(update={"host": platform.node(), **fields})
        write_json(self.folder.file, record.model_dump(mode="json"))


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
    step, paths = Distill.of(settings), settings.paths
    inputs = step.inputs(paths)

    def later(action: str) -> Any:
        """Return everything except the student that the result of an action after distilling depends on."""
        if action in FILES:
            return [action, FILES[action].version]
        if action not in SHRINK:
            return action
        shrink = SHRINK[action].of(settings, Path())
        return [action, shrink.version, shrink.model_dump(mode="json")]

    actions = [[later(action) for action in chain] for chain in chains]
    artifacts = {**inputs, "splits": find_splits(paths, step.definition)}
    task = load_task(settings.task)
    augmented = sum(count_rows(paths.augmented(task.name, name)) for name in settings.augmented_sets)
    train = round(count_rows(paths.split(task.name, "train")) * settings.downsample_data)
    rows = train + round(augmented * settings.bootstrap_data_ratio * settings.downsample_data)
    return RunRecord(
        id=fingerprint([step.key(inputs), actions, Evaluate.version, *([timing] if timing else [])]),
        family=step.model_copy(update={"seed": 0}).key(inputs)[:8],
        task=step.definition.name,
        settings={**flat(step.model_dump(mode="json")), "chains": chains},
        inputs={role: artifact.key for role, artifact in artifacts.items()},
        threads=threads,
        work=rows * settings.epochs,
    )


def plan_runs(plan: Plan) -> list[RunTask]:
    """Return the run of every cell of a plan, in order. Cells with the same effective settings share a run.

    Raises UserError if an input is missing.
    """
    runs = []
    for cell in plan.cells:
        flags = cell.with_teacher(plan.teachers.get(cell.flags["task"]))
        settings = Job("compress", flags).settings()
        record = identify(settings, cell.chains, plan.timing, plan.threads)
        # Runs may differ in any setting, so their names contain, in front of the seed, part of a hash of the settings.
        stem = student_name(settings).removesuffix(f"-s{cell.seed}")
        flags |= {"model_name": f"{stem}-{record.family}-s{cell.seed}", "loadbar": False}
        shared = {key: flags[key] for key in ("task", "workspace", "cpu", "loadbar") if key in flags}
        jobs = (*dataclasses.replace(cell, flags=flags).jobs, Job("evaluate", {**shared, **plan.timing}))
        runs.append(RunTask(record, plan.workspace.root, jobs, plan.name, tuple(plan.observers)))
    return runs


def distinct(runs: Sequence[RunTask]) -> list[RunTask]:
    """Return the runs without duplicates, in order."""
    return list({run.id: run for run in runs}.values())


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
        runs = distinct(plan_runs(plan))
    except UserError as error:
        return {**numbers, "inputs": str(error)}
    statuses = {run.id: run.folder.status() for run in runs}
    left = [run.record for run in runs if statuses[run.id] in ("waiting", "running")]
    seconds = Estimator(plan.workspace, (run.record for run in runs)).seconds(left)
    numbers |= {status: Counter(statuses.values())[status] for status in ("finished", "failed")}
    numbers["seconds"] = None if seconds is None else round(seconds / max(1, min(at_once, len(left))))
    return {**numbers, "distinct": len(runs)}


def plan_text(plan: dict[str, Any]) -> str:
    """Return the plan of a sweep (`--dry-run`) as text for a terminal."""
    lines = [f"{plan['name']}: {plan['cells']} cells x {len(plan['seeds'])} seeds = {plan['runs']} runs"]
    lines += [f"before them, once for {task}: {', '.join(kinds)}" for task, kinds in plan["shared"].items() if kinds]
    if plan["inputs"] != "there":
        made = "the jobs before them make their inputs, from which the time is estimated"
        missing = f"the runs' inputs do not exist: {plan['inputs']}"
        return "\n".join([*lines, f"{plan['runs']} to do; {made}" if all(plan["shared"].values()) else missing])
    same = plan["runs"] - plan["distinct"]
    lines += [f"{same} cells are the same run as others"] if same else []
    left = plan["distinct"] - plan["finished"] - plan["failed"]
    lines.append(f"{plan['finished']} finished before, {plan['failed']} failed, {left} to do")
    if left:
        known = "no run like them has finished yet" if plan["seconds"] is None else f"about {duration(plan['seconds'])}"
        lines.append(f"time: {known}")
    return "\n".join(lines)
