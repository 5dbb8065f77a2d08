"""The work of `experiment.py archive`: finished experiments copied out of a workspace, with the files they are of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from common.config import CONFIG_DIR, flag, load_yaml
from common.errors import UserError
from common.store.settings import WorkspaceSettings
from compression.experiments.jobs import Job, told
from compression.experiments.report.archived import read_finished, write_archive
from compression.experiments.report.record import NOT_ITS_MEANING, ExperimentRecord

EXPERIMENTS = CONFIG_DIR / "experiments"


class ArchiveSettings(WorkspaceSettings):
    """Archiving."""

    to: Path = Path("docs/results")
    """Folder of archived experiments; each is written to a folder of its own name in it, whole or not at all."""
    file: Path | None = None
    """The YAML file that the experiment was made from; unset: the one of that name below configs/experiments."""


def archive(settings: ArchiveSettings, names: Sequence[str]) -> list[Path]:
    """Archive experiments, all or none. Returns their new folders.

    Raises UserError for one that is unfinished, whose rows were changed by hand, or whose YAML file says something
    else by now.
    """
    found = [read_finished(settings.paths.experiment(name)) for name in names]
    files = [made_from(one.record, settings.file) for one in found]
    root = settings.paths.root
    return [write_archive(one, root, settings.to, own) for one, own in zip(found, files, strict=True)]


def made_from(record: ExperimentRecord, given: Path | None = None) -> list[Path]:
    """The YAML file of an experiment, and those that it builds on; none for jobs named on a command line.

    given: the file, where it is not below configs/experiments under the name that the record has. Raises UserError
    where there is none, or where none gives what is recorded.
    """
    source, *assignments = re.split(r" (?=[a-z]\w*=)", record.definition)
    if not source.endswith((".yaml", ".yml")):
        return []
    candidates = [given] if given else sorted(EXPERIMENTS.rglob(source))
    if not candidates:
        raise UserError(f"experiment {record.name}: no {source} below {EXPERIMENTS}; give its file with --file")
    for path in candidates:
        if _recorded(record) == _told_by(path, record, assignments):
            return list(_with_bases(path))
    raise UserError(
        f"experiment {record.name} was not made from {candidates[0]} as it is now; run it again, or give the file as "
        "it was with --file"
    )


def _recorded(record: ExperimentRecord) -> list[Any]:
    """What a file says of an experiment, as the record has it."""
    jobs = [_plain(job) for job in record.jobs]
    runs = [(run.cell, run.seed, _plain(run.settings)) for run in record.runs]
    return [record.title, jobs, record.axes, record.seeds, runs, record.table, record.quote]


def _told_by(path: Path, record: ExperimentRecord, assignments: Sequence[str]) -> list[Any]:
    """The same, as the file has it now, with the flags that were given then."""
    from compression.experiments.chain import plan_file
    from compression.experiments.sweep.grid import load_grid
    from compression.experiments.sweep.plan import teachers_by_name

    if record.kind == "chain":
        plan = plan_file(path, list(_flags(assignments)))
        return [plan.title, _jobs(plan.jobs), {}, (), [], None, None]
    grid = load_grid(path, assignments)
    jobs = _jobs([job for of_task in grid.shared.values() for job in of_task])
    teachers = {task: {"teacher": name} for task, name in teachers_by_name(grid).items()}
    given = [(cell, told(cell.jobs[0].given)) for cell in grid.cells]
    runs = [(cell.labels, cell.seed, _plain({**teachers.get(own["task"], {}), **own})) for cell, own in given]
    return [grid.title, jobs, grid.axes, grid.seeds, runs, grid.table, grid.quote]


def _jobs(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    return [_plain({"job": job.kind, **told(job.given)}) for job in jobs]


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that say what comes out; a task's own file by its name, since its path hangs on where one stood."""
    kept = {name: value for name, value in settings.items() if name not in NOT_ITS_MEANING}
    return {**kept, "task": Path(str(settings.get("task"))).name}


def _flags(assignments: Sequence[str]) -> Iterator[str]:
    """KEY=VALUE, as a record tells of flags, as the words of a command line."""
    for name, _, value in (word.partition("=") for word in assignments):
        if value in ("True", "False"):
            yield flag(name) if value == "True" else flag(f"no-{name}")
        else:
            yield from (flag(name), *(map(str, yaml.safe_load(value)) if value.startswith("[") else [value]))


def _with_bases(path: Path) -> Iterator[Path]:
    yield path
    if base := load_yaml(path).get("base"):
        yield path.parent / str(base)
