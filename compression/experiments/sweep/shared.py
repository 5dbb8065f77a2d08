"""The jobs that a sweep's runs share: splits, teacher, augmented rows, logits. Done once a task, before the runs."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from common.launch.launcher import Launcher
from common.progress import Advance, nothing
from common.store.files import read_json, write_json
from compression.experiments.jobs import Job, run_jobs
from compression.experiments.report.results import Row, read_results, write_results
from compression.experiments.sweep.grid import Grid

FOLDER = "shared"


@dataclasses.dataclass(frozen=True)
class SharedJobs:
    """Jobs of one task, for a worker. folder: where their outcome goes."""

    jobs: tuple[Job, ...]
    folder: Path
    rows: int = 1
    """A worker's parts say how large they are; these are not counted."""


def do_shared(shared: SharedJobs, advance: Advance = nothing) -> None:
    """Do the jobs; what is up to date is left alone. Keeps the name of the teacher made and the rows of evaluations."""
    rows, made = run_jobs(list(shared.jobs))
    write_results(shared.folder / "result.json", rows)
    write_json(shared.folder / "teacher.json", made.teacher)


def run_shared(grid: Grid, experiment: Path, launcher: Launcher) -> dict[str, str]:
    """Do the shared jobs of every task, here or as a cluster's tasks. Returns task -> name of the teacher made."""
    shutil.rmtree(experiment / FOLDER, ignore_errors=True)  # of tasks that the grid may no longer have
    parts = [SharedJobs(tuple(jobs), experiment / FOLDER / str(n)) for n, jobs in enumerate(grid.shared.values())]
    if launcher.kind in ("ray", "slurm"):
        launcher.run(do_shared, parts, nothing)
    else:
        for part in parts:
            do_shared(part)
    made = [read_json(part.folder / "teacher.json") for part in parts]
    return {task: teacher for task, teacher in zip(grid.shared, made, strict=True) if teacher}


def shared_rows(experiment: Path) -> list[Row]:
    """Rows of the models that shared jobs made and scored: teachers."""
    files: Sequence[Path] = sorted((experiment / FOLDER).glob("*/result.json"))
    return [row for file in files for row in read_results(file)]
