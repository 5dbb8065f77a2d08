"""Chains: jobs run in order, from a YAML file or the command line, checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pydantic

from common.config import Settings, build, load_with_base, split_flags, underscored
from common.data.split import PROCESSED
from common.data.tasks import load_task
from common.errors import UserError
from common.store.store import Store
from common.store.workspace import default_root
from compression.experiments.jobs import (
    JOBS,
    Job,
    Plan,
    check_jobs,
    check_known,
    job_class,
    seed_number,
    settings_for,
    with_task_path,
)
from compression.experiments.report.record import ExperimentRecord, definition_files, described


class ExperimentFile(Settings):
    """The keys that a file of jobs and a grid share."""

    name: str
    """Name of the experiment's folder in the workspace."""
    title: str = ""
    """Heading of the report."""
    settings: dict[str, Any] = {}
    """Settings for every job that has them. In a grid, those of compress.py are for the runs; task, augmented and all
    others reach the shared jobs."""
    seeds: tuple[str | int, ...] = ()
    """Seeds, by number or by the thesis's names: every compress job, or every cell of a grid, runs once with each. The
    --seed of `run` replaces them."""


class ChainFile(ExperimentFile):
    """A YAML file of jobs in configs/experiments."""

    pairs: str | None = None
    """Another experiment file, relative to this one, that is run instead if the tasks are tasks of pairs."""
    jobs: tuple[dict[str, dict[str, Any] | None], ...] = pydantic.Field(min_length=1)
    """Jobs in order, each a name and its settings."""


class ChainFlags(Settings):
    """Flags of the experiment itself, which no job has."""

    name: str | None = None
    """Name of the experiment."""
    observer: tuple[str, ...] = ()
    """Where the run is recorded in addition to files. May be repeated."""
    dry_run: bool = False
    """Print the jobs and their settings instead of running them."""


def plan_file(path: Path, argv: Sequence[str]) -> Plan:
    """Return the plan of an experiment file; flags override its settings in every job that has them.

    A file may name another one for tasks of pairs. Raises UserError for unknown jobs, keys and flags, before anything
    runs.
    """
    loaded = load_with_base(path)
    if "axes" in loaded or "shared" in loaded:
        raise UserError(f"{path} is a grid of runs: python experiment.py sweep {path}")
    file = build(ChainFile, loaded)
    in_file = [
        (kind, with_task_path(path, underscored(values or {}))) for job in file.jobs for kind, values in job.items()
    ]
    kinds = [kind for kind, _ in in_file]
    chain, flags, typed = _flags_by_job(kinds, argv)
    shared = with_task_path(path, underscored(file.settings))
    check_known(shared, kinds)
    jobs: list[Job] = []
    for (kind, values), override in zip(in_file, flags, strict=True):
        settings = {**settings_for(kind, shared), **values, **override}
        by_file = kind == "compress" and "seed" not in override
        seeds = [{"seed": seed_number(seed)} for seed in file.seeds] if by_file else []
        jobs += [Job(kind, {**settings, **seed}) for seed in seeds or [{}]]
    tasks = {str(job.flags["task"]) for job in jobs if "task" in job.flags}
    if file.pairs and tasks and all(load_task(task).pair for task in tasks):
        return plan_file(path.parent / file.pairs, argv)
    return _plan(
        chain,
        jobs,
        typed,
        name=file.name if chain.name is None else chain.name,
        title=file.title or file.name,
        definition=described(path.name, *flags),
        files=definition_files(path),
    )


def plan_chain(kinds: Sequence[str], argv: Sequence[str]) -> Plan:
    """Return the plan of stages named on the command line, in the order of what they need.

    Each job gets the flags that apply to it. preprocess prepares the splits before the teacher, and after it the
    augmented rows and, if a student learns from the teacher, its logits.
    """
    stages = {kind: job_class(kind) for kind in kinds}
    kinds = [kind for kind in JOBS if kind in stages]
    chain, flags, typed = _flags_by_job(kinds, argv)
    jobs, words = _in_order(dict(zip(kinds, flags, strict=True))), " ".join(kinds)
    name, title = ("-".join(kinds), words) if chain.name is None else (chain.name, chain.name)
    return _plan(chain, jobs, typed, name=name, title=title, definition=described(words, *flags))


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
    order = ["preprocess", *needed, "compress", "evaluate", "analyze"]
    return [jobs[kind] for kind in order if kind in jobs]


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
        if kind == "preprocess" and isinstance(names := settings.get("augmented"), list) and len(names) > 1:
            del settings["augmented"]  # several sets of rows are read, not written
    return build(ChainFlags, chain), flags, typed
