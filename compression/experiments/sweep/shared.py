"""Jobs shared by a sweep's runs: splits, teacher, augmented rows, logits. They run once per task, before the runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from common.launch.launcher import LAUNCHERS, Launcher
from common.progress import Advance, nothing
from common.store.files import read_json, whole_folder, write_json
from compression.experiments.jobs import Job
from compression.experiments.report.results import write_results
from compression.experiments.run import run_jobs
from compression.experiments.sweep.grid import Grid


@dataclasses.dataclass(frozen=True)
class SharedJobs:
    """Jobs of one task, for a worker. folder: where the results are written."""

    jobs: tuple[Job, ...]
    folder: Path
    rows: int = 1


def do_shared(shared: SharedJobs, advance: Advance = nothing) -> None:
    """Run the jobs that are not up to date, and write the teacher's name and the rows of evaluations."""
    rows, state = run_jobs(shared.jobs)
    write_results(shared.folder / "result.json", rows)
    write_json(shared.folder / "teacher.json", state.teacher)


def run_shared(grid: Grid, experiment: Path, launcher: Launcher) -> dict[str, str]:
    """Run the shared jobs of every task, in this process or on a cluster. Returns task -> name of its teacher."""
    if LAUNCHERS[launcher.kind].here:
        launcher = Launcher()
    # Until all are done, reports read the results of the previous sweep, which may be of other tasks.
    with whole_folder(experiment / "shared") as folder:
        tasks = [SharedJobs(tuple(jobs), folder / str(number)) for number, jobs in enumerate(grid.shared.values())]
        launcher.run(do_shared, tasks, nothing)
        teachers = [read_json(task.folder / "teacher.json") for task in tasks]
    return {task: teacher for task, teacher in zip(grid.shared, teachers, strict=True) if teacher}
