"""The stages of a fit as ordinary jobs, each with a time limit."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.config import Settings
from common.data.tasks import Task
from common.progress import say
from common.stopping import OutOfTime, time_limit
from common.teachers.finetune import finetune
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import evaluate
from compression.experiments.fit.clock import Clock
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.state import TEACHER, State
from compression.experiments.jobs import Job
from compression.experiments.report.results import Row
from compression.shrinking.chain import compress

AUGMENTED = "fit"
_NOT_SHOWN = ("task", "workspace", "cpu", "seed", "loadbar")


class Done(Settings):
    """The jobs run so far, each once, and the seconds of each stage."""

    jobs: tuple[dict[str, Any], ...] = ()
    seconds: dict[str, float] = {}


@dataclasses.dataclass
class Stages:
    """Runs the jobs of one task, and saves the jobs and the seconds of each stage."""

    settings: FitSettings
    task: Task
    clock: Clock
    state: State

    @property
    def done(self) -> Done:
        """Return what was run so far, also before the fit was resumed."""
        return self.state.get("stages", Done) or Done()

    def job(self, kind: str, **given: Any) -> Job:
        """Return a job with the common settings and the given ones."""
        own = self.settings
        usual = {"task": self.task.argument, "workspace": own.workspace, "cpu": own.cpu, "seed": own.seed}
        return Job(kind, {**usual, "loadbar": own.loadbar, **given})

    def splits(self) -> None:
        """Split the rows."""
        job = self.job("preprocess")
        self._run("splits", job, lambda: preprocess(job.settings()), None)

    def finetune(self, limit: float, **given: Any) -> None:
        """Fine-tune the teacher. Raises OutOfTime after `limit` seconds."""
        job = self.job("finetune", arch=self.settings.encoder, model_name=TEACHER, **given)
        self._run("teacher", job, lambda: finetune(job.settings()), limit)

    def augment(self, limit: float, variants: int) -> None:
        """Write variants of the train rows. Raises OutOfTime after `limit` seconds."""
        about = {"augment": "tinybert", "augmented": AUGMENTED, "variants": variants}
        glove = {"glove": self.settings.glove} if self.settings.glove else {}
        job = self.job("preprocess", **about, **glove)
        self._run("augment", job, lambda: preprocess(job.settings()), limit)

    def logits(self, limit: float, rows: str) -> None:
        """Write the teacher's logits. Raises OutOfTime after `limit` seconds."""
        job = self.job("preprocess", generate_loss=(rows,), augmented=AUGMENTED, model_name=TEACHER)
        self._run(f"logits of {rows}", job, lambda: preprocess(job.settings()), limit)

    def compress(self, stage: str, limit: float | None, **given: Any) -> Path:
        """Distil or quantize a student. Returns the last model's folder. Raises OutOfTime after `limit` seconds."""
        job = self.job("compress", **given)
        return self._run(stage, job, lambda: compress(job.settings())[-1], limit)

    def evaluate(self, name: str) -> list[Row]:
        """Score a model on the test rows."""
        job = self.job("evaluate", model_name=name)
        return self._run("evaluate", job, lambda: evaluate(job.settings()), None)

    def _run(self, stage: str, job: Job, work: Callable[[], Any], limit: float | None) -> Any:
        shown = [f"{key}={value}" for key, value in job.given.items() if key not in _NOT_SHOWN]
        say(f"[{self.clock.used:.0f} s] {' '.join([job.kind, *shown])}")
        started = time.perf_counter()
        try:
            if limit is None:
                return work()
            with time_limit(max(1.0, limit)):
                return work()
        except OutOfTime:
            say(f"{stage}: stopped after {time.perf_counter() - started:.0f} s")
            raise
        finally:
            self._save(job, stage, time.perf_counter() - started)

    def _save(self, job: Job, stage: str, seconds: float) -> None:
        done, record = self.done, job.as_record()
        jobs = done.jobs if record in done.jobs else (*done.jobs, record)
        total = round(done.seconds.get(stage, 0.0) + seconds, 2)
        self.state.save("stages", Done(jobs=jobs, seconds={**done.seconds, stage: total}))
