"""Run plans: the jobs that come first, and then the runs of a grid.

A job calls the same function as its script and passes only the names of the models it saved to the next job. A list of
jobs therefore saves the same models, byte for byte, as its commands run one by one.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.config import flag
from common.data.split import count_rows, file_name, find_splits
from common.data.tasks import load_task
from common.errors import UserError
from common.launch.launcher import LAUNCHERS, Launcher
from common.progress import nothing, say, side_task
from common.store.files import fingerprint, whole_folder
from common.store.locks import only_one
from common.tracking import check_observers
from common.training.models import GENERAL, flat, model_folder
from compression.augmentation.label_shift import recorded_labels
from compression.distillation.distill import Distill, student_name
from compression.evaluation.evaluate import Evaluate
from compression.evaluation.rows import Row
from compression.experiments.jobs import Job, Plan, teacher_of
from compression.experiments.report import write_report
from compression.experiments.report.record import RECORD_FILE, ExperimentRecord, check_name_is_free, write_record
from compression.experiments.sweep.board import Board
from compression.experiments.sweep.runs import Estimator, RunRecord, collect, duration
from compression.experiments.sweep.work import RunTask, SharedJobs, do_run, do_shared
from compression.shrinking.chain import SHRINK
from compression.shrinking.files import FILES
from compression.shrinking.settings import CompressSettings


def run(
    plan: Plan, launcher: Launcher | None = None, retry_failed: bool = False, board: bool = False
) -> tuple[list[Row], ExperimentRecord]:
    """Run a plan's jobs, then its runs; record them, and write results.json and the report. Returns rows and record.

    Finished runs are reused, stopped runs resume, failed runs are repeated only with `retry_failed`, and then only
    these. launcher: of the runs, by default this process; board: show their progress. Raises UserError before anything
    runs for an invalid input or name, and KeyboardInterrupt after a clean stop.
    """
    launcher = launcher or Launcher()
    folder, experiment = plan.workspace.experiment(plan.name), plan.record
    check_observers(plan.observers)
    for task, jobs in plan.shared.items():
        check_inputs([*jobs, *(job for cell in plan.cells if cell.flags["task"] == task for job in cell.jobs)])
    check_name_is_free(folder, experiment.definition)
    with only_one(folder / "sweep", f"experiment {plan.name}"):
        if not (folder / RECORD_FILE).exists():
            write_record(folder, experiment)
        run_shared(plan, launcher)
        tasks = plan_runs(plan)
        runs = tuple(cell.as_record(task.id) for cell, task in zip(plan.cells, tasks, strict=True))
        teachers = {task: teacher_of(plan.shared.get(task, ())) for task in plan.tasks}
        labels = recorded_labels(plan.workspace, teachers, plan.augmented)
        experiment = experiment.model_copy(update={"runs": runs, "labels": labels})
        write_record(folder, experiment)
        try:
            _do_runs(plan.name, tasks, launcher, retry_failed, board)
        finally:
            rows = collect(plan.workspace, experiment)
    if rows or experiment.table or experiment.labels:
        with side_task("the report"):
            write_report(folder, rows, experiment)
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
            file = job.flags.get(name)
            if file is not None and not Path(file).exists():
                raise UserError(f"{job.kind}: {flag(name)} {file}: no such file")
        if job.kind == "preprocess":
            settings = job.settings(model_name=teacher)
            paths, task = settings.paths, load_task(settings.task)
            if settings.augment:
                made.add(paths.augmented(task.name, settings.augmented))
            if settings.model_name:
                rows = (settings.augmented if name == "augmented" else name for name in settings.generate_loss)
                made |= {paths.logits(task.name, settings.model_name, file_name(name)) for name in rows}
        elif job.kind == "compress" and teacher:
            settings = job.settings(teacher=teacher)
            if "pretrain" in settings.compression_actions:
                usual = f"{settings.student_arch}-{Path(str(settings.teacher)).name}-s{settings.seed}"
                made.add(settings.paths.model(GENERAL, settings.model_name or usual))
            if "distill" in settings.compression_actions:
                _check_student(settings, teacher, made)
        teacher = job.makes_teacher or teacher


def _check_student(settings: CompressSettings, teacher: str, made: set[Path]) -> None:
    """Raise UserError if a student's inputs are neither there nor among those that jobs make."""
    if settings.model_name == teacher:
        raise UserError(f"compress: --model-name {teacher} is the name of the teacher")
    paths, task, sets = settings.paths, load_task(settings.task), settings.augmented_sets
    needed = [paths.augmented(task.name, name) for name in sets]
    if not settings.labels_alone:
        learns_from = str(settings.teacher)
        needed += [paths.logits(task.name, learns_from, name) for name in ("train", *sets)]
        needed += [model_folder(paths, task.models_task, learns_from)] if learns_from != teacher else []
    needed += [model_folder(paths, GENERAL, settings.start_from)] if settings.start_from else []
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
        with Board(name, shown, min(launcher.at_once(), len(todo)), board) as progress:
            launcher.run(do_run, todo, progress.look, lambda task: task.save(status="failed", error=lost))


def identify(
    settings: CompressSettings, chains: Sequence[Sequence[str]], timing: Mapping[str, Any] = {}, threads: int = 1
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
    task = step.definition.name
    augmented = sum(count_rows(paths.augmented(task, name)) for name in settings.augmented_sets)
    rows = round(count_rows(paths.split(task, "train")) * settings.downsample_data)
    rows += round(augmented * settings.bootstrap_data_ratio * settings.downsample_data)
    return RunRecord(
        id=fingerprint([step.key(inputs), actions, Evaluate.version, *([timing] if timing else [])]),
        family=step.model_copy(update={"seed": 0}).key(inputs)[:8],
        task=task,
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
        settings = Job("compress", cell.flags).settings()
        record = identify(settings, cell.chains, plan.timing, plan.threads)
        # Runs may differ in any setting, so their names contain, in front of the seed, part of a hash of the settings.
        stem = student_name(settings).removesuffix(f"-s{cell.seed}")
        flags = {**cell.flags, "model_name": f"{stem}-{record.family}-s{cell.seed}", "loadbar": False}
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
    }
    try:
        runs = distinct(plan_runs(plan))
    except UserError as error:
        return {**numbers, "inputs": str(error), "finished": 0, "failed": 0, "seconds": None}
    statuses = {run.id: run.folder.status() for run in runs}
    counts = Counter(statuses.values())
    left = [run.record for run in runs if statuses[run.id] in ("waiting", "running")]
    seconds = Estimator(plan.workspace, (run.record for run in runs)).seconds(left)
    took = None if seconds is None else round(seconds / max(1, min(at_once, len(left))))
    ended = {"finished": counts["finished"], "failed": counts["failed"]}
    return {**numbers, "inputs": "there", **ended, "seconds": took, "distinct": len(runs)}


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
