"""Experiments: a chain of the other scripts' jobs, recorded, resumable and reported.

A job runs the very function its script runs, with settings built in the same way, and hands nothing to the next one but
the names of the models it saved. So a chain by hand gives the same models, byte for byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pydantic

from common.cli import StageSettings
from common.config import Settings, build, flag, load_yaml, nearest, split_flags, underscored
from common.errors import UserError
from common.progress import say, show_bars
from common.seeds import NAMED_SEEDS
from common.teachers.settings import FinetuneSettings
from common.teachers.settings import defaults_for as teacher_defaults
from common.workspace import Workspace, default_root, read_json, write_json
from compression.analyze import AnalyzeSettings
from compression.evaluate import EvaluateSettings
from compression.preprocess import PreprocessSettings
from compression.settings import CompressSettings
from compression.settings import defaults_for as student_defaults

JOBS: dict[str, type[StageSettings]] = {
    "preprocess": PreprocessSettings,
    "finetune": FinetuneSettings,
    "compress": CompressSettings,
    "evaluate": EvaluateSettings,
    "analyze": AnalyzeSettings,
}
_DEFAULTS = {"finetune": teacher_defaults, "compress": student_defaults}
"""Defaults that hang on what is given: a RoBERTa's recipe, a student's settings file."""


class ExperimentFile(Settings):
    """A YAML file in configs/experiments."""

    name: str
    """Name of the experiment's folder in the workspace."""
    title: str = ""
    """Heading of the report."""
    settings: dict[str, Any] = {}
    """Settings for every job that knows them."""
    seeds: tuple[str | int, ...] = ()
    """Seeds, by number or by the thesis's names: every compress job runs once with each."""
    jobs: tuple[dict[str, dict[str, Any] | None], ...] = pydantic.Field(min_length=1)
    """Jobs in order, each a name and its settings."""


@dataclasses.dataclass
class Job:
    """One job of a plan: a script's name and what to set, without defaults."""

    kind: str
    given: dict[str, Any]


@dataclasses.dataclass
class Plan:
    """An experiment ready to run."""

    name: str
    title: str
    workspace: Workspace
    jobs: list[Job]


def plan_file(path: Path, argv: Sequence[str]) -> Plan:
    """The plan of an experiment file; flags override its settings in every job that knows them.

    Raises UserError for unknown jobs, keys and flags, before anything runs.
    """
    name, argv = _take_name(argv)
    file = build(ExperimentFile, load_yaml(path))
    given = [(kind, _beside(path, values or {})) for job in file.jobs for kind, values in job.items()]
    flags = _flags_by_job([kind for kind, _ in given], argv)
    shared = _beside(path, underscored(file.settings))
    _check_shared(shared, [kind for kind, _ in given])
    jobs = []
    for (kind, values), override in zip(given, flags, strict=True):
        known = {key: value for key, value in shared.items() if key in JOBS[kind].model_fields}
        job = Job(kind, {**known, **underscored(values), **override})
        jobs += [_with_seed(job, seed) for seed in file.seeds] if kind == "compress" and file.seeds else [job]
    return _checked(Plan(name or file.name, file.title or file.name, _workspace(jobs), jobs))


