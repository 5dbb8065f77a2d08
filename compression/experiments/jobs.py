"""Jobs: the stages of the other scripts, with settings built as the scripts build them. Plans: what an experiment does.

This module imports no heavy library; the functions that jobs call are in compression.experiments.sweep.work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from common.config import build, check_used, flag, further_defaults, nearest
from common.data.tasks import TASK_SUFFIXES, load_task
from common.errors import UserError
from common.seeds import NAMED_SEEDS
from common.store.settings import StageSettings
from common.store.store import Store
from common.store.workspace import Workspace, default_root
from common.teachers.settings import FinetuneSettings, GuidanceSettings
from common.teachers.settings import defaults_for as teacher_defaults
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.settings import PreprocessSettings
from compression.evaluation.settings import EvaluateSettings
from compression.experiments.report.record import ExperimentRecord, RecordedRun
from compression.shrinking.settings import Action, CompressSettings
from compression.shrinking.settings import defaults_for as student_defaults

JOBS: dict[str, type[StageSettings]] = {
    "preprocess": PreprocessSettings,
    "finetune": FinetuneSettings,
    "compress": CompressSettings,
    "evaluate": EvaluateSettings,
    "analyze": AnalyzeSettings,
}
_DEFAULTS = {"finetune": teacher_defaults, "compress": student_defaults}
"""Defaults that depend on the given settings: a RoBERTa's recipe, a student's settings file."""
_NOT_RECORDED = ("workspace", "cpu", "loadbar")


@dataclasses.dataclass(frozen=True)
class Job:
    """A job: a script's name and the settings given to it as flags, without defaults."""

    kind: str
    flags: dict[str, Any]

    @property
    def takes_models(self) -> bool:
        """Whether the job runs on every model saved so far: it names neither a model nor a published baseline."""
        return (
            self.kind in ("evaluate", "analyze")
            and "model_name" not in self.flags
            and "glue" not in str(self.flags.get("arch"))
        )

    def settings(self, **below: str) -> Any:
        """Return the settings: the class's defaults, the model's, `below` and the given ones; later ones win."""
        try:
            return build(JOBS[self.kind], self.defaults(), below, self.flags, names_are=flag)
        except UserError as error:
            raise UserError(f"{self.kind}: {error}") from error

    @property
    def makes_teacher(self) -> str | None:
        """Name of the teacher that the job fine-tunes or imports, if it does."""
        if self.kind == "finetune":
            return self.settings().name
        return self.settings().model_name if "logits_from" in self.flags else None

    def defaults(self) -> dict[str, Any]:
        """Return the defaults that depend on the given settings. Raises UserError for a setting of a wrong type."""
        return further_defaults(JOBS[self.kind], _DEFAULTS.get(self.kind, lambda flags: {}), self.flags)

    def __str__(self) -> str:
        """Return the job's name and its given settings, in one line."""
        shown = [f"{key}={value}" for key, value in self.flags.items() if key not in ("task", "workspace")]
        return " ".join([self.kind, *shown])

    def as_record(self) -> dict[str, Any]:
        """Return the job in the form of records and reports."""
        return {"job": self.kind, **recorded_settings(self.flags)}


def job_class(kind: str) -> type[StageSettings]:
    """Return the settings class of a kind of job. Raises UserError for an unknown kind."""
    if kind not in JOBS:
        raise UserError(f"unknown job {kind!r}{nearest(kind, ['run', *JOBS])} (jobs: {', '.join(JOBS)}; or: run FILE)")
    return JOBS[kind]


