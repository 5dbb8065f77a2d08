"""The stages of a fit as ordinary jobs, each with a time limit."""

import contextlib
import dataclasses
import time
from typing import Any

from common.config import Settings
from common.data.tasks import Task
from common.progress import quietly
from common.stopping import OutOfTime, time_limit
from common.teachers.finetune import finetune, step_of
from common.training.loop import STATE_FILE, epochs_done
from compression.augmentation.preprocess import preprocess
from compression.distillation.distill import Distill
from compression.evaluation.evaluate import evaluate
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.state import Clock, State
from compression.experiments.jobs import Job
from compression.shrinking.chain import compress

FUNCTIONS = {"preprocess": preprocess, "finetune": finetune, "compress": compress, "evaluate": evaluate}
_STEPS = {"finetune": step_of, "compress": Distill.of}
"""Kind of job -> function from its settings to the step that trains."""
_COMMON = ("workspace", "cpu", "seed", "loadbar")


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

    def job(self, kind: str, flags: dict[str, Any]) -> Job:
        """Return a job with the common settings and these flags."""
        common = {"task": self.task.argument, **{name: getattr(self.settings, name) for name in _COMMON}}
        return Job(kind, {**common, **flags})

    def run(self, stage: str, kind: str, limit: float | None = None, **flags: Any) -> Any:
        """Run a kind of job with the common settings and these flags. Returns the result of its function.

        Raises OutOfTime after `limit` seconds.
        """
        job = self.job(kind, flags)
        started = time.perf_counter()
        try:
            with contextlib.nullcontext() if limit is None else time_limit(max(1.0, limit)), quietly():
                return FUNCTIONS[kind](job.settings())
        finally:
            done, record = self.done, job.as_record()
            jobs = done.jobs if record in done.jobs else (*done.jobs, record)
            total = round(done.seconds.get(stage, 0.0) + time.perf_counter() - started, 2)
            self.state.save("stages", Done(jobs=jobs, seconds={**done.seconds, stage: total}))

    def train(self, stage: str, kind: str, limit: float | None, flags: dict[str, Any]) -> int | None:
        """Run a training; one that takes longer than `limit` seconds ends with the best of its complete epochs.

        Returns the number of complete epochs of a training that was stopped, with 0 there is no model; None if it was
        not stopped.
        """
        try:
            self.run(stage, kind, limit, **flags)
            return None
        except OutOfTime:
            store, stopped = self.settings.paths, _STEPS[kind](self.job(kind, flags).settings())
        epochs = epochs_done(store.unfinished(stopped) / STATE_FILE)
        if epochs:
            flags = {**flags, "stop_after": epochs}
            store.continue_as(stopped, _STEPS[kind](self.job(kind, flags).settings()))
            self.run(stage, kind, None, **flags)
        return epochs
