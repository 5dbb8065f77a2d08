"""Chains: jobs in order, from a YAML file or the command line, recorded, resumable and reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pydantic

from common.config import Settings, build, load_with_base, split_flags, underscored
from common.errors import UserError
from common.store.workspace import Workspace
from compression.augmentation.label_shift import recorded_labels
from compression.experiments.jobs import (
    Job,
    beside,
    check_jobs,
    check_known,
    job_class,
    known_to,
    run_jobs,
    seed_number,
    told,
    workspace_of,
)
from compression.experiments.report.record import (
    RESULTS_FILE,
    ExperimentRecord,
    check_name_is_free,
    definition_files,
    described,
    write_record,
)
from compression.experiments.report.results import write_results

OWN_FLAGS = ("--name", "--observer")
"""Flags of the experiment itself, each with a value, that no job knows."""


class ExperimentFile(Settings):
    """A YAML file of jobs in configs/experiments."""

    name: str
    """Name of the experiment's folder in the workspace."""
    title: str = ""
    """Heading of the report."""
    settings: dict[str, Any] = {}
    """Settings for every job that knows them; those of the file that `base` names lie below them."""
    seeds: tuple[str | int, ...] = ()
    """Seeds, by number or by the thesis's names: every compress job runs once with each."""
    jobs: tuple[dict[str, dict[str, Any] | None], ...] = pydantic.Field(min_length=1)
    """Jobs in order, each a name and its settings."""


@dataclasses.dataclass
class Plan:
    """A chain ready to run."""

    name: str
    title: str
    definition: str
    """File and flags it was made from; another experiment of this name has others."""
    observers: list[str]
    workspace: Workspace
    jobs: list[Job]
    files: dict[str, str]
    """Name -> text of the YAML files it was made from."""


def plan_file(path: Path, argv: Sequence[str]) -> Plan:
    """The plan of an experiment file; flags override its settings in every job that knows them.

    Raises UserError for unknown jobs, keys and flags, before anything runs.
    """
    own, argv = _own_flags(argv)
    loaded = load_with_base(path)
    if "axes" in loaded or "shared" in loaded:
        raise UserError(f"{path} is a grid of runs: python experiment.py sweep {path}")
    file = build(ExperimentFile, loaded)
    given = [(kind, beside(path, values or {})) for job in file.jobs for kind, values in job.items()]
    flags = _flags_by_job([kind for kind, _ in given], argv)
    shared = beside(path, underscored(file.settings))
    check_known(shared, [kind for kind, _ in given])
    jobs = []
    for (kind, values), override in zip(given, flags, strict=True):
        job = Job(kind, {**known_to(kind, shared), **underscored(values), **override})
        jobs += [_with_seed(job, seed) for seed in file.seeds] if kind == "compress" and file.seeds else [job]
    name = own.get("--name", [file.name])[-1]
    return _checked(name, file.title or file.name, described(path.name, *flags), own, jobs, definition_files(path))


def plan_chain(kinds: Sequence[str], argv: Sequence[str]) -> Plan:
    """The plan of jobs named on the command line; each gets those of the flags that it knows."""
    own, argv = _own_flags(argv)
    flags = _flags_by_job(kinds, argv)
    jobs = [Job(kind, given) for kind, given in zip(kinds, flags, strict=True)]
    name = own.get("--name", ["-".join(kinds)])[-1]
    return _checked(
        name, name if "--name" in own else " ".join(kinds), described(" ".join(kinds), *flags), own, jobs, {}
    )


def _flags_by_job(kinds: Sequence[str], argv: Sequence[str]) -> list[dict[str, Any]]:
    flags = split_flags([job_class(kind) for kind in kinds], argv)
    for kind, given in zip(kinds, flags, strict=True):
        if "finetune" in kinds and kind in ("evaluate", "analyze"):
            given.pop("arch", None)  # it names the teacher to make, and would refuse every student
    return flags


def _own_flags(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The experiment's own flags with their values, and the other words: the jobs' parsers must not see the former."""
    own: dict[str, list[str]] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in OWN_FLAGS:
            value = value if equals else next(words, "")
            if not value or value.startswith("--"):
                raise UserError(f"{flag} needs a value")
            own.setdefault(flag, []).append(value)
        else:
            rest.append(word)
    return own, rest


def _with_seed(job: Job, seed: str | int) -> Job:
    return Job(job.kind, {**job.given, "seed": seed_number(seed)})


def _checked(
    name: str, title: str, definition: str, own: dict[str, list[str]], jobs: list[Job], files: dict[str, str]
) -> Plan:
    plan = Plan(name, title, definition, own.get("--observer", []), workspace_of(jobs), jobs, files)
    plan.workspace.experiment(plan.name)
    check_jobs(jobs)
    return plan


def run_plan(plan: Plan) -> tuple[list[dict[str, Any]], ExperimentRecord]:
    """Run a plan's jobs in order, record them, write results.json and the report. Returns its rows and its record."""
    from common.tracking import record
    from compression.experiments.report import write_report

    folder = plan.workspace.experiment(plan.name)
    check_name_is_free(folder, plan.definition)
    jobs = tuple({"job": job.kind, **told(job.given)} for job in plan.jobs)
    known = ExperimentRecord(
        name=plan.name, title=plan.title, kind="chain", definition=plan.definition, files=plan.files, jobs=jobs
    )
    write_record(folder, known)
    settings = known.model_dump(mode="json", exclude={"files"})  # sacred takes no keys with dots
    rows, _ = record(plan.name, folder / "sacred", settings, lambda: run_jobs(plan.jobs), plan.observers)
    tasks = {job.given["task"]: None for job in plan.jobs}
    known = known.model_copy(update={"labels": recorded_labels(plan.workspace, tasks)})
    write_record(folder, known)
    write_results(folder / RESULTS_FILE, rows)
    if rows:
        write_report(folder, rows, known)
    return rows, known
