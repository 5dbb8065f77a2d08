"""Jobs: the stages of the other scripts, with settings built as the scripts build them. Plans: what an experiment does.

A plan of jobs comes from a YAML file or the command line, and is checked before anything runs; those of grids are in
compression.experiments.sweep.grid. This module imports no heavy library; sweep.work has the functions that jobs call.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic_core import to_jsonable_python

from common import installed
from common.config import (
    Settings,
    build,
    check_used,
    flag,
    further_defaults,
    load_with_base,
    nearest,
    split_flags,
    underscored,
)
from common.data.split import PROCESSED
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
from compression.experiments.report.record import ExperimentRecord, RecordedRun, definition_files, definition_of
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
        names_one = "model_name" in self.flags or "glue" in str(self.flags.get("arch"))
        return self.kind in ("evaluate", "analyze") and not names_one

    def settings(self, **below: str | None) -> Any:
        """Return the settings: the class's defaults, the model's, `below` unless None, and the given ones."""
        known = {name: value for name, value in below.items() if value is not None}
        try:
            return build(JOBS[self.kind], self.defaults(), known, self.flags, names_are=flag)
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
    check_used(typed, [job.settings(model_name="?" if job.takes_models else None) for job in jobs])


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
    return {**values, "task": str(path)} if task.endswith(TASK_SUFFIXES) and path.exists() else values


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


def _as_settings(value: Any) -> Any:
    if value is None:
        return {}
    return underscored(value) if isinstance(value, dict) else value


Values = Annotated[dict[str, Any], pydantic.BeforeValidator(_as_settings)]
"""Type of settings in a file: their names may have dashes, and nothing stands for none."""


class ExperimentFile(Settings):
    """The keys that a file of jobs and a grid share."""

    name: str
    """Name of the experiment's folder in the workspace."""
    title: str = ""
    """Heading of the report."""
    settings: Values = {}
    """Settings for every job that has them. In a grid, those of compress.py are for the runs; task, augmented and all
    others reach the shared jobs."""
    seeds: tuple[str | int, ...] = ()
    """Seeds, by number or by the thesis's names: every compress job, or every cell of a grid, runs once with each. The
    --seed of `run` replaces them."""


class ChainFile(ExperimentFile):
    """A YAML file of jobs in configs/experiments."""

    pairs: str | None = None
    """Another experiment file, relative to this one, that is run instead if the tasks are tasks of pairs."""
    jobs: tuple[dict[str, Values], ...] = pydantic.Field(min_length=1)
    """Jobs in order, each a name and its settings."""


class ChainFlags(Settings):
    """Flags of the experiment itself, which no job has."""

    name: str | None = None
    """Name of the experiment."""
    observer: tuple[str, ...] = ()
    """Where the run is recorded in addition to files. May be repeated."""
    dry_run: bool = False
    """Print the jobs and their settings instead of running them."""


def plan_file(path: Path, argv: Sequence[str], above: tuple[Path, ...] = ()) -> Plan:
    """Return the plan of an experiment file; flags override its settings in every job that has them.

    A file may name another one for tasks of pairs. above: the resolved paths of the files that name this one so. Raises
    UserError for unknown jobs, keys and flags, before anything runs.
    """
    if path.resolve() in above:
        raise UserError(f"{path}: this file is named as its own `pairs`")
    loaded = load_with_base(path)
    if "axes" in loaded or "shared" in loaded:
        raise UserError(f"{path} is a grid of runs: {installed.typed('experiment')} sweep {path}")
    file = build(ChainFile, loaded)
    in_file = [(kind, with_task_path(path, values)) for job in file.jobs for kind, values in job.items()]
    kinds = [kind for kind, _ in in_file]
    if not kinds:
        raise UserError(f"{path}: jobs: none has a name (jobs: {', '.join(JOBS)})")
    chain, flags, typed = _flags_by_job(kinds, argv)
    shared = with_task_path(path, file.settings)
    check_known(shared, kinds)
    jobs: list[Job] = []
    for (kind, values), override in zip(in_file, flags, strict=True):
        settings = {**settings_for(kind, shared), **values, **override}
        by_file = kind == "compress" and "seed" not in override
        seeds = [{"seed": seed_number(seed)} for seed in file.seeds] if by_file else []
        jobs += [Job(kind, {**settings, **seed}) for seed in seeds or [{}]]
    tasks = {str(job.flags["task"]) for job in jobs if "task" in job.flags}
    if file.pairs and tasks and all(load_task(task).pair for task in tasks):
        return plan_file(path.parent / file.pairs, argv, (*above, path.resolve()))
    name = file.name if chain.name is None else chain.name
    title = file.title or file.name
    definition = definition_of(path.name, *flags)
    return _plan(chain, jobs, typed, name=name, title=title, definition=definition, files=definition_files(path))


