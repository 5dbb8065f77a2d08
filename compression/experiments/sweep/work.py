"""What a worker does: jobs in order, or one run of a sweep, which trains, compresses and evaluates a student.

This is the only module of experiments that imports the scripts' functions.
"""

import contextlib
import dataclasses
import datetime
import errno
import platform
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common.data.tasks import load_task
from common.devices import threads
from common.errors import UserError
from common.progress import Advance, nothing, say, show_bars
from common.store.artifact import read_manifest
from common.store.files import read_json, write_json
from common.store.locks import only_one, waiting
from common.store.processes import Process
from common.store.store import Store
from common.teachers.finetune import finetune
from common.tracking import record
from common.training.models import find_model
from compression.analysis.analyze import analyze, picture_folder, subject
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import evaluate
from compression.evaluation.rows import Row
from compression.experiments.jobs import Job
from compression.experiments.report.results import write_results
from compression.experiments.sweep.runs import RunFolder, RunRecord
from compression.shrinking.chain import compress

_MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)


def run_jobs(jobs: Sequence[Job]) -> list[Row]:
    """Run jobs in order. Returns the rows of their evaluations.

    Students learn from the teacher that was fine-tuned or imported last, and jobs on models use all those saved so far.
    """
    rows: list[Row] = []
    saved: list[str] = []
    teacher = None
    for number, job in enumerate(jobs, 1):
        show_bars(bool(job.flags.get("loadbar", True)))
        say(f"[{number}/{len(jobs)}] {job}")
        models = saved.copy() if job.takes_models else [None]
        match job.kind:
            case "preprocess":
                preprocess(job.settings(model_name=teacher))
            case "finetune":
                finetune(job.settings())
            case "compress":
                settings = job.settings(teacher=teacher)
                names = [folder.name for folder in compress(settings)]
                if "pretrain" not in settings.compression_actions:  # a pretrained student belongs to no task
                    saved += [name for name in names if name not in saved]
            case "evaluate":
                rows += [row for model in models for row in evaluate(job.settings(model_name=model))]
            case "analyze":
                for model in models:
                    _analyze(job, model)
        if job.makes_teacher:
            saved.append(teacher := job.makes_teacher)
    return rows


def _analyze(job: Job, model: str | None) -> None:
    """Analyze a model, unless it was already analyzed with the same settings, or is one of several without weights."""
    settings = job.settings(model_name=model)
    if model:
        _, config = find_model(settings.paths, load_task(settings.task), settings.model_name)
        if config.imported or config.members:
            say(f"{config.name}: not analysed, it has no weights of its own")
            return
    name, identity = subject(settings)
    made_from = [*identity, job.as_record()]
    file = picture_folder(settings, name) / "analysis.json"
    if settings.force or not file.exists() or read_json(file).get("made_from") != made_from:
        write_json(file, {**analyze(settings), "made_from": made_from})


@dataclasses.dataclass(frozen=True)
class SharedJobs:
    """Jobs of one task, for a worker. experiment, observers: where they are recorded; file: for their rows."""

    jobs: tuple[Job, ...]
    experiment: Path
    observers: tuple[str, ...]
    file: Path
    rows: int = 1


def do_shared(shared: SharedJobs, advance: Advance = nothing) -> None:
    """Run the jobs that are not up to date, and write the rows of evaluations."""
    settings = {"jobs": [job.as_record() for job in shared.jobs]}
    folder = shared.experiment / "sacred"
    rows = record(shared.experiment.name, folder, settings, lambda: run_jobs(shared.jobs), shared.observers)
    write_results(shared.file, rows)


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


def do_run(run: RunTask, advance: Advance = nothing) -> None:
    """Do a run, unless another experiment has done it in the meantime, and write its record.

    An exception in the run itself is recorded as a failure. A full disk and an interrupt are raised, and the run
    remains unfinished.
    """
    folder = run.folder
    # The lock is on the student's name, because other runs may distil the same student and compress it differently.
    with waiting(), only_one(folder.folder.parent / f"{run.record.task}-{run.name}", run.name):
        if folder.status() == "finished":
            return
        clock = time.monotonic()
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")  # as manifests have it
        began = {"started": started, "process": Process.current()}
        run.save(status="running", **began)
        error = None
        try:
            recorded = run.record.model_dump(include={"id", "settings", "inputs"})
            recorded["jobs"] = [job.as_record() for job in run.jobs]
            sacred = folder.paths.experiment(run.experiment) / "sacred"
            with _output_to(folder.log), threads(run.record.threads):
                rows = record(run.experiment, sacred, recorded, lambda: run_jobs(run.jobs), run.observers)
                write_results(folder.results, [{**row, "run_id": run.id} for row in rows])
        except BaseException as problem:
            if not isinstance(problem, Exception) or getattr(problem, "errno", None) in _MACHINE_ERRORS:
                folder.file.unlink(missing_ok=True)
                raise
            error = str(problem) if isinstance(problem, UserError) else f"{type(problem).__name__}: {problem}"
        reused = not error and read_manifest(folder.paths.model(run.record.task, run.name)).built < started
        status = "failed" if error else "finished"
        seconds = round(time.monotonic() - clock, 3)
        run.save(status=status, error=error, seconds=seconds, work=0 if reused else run.rows, **began)
    advance(run.rows)


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirect output, and the traceback of an exception, to a run's log, because many runs share one screen."""
    with log.open("a", encoding="utf-8", buffering=1) as file, contextlib.redirect_stderr(file):
        show_bars(False)
        try:
            yield
        except Exception:
            traceback.print_exc()
            raise