def settings_for(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the common settings that apply to a kind of job.

    Settings of the training data and loss (a teacher, alpha, a loss, augmented rows) apply to students only; a
    finetune job has its own.
    """
    names = set(job_class(kind).model_fields)
    if kind == "finetune":
        names -= {"teacher", *GuidanceSettings.model_fields}
    return {key: value for key, value in settings.items() if key in names}


def check_known(settings: Iterable[str], kinds: Iterable[str]) -> None:
    """Raise UserError for a setting that none of these kinds of job has."""
    known = {field for kind in kinds for field in job_class(kind).model_fields}
    for key in settings:
        if key not in known:
            raise UserError(f"settings: no job has a setting {key!r}{nearest(key, known)}")


def check_jobs(jobs: Iterable[Job], typed: Iterable[str] = ()) -> None:
    """Build every job's settings once, so that a typing error in the last job surfaces before the first one runs.

    typed: settings that the user typed. Raises UserError for a setting that has no effect on any of the jobs.
    """
    check_used(typed, [job.settings(**{"model_name": "?"} if job.takes_models else {}) for job in jobs])


def seed_number(seed: str | int) -> int:
    """Return a seed given by number or by its name in the thesis. Raises UserError for an unknown name."""
    if str(seed) in NAMED_SEEDS:
        return NAMED_SEEDS[str(seed)]
    if not str(seed).isdecimal() or int(seed) >= 2**63:
        raise UserError(f"unknown seed {seed!r}{nearest(str(seed), NAMED_SEEDS)}")
    return int(seed)


def with_task_path(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values, with a task's YAML file in the folder of the experiment's file replaced by its path."""
    task = str(values.get("task"))
    path = file.parent / task
    return {**values, "task": str(path)} if task.endswith((".yaml", ".yml")) and path.exists() else values


def recorded_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON and sacred can store them: without the workspace, the device and progress bars.

    The path of a task's file in the workspace is relative to it.
    """
    plain = to_jsonable_python(settings, fallback=str)
    recorded = {key: value for key, value in plain.items() if key not in _NOT_RECORDED}
    if str(recorded.get("task")).endswith(TASK_SUFFIXES):
        file = Workspace(settings.get("workspace", default_root())).relative(recorded["task"])
        recorded["task"] = recorded["task"] if Path(file).is_absolute() else file
    return recorded


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run: one cell of a grid with one seed. flags: its settings, without defaults; chains: see GridFile."""

    labels: dict[str, str]
    seed: int
    flags: dict[str, Any]
    chains: tuple[tuple[Action, ...], ...]

    @property
    def jobs(self) -> list[Job]:
        """The run's compress jobs, one per chain."""
        chains = [{"compression_actions": chain} for chain in self.chains] or [{}]
        return [Job("compress", {**self.flags, **chain}) for chain in chains]

    def as_record(self, identity: str | None = None) -> RecordedRun:
        """Return the run in the form of experiment.json. identity: None before its inputs exist."""
        return RecordedRun(id=identity, cell=self.labels, seed=self.seed, settings=recorded_settings(self.flags))


@dataclasses.dataclass(frozen=True)
class Plan:
    """An experiment ready to run: jobs, and then the runs of a grid; a chain has only jobs.

    record: its description before anything has run. shared: task -> jobs to run before the task's runs; a chain's jobs
    are in one list. timing: settings of evaluate for timing the runs' models; empty if they are not timed. threads: of
    a run.
    """

    record: ExperimentRecord
    workspace: Store
    shared: dict[str, list[Job]]
    cells: tuple[Cell, ...] = ()
    timing: dict[str, Any] = dataclasses.field(default_factory=dict)
    observers: Sequence[str] = ()
    threads: int = 1
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.workspace.experiment(self.name)  # raises UserError for a name that is not one word

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.record.name

    @property
    def jobs(self) -> list[Job]:
        """The jobs that come first."""
        return [job for jobs in self.shared.values() for job in jobs]

    @property
    def tasks(self) -> list[str]:
        """The tasks, as settings name them."""
        return list(dict.fromkeys(part.flags["task"] for part in (*self.jobs, *self.cells)))

    @property
    def augmented(self) -> tuple[str, ...]:
        """Names of the augmented rows: of those that runs learn from, else of those that jobs name or write."""
        learned = [name for cell in self.cells for name in cell.jobs[0].settings().augmented]
        preprocess = [job for job in self.jobs if job.kind == "preprocess"]
        written = [job.settings().augmented for job in preprocess if {"augmented", "augment"} & job.flags.keys()]
        return tuple(dict.fromkeys(learned or written or ["tinybert"]))

    def __str__(self) -> str:
        """Return the tasks and the jobs, one per line."""
        tasks = dict.fromkeys(load_task(task).name for task in self.tasks)
        return "\n".join([f"{self.name}, {', '.join(tasks)}", *map(str, self.jobs)])


def teacher_of(jobs: Iterable[Job]) -> str | None:
    """Return the name of the teacher that jobs fine-tune or import last."""
    names = [name for job in jobs if (name := job.makes_teacher)]
    return names[-1] if names else None