def plan_chain(kinds: Sequence[str], argv: Sequence[str]) -> Plan:
    """Return the plan of stages named on the command line, in the order of what they need.

    Each job gets the flags that apply to it. preprocess prepares the splits before the teacher, and after it the
    augmented rows and, if a student learns from the teacher, its logits.
    """
    stages = {kind: job_class(kind) for kind in kinds}
    kinds = [kind for kind in JOBS if kind in stages]
    chain, flags, typed = _flags_by_job(kinds, argv)
    jobs = _in_order(dict(zip(kinds, flags, strict=True)))
    words = " ".join(kinds)
    name = "-".join(kinds) if chain.name is None else chain.name
    title = words if chain.name is None else chain.name
    return _plan(chain, jobs, typed, name=name, title=title, definition=definition_of(words, *flags))


def _in_order(flags: dict[str, dict[str, Any]]) -> list[Job]:
    """Return the jobs of stages. flags: stage -> its flags."""
    jobs = {kind: Job(kind, of_kind) for kind, of_kind in flags.items()}
    if "preprocess" in jobs:
        rows = jobs["preprocess"]
        if "compress" in jobs:
            student = jobs["compress"]
            if "augmented" not in student.flags:
                augmented = {"augmented": [rows.settings(model_name="?").augmented]}
                learned = augmented if "augment" in rows.flags else {"only_original_data": True}
                student = jobs["compress"] = Job("compress", {**learned, **student.flags})
            learning = student.settings()
            if "distill" in learning.compression_actions and not learning.labels_alone:
                teacher = {"model_name": learning.teacher} if learning.teacher else {}
                logits = {"generate_loss": [PROCESSED, *learning.augmented_sets], **teacher}
                rows = Job("preprocess", {**logits, **rows.flags})
        jobs["preprocess"] = _without(rows, "augment", "generate_loss")
        if not rows.flags.keys().isdisjoint(("augment", "generate_loss")):
            jobs["rows"] = _without(rows, "glue_preprocess")
    needed = ["rows", "finetune"] if "teacher" in flags.get("finetune", {}) else ["finetune", "rows"]
    return [jobs[kind] for kind in ("preprocess", *needed, "compress", "evaluate", "analyze") if kind in jobs]


def _without(job: Job, *names: str) -> Job:
    """Return a job of preprocess without some of its actions, and without the flags that have no effect then."""
    left = Job(job.kind, {name: value for name, value in job.flags.items() if name not in names})
    unused = left.settings(model_name="?").unused()
    return Job(job.kind, {name: value for name, value in left.flags.items() if name not in unused})


def _plan(chain: ChainFlags, jobs: list[Job], typed: list[str], **described_by: Any) -> Plan:
    """Return the plan of jobs. described_by: fields of its record. Raises UserError for settings that are not valid."""
    check_jobs(jobs, typed)
    record = ExperimentRecord(kind="chain", jobs=tuple(job.as_record() for job in jobs), **described_by)
    workspace = next((job.flags["workspace"] for job in jobs if "workspace" in job.flags), default_root())
    return Plan(record, Store(workspace), {record.name: jobs}, observers=chain.observer, dry_run=chain.dry_run)


def _flags_by_job(kinds: Sequence[str], argv: Sequence[str]) -> tuple[ChainFlags, list[dict[str, Any]], list[str]]:
    """Return the experiment's own flags, the flags of each job, and the names of those that the user typed."""
    (chain, *flags), typed = split_flags([ChainFlags, *map(job_class, kinds)], argv)
    names_teacher = "finetune" in kinds or any("logits_from" in settings for settings in flags)
    for kind, settings in zip(kinds, flags, strict=True):
        if names_teacher and kind in ("compress", "evaluate", "analyze"):
            settings.pop("model_name", None)  # --model-name names the teacher
        if "finetune" in kinds and kind in ("evaluate", "analyze"):
            settings.pop("arch", None)  # --arch names the teacher to fine-tune and would exclude every student
        if "compress" in kinds and kind == "finetune":  # these are of what students learn from
            for name in settings.keys() - settings_for(kind, settings).keys():
                del settings[name]
        names = settings.get("augmented")
        if kind == "preprocess" and isinstance(names, list) and len(names) > 1:
            del settings["augmented"]  # several sets of rows are read, not written
    return build(ChainFlags, chain), flags, typed
