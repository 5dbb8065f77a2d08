"""One run of a sweep, in a worker: train, compress and evaluate a student, and write the run's record."""

from __future__ import annotations

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

from common.devices import threads
from common.errors import UserError
from common.progress import Advance, nothing, show_bars
from common.store.artifact import read_manifest
from common.store.files import write_json
from common.store.locks import only_one, waiting
from common.store.processes import Process
from common.store.store import Store
from common.tracking import record
from common.training.models import read_config
from compression.evaluation.evaluate import evaluate
from compression.experiments.jobs import Job
from compression.experiments.report.results import Row, write_results
from compression.experiments.sweep.runs import RunFolder, RunRecord, SavedModel
from compression.shrinking.chain import compress

_MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)


@dataclasses.dataclass(frozen=True)
class RunTask:
    """A run in the form that is sent to a worker: names, numbers and settings."""

    record: RunRecord
    """What is known of the run before it starts; its status is the one that it has if it is lost."""
    workspace: Path
    jobs: tuple[dict[str, Any], ...]
    """Settings of the compress jobs, without defaults. The jobs share one distilled student."""
    timing: dict[str, Any]
    """Settings of evaluate for timing the models; empty if they are not timed."""
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
        return self.jobs[0]["model_name"]

    @property
    def folder(self) -> RunFolder:
        """The run's folder in the workspace."""
        return RunFolder(Store(self.workspace), self.id)

    def ended(self, error: str | None = None, **fields: Any) -> None:
        """Write the record of the run: finished, or failed if there is an error. fields: others that have changed."""
        status = "failed" if error else "finished"
        known = {"status": status, "error": error, "host": platform.node(), **fields}
        self.folder.write(self.record.model_copy(update=known))


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
        folder.file.unlink(missing_ok=True)
        started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
        write_json(folder.running, Process.current()._asdict())
        models: Sequence[SavedModel] = ()
        error = None
        try:
            with _output_to(folder.log):
                models = _train_and_evaluate(run)
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno in _MACHINE_ERRORS:
                raise
            error = str(problem) if isinstance(problem, UserError) else f"{type(problem).__name__}: {problem}"
        finally:
            folder.running.unlink(missing_ok=True)
        reused = False
        if models:  # manifests have whole seconds
            built = read_manifest(folder.paths.model(run.record.task, models[0].name)).built
            reused = datetime.datetime.fromisoformat(built) < started.replace(microsecond=0)
        run.ended(
            error,
            models=tuple(models),
            seconds=round(time.monotonic() - clock, 3),
            work=0 if reused else run.rows,
            started=started.isoformat(timespec="seconds"),
        )
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


def _train_and_evaluate(run: RunTask) -> list[SavedModel]:
    """Do the run and record it with the experiment's observers. Returns the models it saved."""
    recorded = {"id": run.id, "jobs": run.jobs, "settings": run.record.settings, "inputs": run.record.inputs}
    folder = run.folder.paths.experiment(run.experiment) / "sacred"
    models, rows = record(run.experiment, folder, recorded, lambda: _models_and_rows(run), run.observers)
    write_results(run.folder.results, [{**row, "run_id": run.id} for row in rows])
    return models


def _models_and_rows(run: RunTask) -> tuple[list[SavedModel], list[Row]]:
    models: dict[str, SavedModel] = {}
    rows: list[Row] = []
    with threads(run.record.threads):
        for flags in run.jobs:
            shared = {key: flags[key] for key in ("task", "workspace", "cpu") if key in flags}
            for folder in compress(Job("compress", flags).settings()):
                if folder.name not in models:
                    models[folder.name] = SavedModel(name=folder.name, key=read_config(folder).key)
                    rows += evaluate(Job("evaluate", {**shared, **run.timing, "model_name": folder.name}).settings())
    return list(models.values()), rows
