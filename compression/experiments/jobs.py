"""Jobs: the other scripts' work, called with settings built as the scripts build them.

A job runs the very function its script runs and hands nothing to the next one but the names of the models it saved. So
a chain by hand gives the same models, byte for byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from common.config import build, flag, nearest
from common.errors import UserError
from common.progress import say, show_bars
from common.seeds import NAMED_SEEDS
from common.store.files import read_json, write_json
from common.store.settings import StageSettings
from common.store.workspace import Workspace, default_root
from common.teachers.settings import FinetuneSettings
from common.teachers.settings import defaults_for as teacher_defaults
from compression.analysis.settings import AnalyzeSettings
from compression.augmentation.settings import PreprocessSettings
from compression.evaluation.settings import EvaluateSettings
from compression.shrinking.settings import CompressSettings
from compression.shrinking.settings import defaults_for as student_defaults

JOBS: dict[str, type[StageSettings]] = {
    "preprocess": PreprocessSettings,
    "finetune": FinetuneSettings,
    "compress": CompressSettings,
    "evaluate": EvaluateSettings,
    "analyze": AnalyzeSettings,
}
_DEFAULTS = {"finetune": teacher_defaults, "compress": student_defaults}
"""Defaults that hang on what is given: a RoBERTa's recipe, a student's settings file."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One job: a script's name and what to set, without defaults."""

    kind: str
    given: dict[str, Any]

    @property
    def takes_models(self) -> bool:
        """Whether it goes through every model made so far: it names none itself, nor a published baseline."""
        return (
            self.kind in ("evaluate", "analyze")
            and "model_name" not in self.given
            and "glue" not in str(self.given.get("arch"))
        )


def job_class(kind: str) -> type[StageSettings]:
    """Settings class of a kind of job. Raises UserError for an unknown one."""
    if kind not in JOBS:
        raise UserError(f"unknown job {kind!r}{nearest(kind, ['run', *JOBS])} (jobs: {', '.join(JOBS)}; or: run FILE)")
    return JOBS[kind]


def known_to(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that a kind of job knows."""
    return {key: value for key, value in settings.items() if key in job_class(kind).model_fields}


def check_known(settings: Iterable[str], kinds: Iterable[str]) -> None:
    """Raises UserError for a setting that none of these kinds of job knows."""
    known = {field for kind in kinds for field in job_class(kind).model_fields}
    for key in settings:
        if key not in known:
            raise UserError(f"settings: no job knows {key!r}{nearest(key, known)}")


def job_settings(job: Job, below: dict[str, Any]) -> Any:
    """A job's settings: the class's defaults, the model's, then `below`, then what is given."""
    defaults = _DEFAULTS.get(job.kind, lambda given: {})(job.given)
    try:
        return build(JOBS[job.kind], defaults, below, job.given, names_are=flag)
    except UserError as error:
        raise UserError(f"{job.kind}: {error}") from error


def check_jobs(jobs: Iterable[Job]) -> None:
    """Build every job's settings once, so that the last job's typing error does not surface after an hour."""
    for job in jobs:
        job_settings(job, {"model_name": "?"} if job.takes_models else {})


def workspace_of(jobs: Iterable[Job]) -> Workspace:
    """The workspace that the jobs name, or the default one."""
    return Workspace(next((job.given["workspace"] for job in jobs if "workspace" in job.given), default_root()))


def seed_number(seed: str | int) -> int:
    """A seed by number or by the thesis's name for it. Raises UserError for another name."""
    if str(seed) in NAMED_SEEDS:
        return NAMED_SEEDS[str(seed)]
    if not str(seed).isdecimal() or int(seed) >= 2**63:
        raise UserError(f"unknown seed {seed!r}{nearest(str(seed), NAMED_SEEDS)}")
    return int(seed)


def beside(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The values, with a task's YAML file that lies beside an experiment's by its path; else as they are."""
    task = str(values.get("task"))
    path = file.parent / task
    return {**values, "task": str(path)} if task.endswith((".yaml", ".yml")) and path.exists() else values


@dataclasses.dataclass
class Made:
    """Names of the models that jobs have made so far, and of the teacher among them: the last one fine-tuned."""

    models: list[str] = dataclasses.field(default_factory=list)
    teacher: str | None = None

    def given(self, field: str) -> dict[str, str]:
        """The teacher, as a default of a job's setting."""
        return {field: self.teacher} if self.teacher else {}


def run_jobs(jobs: list[Job]) -> tuple[list[dict[str, Any]], Made]:
    """Do jobs in order. Returns the rows of their evaluations, and what they made."""
    made = Made()
    rows: list[dict[str, Any]] = []
    for number, job in enumerate(jobs, 1):
        show_bars(bool(job.given.get("loadbar", True)))
        say(f"[{number}/{len(jobs)}] {job.kind} {_shown(job)}")
        rows += _RUNNERS[job.kind](job, made)
    return rows, made


def _shown(job: Job) -> str:
    return " ".join(f"{key}={value}" for key, value in job.given.items() if key not in ("task", "workspace"))


def plain(value: Any) -> Any:
    """Settings as JSON and sacred can store them: paths as text, tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def told(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as records and reports have them: without where and how loudly it ran."""
    return {key: plain(value) for key, value in settings.items() if key not in _WHERE}


_WHERE = ("workspace", "cpu", "loadbar")


def _preprocess(job: Job, made: Made) -> list[dict[str, Any]]:
    from compression.augmentation.preprocess import preprocess

    preprocess(job_settings(job, made.given("model_name")))
    return []


def _finetune(job: Job, made: Made) -> list[dict[str, Any]]:
    from common.teachers.finetune import finetune

    made.teacher = finetune(job_settings(job, {})).name
    made.models.append(made.teacher)
    return []


def _compress(job: Job, made: Made) -> list[dict[str, Any]]:
    from compression.shrinking.chain import compress

    settings = job_settings(job, made.given("teacher"))
    folders = compress(settings)
    if "pretrain" not in settings.compression_actions:  # what that makes is no model of any task
        made.models += [folder.name for folder in folders]
    return []


def _evaluate(job: Job, made: Made) -> list[dict[str, Any]]:
    """Score the model the job names, or every model made so far in this experiment."""
    from compression.evaluation.evaluate import evaluate

    rows: list[dict[str, Any]] = []
    for settings in _for_each_model(job, made):
        rows += evaluate(settings)
    return rows


def _for_each_model(job: Job, made: Made) -> list[Any]:
    if not job.takes_models:
        return [job_settings(job, {})]
    return [job_settings(job, {"model_name": name}) for name in made.models]


def _analyze(job: Job, made: Made) -> list[dict[str, Any]]:
    """Analyse the model the job names, or every model made so far; what is up to date is left as it is."""
    from common.data.tasks import load_task
    from common.training.models import find_model
    from compression.analysis.analyze import analyze, picture_folder

    for settings in _for_each_model(job, made):
        name, made_from = settings.arch, [plain(job.given)]
        if settings.model_name:
            _, config = find_model(settings.paths, load_task(settings.task), settings.model_name)
            name, made_from = config.name, [config.key, plain(job.given)]
        record_file = picture_folder(settings, name) / "analysis.json"
        if settings.force or not record_file.exists() or read_json(record_file).get("made_from") != made_from:
            write_json(record_file, {**analyze(settings), "made_from": made_from})
    return []


_RUNNERS: dict[str, Callable[[Job, Made], list[dict[str, Any]]]] = {
    "preprocess": _preprocess,
    "finetune": _finetune,
    "compress": _compress,
    "evaluate": _evaluate,
    "analyze": _analyze,
}
