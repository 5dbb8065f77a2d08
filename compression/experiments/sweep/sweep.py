"""`experiment.py sweep`: runs the shared jobs, then every unfinished run, and writes the report."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.launch.launcher import LAUNCHERS, Launcher
from common.progress import Advance, nothing, say
from common.store.files import read_json, whole_folder, write_json
from common.store.locks import only_one
from common.tracking import check_observers
from compression.augmentation.label_shift import recorded_labels
from compression.experiments.jobs import Job, recorded_settings
from compression.experiments.report.record import (
    RECORD_FILE,
    ExperimentRecord,
    RecordedRun,
    check_name_is_free,
    definition_files,
    described,
    write_record,
)
from compression.experiments.report.results import write_results
from compression.experiments.run import run_jobs
from compression.experiments.sweep.board import Board
from compression.experiments.sweep.collect import collect
from compression.experiments.sweep.grid import Cell, Grid, load_grid, parse_assignments
from compression.experiments.sweep.plan import describe_plan, distinct, plan_runs
from compression.experiments.sweep.settings import SweepSettings
from compression.experiments.sweep.work import RunTask, do_run


def plan_sweep(path: Path, settings: SweepSettings) -> dict[str, Any]:
    """Return the plan of a sweep without running it (`--dry-run`)."""
    grid = load_grid(path, settings.set_, settings.flags)
    return describe_plan(grid, settings.paths, settings.launch().at_once(), settings.threads)


def sweep(path: Path, settings: SweepSettings) -> ExperimentRecord:
    """Run a grid. Finished runs are reused, stopped runs resume, failed runs are repeated only with --retry-failed.

    Returns the experiment's record. Raises UserError before anything runs for an invalid file, flag or name, and
    KeyboardInterrupt after a clean stop.
    """
    grid = load_grid(path, settings.set_, settings.flags)
    check_observers(settings.observer)
    launcher = settings.launch()
    name = settings.name or grid.file.name
    folder = settings.paths.experiment(name)
    record = ExperimentRecord(
        name=name,
        title=grid.file.title or grid.file.name,
        kind="sweep",
        definition=described(path.name, parse_assignments(settings.set_)),
        files=definition_files(path),
        jobs=tuple(job.as_record() for jobs in grid.shared.values() for job in jobs),
        settings=recorded_settings(grid.settings),
        axes=grid.axes,
        seeds=grid.seeds,
        runs=tuple(_recorded(cell, None, cell.flags) for cell in grid.cells),
        table=grid.file.table,
        quote=grid.file.quote,
    )
    check_name_is_free(folder, record.definition)
    with only_one(folder / "sweep", f"experiment {name}"):
        if not (folder / RECORD_FILE).exists():
            write_record(folder, record)
        teachers = run_shared(grid, folder, launcher)
        runs = plan_runs(grid, settings.paths, name, teachers, settings.observer, settings.threads)
        recorded = tuple(_recorded(cell, run.id, run.jobs[0]) for cell, run in zip(grid.cells, runs, strict=True))
        labels = recorded_labels(settings.paths, {task: teachers.get(task) for task in grid.shared}, grid.augmented)
        record = record.model_copy(update={"runs": recorded, "labels": labels})
        write_record(folder, record)
        try:
            _run(name, runs, settings, launcher)
        finally:
            collect(settings.paths, record)
    return record


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


def _recorded(cell: Cell, identity: str | None, flags: dict[str, Any]) -> RecordedRun:
    """Return a run in the form of experiment.json. identity: None before the run's inputs exist."""
    settings = recorded_settings(flags)
    settings.pop("model_name", None)  # derived from the other settings
    return RecordedRun(id=identity, cell=cell.labels, seed=cell.seed, settings=settings)


def _run(name: str, all_runs: Sequence[RunTask], settings: SweepSettings, launcher: Launcher) -> None:
    """Do the remaining runs, with the progress board."""
    runs = distinct(all_runs)
    statuses = {run.id: run.folder.status() for run in runs}
    again = "failed" if settings.retry_failed else "waiting"
    todo = [run for run in runs if statuses[run.id] in (again, "running")]
    for run in todo if settings.retry_failed else ():
        run.folder.file.unlink(missing_ok=True)
        statuses[run.id] = "waiting"
    counts = Counter(statuses.values())
    same = f" ({len(all_runs) - len(runs)} cells are the same run as others)" if len(runs) < len(all_runs) else ""
    say(
        f"{len(all_runs)} runs{same}: {counts['finished']} finished before, {counts['failed']} failed, "
        f"{len(todo)} to do"
    )
    if not todo:
        return
    shown = [run for run in runs if run in todo or statuses[run.id] == "finished"]
    with Board(name, shown, statuses, min(launcher.at_once(), len(todo)), settings.loadbar):
        launcher.run(do_run, todo, nothing, _lost)


def _lost(run: RunTask) -> None:
    run.folder.write(run.record(error="its process died again and again (out of memory?)"))