def _beside(experiment: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The values, with a task's YAML file that lies beside the experiment's by its path; else as they are."""
    task = str(values.get("task"))
    beside = experiment.parent / task
    return {**values, "task": str(beside)} if task.endswith((".yaml", ".yml")) and beside.exists() else values


def plan_chain(kinds: Sequence[str], argv: Sequence[str]) -> Plan:
    """The plan of jobs named on the command line; each gets those of the flags that it knows."""
    name, argv = _take_name(argv)
    flags = _flags_by_job(kinds, argv)
    jobs = [Job(kind, given) for kind, given in zip(kinds, flags, strict=True)]
    return _checked(Plan(name or "-".join(kinds), name or " ".join(kinds), _workspace(jobs), jobs))


def _flags_by_job(kinds: Sequence[str], argv: Sequence[str]) -> list[dict[str, Any]]:
    flags = split_flags([_job_class(kind) for kind in kinds], argv)
    for kind, given in zip(kinds, flags, strict=True):
        if "finetune" in kinds and kind in ("evaluate", "analyze"):
            given.pop("arch", None)  # it names the teacher to make, and would refuse every student
    return flags


def _take_name(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """--name is the experiment's own flag; the jobs' parsers must not see it."""
    words = list(argv)
    for i, word in enumerate(words):
        if word == "--name" and i + 1 < len(words):
            return words[i + 1], words[:i] + words[i + 2 :]
        if word.startswith("--name="):
            return word.removeprefix("--name="), words[:i] + words[i + 1 :]
    return None, words


def _job_class(kind: str) -> type[StageSettings]:
    if kind not in JOBS:
        raise UserError(f"unknown job {kind!r}{nearest(kind, ['run', *JOBS])} (jobs: {', '.join(JOBS)}; or: run FILE)")
    return JOBS[kind]


def _check_shared(shared: dict[str, Any], kinds: list[str]) -> None:
    known = {field for kind in kinds for field in JOBS[kind].model_fields}
    for key in shared:
        if key not in known:
            raise UserError(f"settings: no job knows {key!r}{nearest(key, known)}")


def _with_seed(job: Job, seed: str | int) -> Job:
    if isinstance(seed, str) and seed not in NAMED_SEEDS:
        raise UserError(f"unknown seed {seed!r}{nearest(seed, NAMED_SEEDS)}")
    return Job(job.kind, {**job.given, "seed": NAMED_SEEDS.get(str(seed), seed)})


def _workspace(jobs: list[Job]) -> Workspace:
    return Workspace(next((job.given["workspace"] for job in jobs if "workspace" in job.given), default_root()))


def _checked(plan: Plan) -> Plan:
    """Build every job's settings once, so that the last job's typing error does not surface after an hour."""
    plan.workspace.experiment(plan.name)
    for job in plan.jobs:
        job_settings(job, {"model_name": "?"} if _takes_models(job) else {})
    return plan


def job_settings(job: Job, below: dict[str, Any]) -> Any:
    """A job's settings: the class's defaults, the model's, then `below`, then what is given."""
    defaults = _DEFAULTS.get(job.kind, lambda given: {})(job.given)
    try:
        return build(JOBS[job.kind], defaults, below, job.given, names_are=flag)
    except UserError as error:
        raise UserError(f"{job.kind}: {error}") from error


def _takes_models(job: Job) -> bool:
    """Whether a job goes through every model made so far: it names none itself, nor a published baseline."""
    return (
        job.kind in ("evaluate", "analyze")
        and "model_name" not in job.given
        and "glue" not in str(job.given.get("arch"))
    )


def run_plan(plan: Plan) -> list[dict[str, Any]]:
    """Run a plan's jobs in order, record them, write results.json and the report. Returns the rows of results.json."""
    from common.report import write_report
    from common.tracking import record

    folder = plan.workspace.experiment(plan.name)
    described = {"title": plan.title, "jobs": [{"job": job.kind, **job.given} for job in plan.jobs]}

    def work() -> list[dict[str, Any]]:
        produced: list[str] = []
        rows: list[dict[str, Any]] = []
        for number, job in enumerate(plan.jobs, 1):
            show_bars(bool(job.given.get("loadbar", True)))
            say(f"[{number}/{len(plan.jobs)}] {job.kind} {_shown(job)}")
            rows += _RUNNERS[job.kind](job, produced)
        write_json(folder / "results.json", rows)
        if rows:
            write_report(folder, rows, plan.title, described)
        return rows

    return record(plan.name, folder / "sacred", _plain(described), work)


def _shown(job: Job) -> str:
    return " ".join(f"{key}={value}" for key, value in job.given.items() if key not in ("task", "workspace"))


def _plain(value: Any) -> Any:
    """Settings as sacred can store them: paths as text, tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _preprocess(job: Job, produced: list[str]) -> list[dict[str, Any]]:
    from compression.preprocess import preprocess

    preprocess(job_settings(job, {"model_name": produced[0]} if produced else {}))
    return []


def _finetune(job: Job, produced: list[str]) -> list[dict[str, Any]]:
    from common.teachers.finetune import finetune

    produced.append(finetune(job_settings(job, {})).name)
    return []


def _compress(job: Job, produced: list[str]) -> list[dict[str, Any]]:
    from compression.compress import compress

    produced += [folder.name for folder in compress(job_settings(job, {}))]
    return []


def _evaluate(job: Job, produced: list[str]) -> list[dict[str, Any]]:
    """Score the model the job names, or every model made so far in this experiment."""
    from compression.evaluate import evaluate, finished_rows

    rows: list[dict[str, Any]] = []
    for settings in _for_each_model(job, produced):
        rows += finished_rows(settings) or evaluate(settings)
    return rows


def _for_each_model(job: Job, produced: list[str]) -> list[Any]:
    if not _takes_models(job):
        return [job_settings(job, {})]
    return [job_settings(job, {"model_name": name}) for name in produced]


def _analyze(job: Job, produced: list[str]) -> list[dict[str, Any]]:
    """Analyse the model the job names, or every model made so far; what is up to date is left as it is."""
    from common.models import find_model
    from common.tasks import load_task
    from compression.analyze import analyze, picture_folder

    for settings in _for_each_model(job, produced):
        name, made_from = settings.arch, [_plain(job.given)]
        if settings.model_name:
            _, config = find_model(settings.paths, load_task(settings.task), settings.model_name)
            name, made_from = config.name, [config.fingerprint, _plain(job.given)]
        record_file = picture_folder(settings, name) / "analysis.json"
        if settings.force or not record_file.exists() or read_json(record_file).get("made_from") != made_from:
            write_json(record_file, {**analyze(settings), "made_from": made_from})
    return []


_RUNNERS: dict[str, Callable[[Job, list[str]], list[dict[str, Any]]]] = {
    "preprocess": _preprocess,
    "finetune": _finetune,
    "compress": _compress,
    "evaluate": _evaluate,
    "analyze": _analyze,
}
