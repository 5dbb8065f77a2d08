"""Run plans: the jobs that come first, and then the runs of a grid.

A job calls the same function as its script and passes only the names of the models it saved to the next job. A list of
jobs therefore saves the same models, byte for byte, as its commands run one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from common.config import flag
from common.data.split import file_name
from common.data.tasks import load_task
from common.errors import UserError
from common.launch.launcher import LAUNCHERS, Launcher
from common.progress import nothing, say, side_task
from common.store.files import whole_folder
from common.store.locks import only_one
from common.tracking import check_observers
from common.training.models import GENERAL, model_folder
from compression.augmentation.label_shift import recorded_labels
from compression.evaluation.rows import Row
from compression.experiments.jobs import Job, Plan
from compression.experiments.report import write_report
from compression.experiments.report.record import RECORD_FILE, ExperimentRecord, check_name_is_free, write_record
from compression.experiments.sweep.board import Board
from compression.experiments.sweep.grid import load_sweep
from compression.experiments.sweep.listing import collect
from compression.experiments.sweep.plan import RunTask, distinct, plan_runs
from compression.experiments.sweep.settings import SweepSettings
from compression.experiments.sweep.work import SharedJobs, do_run, do_shared
from compression.shrinking.settings import CompressSettings


def run_plan(plan: Plan) -> tuple[list[Row], ExperimentRecord]:
    """Run a plan in this process and write its report. Returns rows and record."""
    rows, record = run(plan, Launcher())
    if rows:
        with side_task("the report"):
            write_report(plan.workspace.experiment(plan.name), rows, record)
    return rows, record


def sweep(path: Path, settings: SweepSettings) -> ExperimentRecord:
    """Run a grid. Finished runs are reused, stopped runs resume, failed runs are repeated only with --retry-failed.

    Returns the experiment's record. Raises UserError before anything runs for an invalid file, flag or name, and
    KeyboardInterrupt after a clean stop.
    """
    _, record = run(load_sweep(path, settings), settings.launch(), settings.retry_failed, settings.loadbar)
    return record


def run(
    plan: Plan, launcher: Launcher, retry_failed: bool = False, board: bool = False
) -> tuple[list[Row], ExperimentRecord]:
    """Run a plan's jobs, then its unfinished runs; record them, and write results.json. Returns rows and record.

    retry_failed: do only the runs that failed; board: show the progress of runs.
    """
    folder, experiment = plan.workspace.experiment(plan.name), plan.record
    check_observers(plan.observers)
    for task, jobs in plan.shared.items():
        check_inputs([*jobs, *(job for cell in plan.cells if cell.flags["task"] == task for job in cell.jobs)])
    check_name_is_free(folder, experiment.definition)
    with only_one(folder / "sweep", f"experiment {plan.name}"):
        if not (folder / RECORD_FILE).exists():
            write_record(folder, experiment)
        run_shared(plan, launcher)
        runs, teachers = plan_runs(plan), plan.teachers
        pairs = zip(plan.cells, runs, strict=True)
        recorded = tuple(cell.as_record(task.id, teachers.get(cell.flags["task"])) for cell, task in pairs)
        labels = recorded_labels(plan.workspace, {task: teachers.get(task) for task in plan.tasks}, plan.augmented)
        experiment = experiment.model_copy(update={"runs": recorded, "labels": labels})
        write_record(folder, experiment)
        try:
            _do_runs(plan.name, runs, launcher, retry_failed, board)
        finally:
            rows = collect(plan.workspace, experiment)
    return rows, experiment


def check_inputs(jobs: Iterable[Job]) -> None:
    """Check before a teacher is trained that its students will have what they need: from the jobs, or in the workspace.

    Raises UserError for files, augmented rows, logits, teachers or general students that are missing, and for a student
    that would have its teacher's name.
    """
    made: set[Path] = set()
    teacher = None
    for job in jobs:
        for name in ("glove", "augment_file", "bpe_model", "bpe_vectors"):
            if name in job.flags and not Path(job.flags[name]).exists():
                raise UserError(f"{job.kind}: {flag(name)} {job.flags[name]}: no such file")
        if job.kind == "preprocess":
            settings = job.settings(**({"model_name": teacher} if teacher else {}))
            paths, task = settings.paths, load_task(settings.task)
            if settings.augment:
                made.add(paths.augmented(task.name, settings.augmented))
            if settings.model_name:
                rows = (settings.augmented if name == "augmented" else name for name in settings.generate_loss)
                made |= {paths.logits(task.name, settings.model_name, file_name(name)) for name in rows}
        elif job.kind == "compress" and teacher:
            _check_student(job.settings(teacher=teacher), teacher, made)
        teacher = job.makes_teacher or teacher


def _check_student(settings: CompressSettings, teacher: str, made: set[Path]) -> None:
    paths, task = settings.paths, load_task(settings.task)
    if "pretrain" in settings.compression_actions:
        usual = f"{settings.student_arch}-{Path(str(settings.teacher)).name}-s{settings.seed}"
        made.add(paths.model(GENERAL, settings.model_name or usual))
    if "distill" not in settings.compression_actions:
        return
    if settings.model_name == teacher:
        raise UserError(f"compress: --model-name {teacher} is the name of the teacher")
    sets, learns_from = settings.augmented_sets, str(settings.teacher)
    needed = [paths.augmented(task.name, name) for name in sets]
    if not settings.labels_alone:
        needed += [paths.logits(task.name, learns_from, name) for name in ("train", *sets)]
        needed += [model_folder(paths, task.models_task, learns_from)] if learns_from != teacher else []
    if settings.start_from:
        needed.append(model_folder(paths, GENERAL, settings.start_from))
    for path in needed:
        if path not in made and not path.exists():
            raise UserError(f"compress: {path}: does not exist, and no job before makes it")


def run_shared(plan: Plan, launcher: Launcher) -> None:
    """Run the jobs that come first, in this process or on a cluster."""
    experiment = plan.workspace.experiment(plan.name)
    # Until all are done, reports read the results of the previous sweep, which may be of other tasks.
    with whole_folder(experiment / "shared") as folder:
        tasks = [
            SharedJobs(tuple(jobs), experiment, tuple(plan.observers), folder / f"{number}.json")
            for number, jobs in enumerate(plan.shared.values())
            if jobs
        ]
        (Launcher() if LAUNCHERS[launcher.kind].here else launcher).run(do_shared, tasks, nothing)


def _do_runs(name: str, all_runs: Sequence[RunTask], launcher: Launcher, retry_failed: bool, board: bool) -> None:
    """Do the remaining runs, with the progress board."""
    runs = distinct(all_runs)
    statuses = {task.id: task.folder.status() for task in runs}
    todo = [task for task in runs if statuses[task.id] in ("failed" if retry_failed else "waiting", "running")]
    for task in todo if retry_failed else ():
        task.folder.file.unlink(missing_ok=True)
        statuses[task.id] = "waiting"
    if all_runs:
        counts = Counter(statuses.values())
        same = f" ({len(all_runs) - len(runs)} cells are the same run as others)" if len(runs) < len(all_runs) else ""
        ended = f"{counts['finished']} finished before, {counts['failed']} failed"
        say(f"{len(all_runs)} runs{same}: {ended}, {len(todo)} to do")
    if todo:
        shown = [task for task in runs if task in todo or statuses[task.id] == "finished"]
        lost = "its process died again and again (out of memory?)"
        with Board(name, shown, min(launcher.at_once(), len(todo)), board):
            launcher.run(do_run, todo, nothing, lambda task: task.save(status="failed", error=lost))
