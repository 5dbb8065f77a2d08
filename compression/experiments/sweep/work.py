"""One run of a sweep, as a worker does it: train, compress and score a student, and keep a record of how that went."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import os
import platform
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.progress import Advance, nothing, show_bars
from common.store.files import write_json
from common.store.locks import only_one, waiting
from common.store.workspace import Workspace
from compression.experiments.jobs import Job, job_settings
from compression.experiments.report.results import Row, write_results
from compression.experiments.sweep.runs import RunFolder, RunRecord, SavedModel

_NOT_ITS_FAULT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What a worker is told of a run: names, numbers and settings."""

    id: str
    task: str
    workspace: Path
    jobs: tuple[dict[str, Any], ...]
    """Settings of its compress jobs, without defaults: one student, and what is made of it in several ways."""
    settings: dict[str, Any]
    """Of all its steps."""
    inputs: dict[str, str]
    experiment: str
    observers: tuple[str, ...]
    threads: int
    rows: int
    """Work: training rows times epochs."""

    @property
    def name(self) -> str:
        """Name of its distilled student."""
        return self.jobs[0]["model_name"]

    @property
    def folder(self) -> RunFolder:
        """Where its record is."""
        return RunFolder(Workspace(self.workspace), self.id)


def do_run(work: Assignment, advance: Advance = nothing) -> None:
    """Do a run, unless another experiment has done it meanwhile, and record how it ended.

    Whatever goes wrong in the run itself is recorded as its failure. An interrupt and a full disk are not its fault:
    they are raised, and the run stays to be done.
    """
    folder = work.folder
    # By the student's name: other runs may distil the same one before they do something else to it.
    with waiting(), only_one(folder.folder.parent / f"{work.task}-{work.name}", work.name):
        if folder.status() == "finished":
            return
        (folder.folder / "run.json").unlink(missing_ok=True)
        started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
        write_json(folder.running, {"host": platform.node(), "pid": os.getpid(), "started": started.isoformat()})
        models: tuple[SavedModel, ...] = ()
        error = None
        try:
            with _logged(folder.log):
                models = _train_and_score(work)
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno in _NOT_ITS_FAULT:
                raise
            error = _in_a_line(problem)
        finally:
            folder.running.unlink(missing_ok=True)
        folder.write(outcome(work, started, time.monotonic() - clock, models, error))
    advance(work.rows)


def outcome(
    work: Assignment,
    started: datetime.datetime | None,
    seconds: float,
    models: tuple[SavedModel, ...] = (),
    error: str | None = None,
) -> RunRecord:
    """The record of a run that has ended: finished, or failed where there is an error."""
    return RunRecord(
        id=work.id,
        status="failed" if error else "finished",
        task=work.task,
        settings=work.settings,
        inputs=work.inputs,
        models=models,
        error=error,
        seconds=round(seconds, 3),
        work=work.rows,
        started=started.isoformat(timespec="seconds") if started else "",
        host=platform.node(),
        threads=work.threads,
    )


def _in_a_line(problem: Exception) -> str:
    return str(problem) if isinstance(problem, UserError) else f"{type(problem).__name__}: {problem}"


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    """What is printed goes to a run's log: many runs share one screen."""
    with path.open("a", encoding="utf-8", buffering=1) as log, contextlib.redirect_stderr(log):
        show_bars(False)
        try:
            yield
        except Exception:
            traceback.print_exc()
            raise


def _train_and_score(work: Assignment) -> tuple[SavedModel, ...]:
    """The run itself, recorded with the experiment's observers. Returns the models it made."""
    from common.tracking import record

    told = {"id": work.id, "jobs": work.jobs, "settings": work.settings, "inputs": work.inputs}
    place = Workspace(work.workspace).experiment(work.experiment) / "sacred"
    models, rows = record(work.experiment, place, told, lambda: _models_and_rows(work), work.observers)
    write_results(work.folder.results, [{**row, "run_id": work.id} for row in rows])
    return models


def _models_and_rows(work: Assignment) -> tuple[tuple[SavedModel, ...], list[Row]]:
    import torch

    from common.training.models import read_config
    from compression.evaluation.evaluate import evaluate
    from compression.shrinking.chain import compress

    torch.set_num_threads(work.threads)
    models: dict[str, SavedModel] = {}
    rows: list[Row] = []
    for given in work.jobs:
        for folder in compress(job_settings(Job("compress", given), {})):
            if folder.name in models:
                continue
            models[folder.name] = SavedModel(name=folder.name, key=read_config(folder).key)
            shared = {key: given[key] for key in ("task", "workspace", "cpu") if key in given}
            settings = job_settings(Job("evaluate", {**shared, "model_name": folder.name}), {})
            rows += evaluate(settings)
    return tuple(models.values()), rows
