"""The work of `experiment.py sweep`: the shared jobs, then every run that is not done yet, then the report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.launch.launcher import Launcher
from common.progress import say
from common.store.locks import only_one
from common.store.workspace import Workspace
from common.tracking import check_observers
from compression.augmentation.label_shift import recorded_labels
from compression.experiments.jobs import told
from compression.experiments.report.record import (
    RECORD_FILE,
    RESULTS_FILE,
    ExperimentRecord,
    check_name_is_free,
    definition_files,
    described,
    read_record,
    write_record,
)
from compression.experiments.report.results import Row, read_results, write_results
from compression.experiments.sweep.board import Board
from compression.experiments.sweep.grid import Grid, load_grid, parse_assignments
from compression.experiments.sweep.plan import (
    Planned,
    describe_plan,
    distinct,
    plan_runs,
    recorded,
    recorded_cells,
    statuses,
)
from compression.experiments.sweep.runs import RunFolder, RunRecord, Status
from compression.experiments.sweep.settings import SweepSettings
from compression.experiments.sweep.shared import run_shared, shared_rows
from compression.experiments.sweep.work import Assignment, do_run, outcome


def plan_sweep(path: Path, settings: SweepSettings) -> dict[str, Any]:
    """What a sweep would do, without doing any of it (`--dry-run`)."""
    grid = load_grid(path, settings.set_, settings.flags)
    return describe_plan(grid, settings.paths, _workers(settings))


def sweep(path: Path, settings: SweepSettings) -> ExperimentRecord:
    """Run a grid: what is finished is left alone, what was stopped goes on, what failed waits for --retry-failed.

    Returns the experiment's record. Raises UserError before anything runs where the file, the flags or the name cannot
    be; KeyboardInterrupt after a clean stop.
    """
    grid = load_grid(path, settings.set_, settings.flags)
    check_observers(settings.observer)
    launcher = settings.launch()
    name = settings.name or grid.name
    folder = settings.paths.experiment(name)
    record = _record(grid, name, described(path.name, parse_assignments(settings.set_)), definition_files(path))
    check_name_is_free(folder, record.definition)
    with only_one(folder / "sweep", f"experiment {name}"):
        if not (folder / RECORD_FILE).exists():
            write_record(folder, record)
        teachers = run_shared(grid, folder, launcher)
        planned = plan_runs(grid, settings.paths, name, teachers, settings.observer, settings.threads)
        asked = {task: teachers.get(task) for task in grid.shared}
        labels = recorded_labels(settings.paths, asked, grid.augmented)
        record = record.model_copy(update={"runs": recorded(planned), "labels": labels})
        write_record(folder, record)
        try:
            _run(name, planned, settings, launcher)
        finally:
            collect(settings.paths, record)
    return record


def _record(grid: Grid, name: str, definition: str, files: dict[str, str]) -> ExperimentRecord:
    jobs = [{"job": job.kind, **told(job.given)} for jobs in grid.shared.values() for job in jobs]
    return ExperimentRecord(
        name=name,
        title=grid.title,
        kind="sweep",
        definition=definition,
        files=files,
        jobs=tuple(jobs),
        settings=told(grid.settings),
        axes=grid.axes,
        seeds=grid.seeds,
        runs=recorded_cells(grid),
        table=grid.table,
        quote=grid.quote,
    )


def _run(name: str, planned: Sequence[Planned], settings: SweepSettings, launcher: Launcher) -> None:
    """Do what is to be done, under the board."""
    works = distinct(planned)
    stands = statuses(works)
    wanted = "failed" if settings.retry_failed else "waiting"
    todo = [work for work in works if stands[work.id] in (wanted, "running")]
    for work in todo if settings.retry_failed else ():
        (work.folder.folder / "run.json").unlink(missing_ok=True)
        stands[work.id] = "waiting"
    _announce(planned, works, stands, len(todo))
    ids = {work.id for work in todo}
    shown = [work for work in works if work.id in ids or stands[work.id] == "finished"]
    with Board(name, shown, stands, min(_workers(settings), len(todo)), settings.loadbar):
        launcher.run(do_run, todo, lambda rows: None, _lost)


def _announce(planned: Sequence[Planned], works: Sequence[Assignment], stands: dict[str, Status], todo: int) -> None:
    counts = Counter(stands.values())
    same = f" ({len(planned) - len(works)} cells are the same run as others)" if len(works) < len(planned) else ""
    say(f"{len(planned)} runs{same}: {counts['finished']} finished before, {counts['failed']} failed, {todo} to do")


def _workers(settings: SweepSettings) -> int:
    """Runs at a time, for estimates of time; a cluster's number is not known before it answers."""
    if settings.launcher == "local":
        return 1
    return settings.launch().workers or max(1, (os.cpu_count() or 1) // settings.threads)


def _lost(work: Assignment) -> None:
    """A run whose process died again and again has failed; the others go on."""
    work.folder.write(outcome(work, None, 0.0, error="its process died again and again (out of memory?)"))


def collect(paths: Workspace, record: ExperimentRecord) -> list[Row]:
    """Gather the rows of an experiment's finished runs into its results.json. Returns them."""
    folder = paths.experiment(record.name)
    _notice_changes(folder / RESULTS_FILE)
    rows = shared_rows(folder)
    for run in record.runs:
        if run.id is None:
            continue
        place = RunFolder(paths, run.id)
        ended = place.record()
        if ended is not None and ended.status == "finished":
            rows += [{**row, "cell": run.cell} for row in _rows(place)]
    write_results(folder / RESULTS_FILE, rows)
    return rows


def _rows(run: RunFolder) -> list[Row]:
    """A finished run's rows; none, and a line that says why, where they are not as they were written."""
    try:
        return run.rows()
    except UserError as error:
        say(f"left out: {error}")
        return []


def _notice_changes(results: Path) -> None:
    """Say so when the results that are about to be replaced are not as they were written."""
    if results.exists():
        try:
            read_results(results)
        except UserError as error:
            say(f"{error}: done now, from the runs")


def report(paths: Workspace, name: str) -> tuple[ExperimentRecord, list[Row]]:
    """Write an experiment's report from its record and rows; a sweep's rows are gathered anew where its runs are here.

    Raises UserError for an unknown experiment, and for rows that were changed by hand.
    """
    from compression.experiments.report import write_report

    folder = paths.experiment(name)
    record = read_record(folder)
    here = any(run.id and RunFolder(paths, run.id).record() for run in record.runs)
    none_yet = record.kind == "sweep" and not (folder / RESULTS_FILE).exists()
    rows = collect(paths, record) if here or none_yet else read_results(folder / RESULTS_FILE)
    write_report(folder, rows, record)
    return record, rows


def failures(paths: Workspace, record: ExperimentRecord) -> list[RunRecord]:
    """Records of an experiment's runs that failed."""
    ended = [RunFolder(paths, run.id).record() for run in record.runs if run.id]
    return [run for run in ended if run is not None and run.status == "failed"]
