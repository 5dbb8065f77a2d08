"""Grids: turn the axes, fixed settings, rules and seeds of a file into cells and the settings of their runs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common.config import underscored
from common.data.tasks import load_task
from common.errors import UserError
from common.seeds import DEFAULT_SEED
from common.store.settings import StageSettings
from common.store.store import Store
from common.store.workspace import default_root
from common.teachers.settings import FinetuneSettings
from compression.distillation.settings import RowsSettings
from compression.experiments.jobs import (
    Cell,
    Job,
    Plan,
    check_jobs,
    check_known,
    recorded_settings,
    seed_number,
    settings_for,
    with_task_path,
)
from compression.experiments.report.record import ExperimentRecord, definition_files, described
from compression.experiments.sweep.grid_file import (
    RUN_FIELDS,
    GridFile,
    Rule,
    label_of,
    narrowed,
    parse_assignments,
    read_grid_file,
)
from compression.experiments.sweep.settings import SweepSettings
from compression.shrinking.settings import CompressSettings

TIMING = ("time", "runtime", "watts")
"""Settings of evaluate that also apply to runs: whether models are timed, by which runtime, at which power."""


def load_grid(
    path: Path, assignments: Sequence[str] = (), flags: dict[str, Any] | None = None, name: str | None = None
) -> Plan:
    """Return the plan of a grid's file.

    assignments: KEY=VALUE strings; each fixes a setting, or replaces the values of an axis or of `seeds`. flags:
    settings of every job and run. name: of the experiment, by default the file's. Raises UserError, before anything
    runs, for an unknown key, an axis that is not a setting, and a cell with invalid settings.
    """
    file = read_grid_file(path)
    assigned = parse_assignments(assignments)
    file, chosen = narrowed(file, assigned)
    overrides = {**chosen, **(flags or {})}
    fixed = with_task_path(path, {**underscored(file.settings), **overrides})
    kinds = [*(kind for job in file.shared for kind in job), "compress"]
    check_known([setting for setting in fixed if setting not in TIMING], kinds)
    seeds = tuple(dict.fromkeys(map(seed_number, file.seeds))) or (DEFAULT_SEED,)
    cells = tuple(_cells(file, seeds, fixed, overrides, path))
    if file.axes and not cells:
        raise UserError("rules: every cell of the grid is skipped")
    tasks = [cell.flags["task"] for cell in cells] or _tasks(fixed)
    shared = {
        task: list(_shared_jobs(file, seeds, {**fixed, "task": task}, overrides, path)) for task in dict.fromkeys(tasks)
    }
    one_seed = [job for cell in cells if cell.seed == seeds[0] for job in cell.jobs] if chosen else []
    timing = {setting: fixed[setting] for setting in TIMING if setting in fixed}
    evaluated = [Job("evaluate", {**timing, "task": tasks[0]})] if timing else []
    check_jobs([*itertools.chain.from_iterable(shared.values()), *one_seed, *evaluated], chosen)
    record = ExperimentRecord(
        name=name or file.name,
        title=file.title or file.name,
        kind="sweep",
        definition=described(path.name, assigned),
        files=definition_files(path),
        jobs=tuple(job.as_record() for jobs in shared.values() for job in jobs),
        settings=recorded_settings(fixed),
        axes={axis: tuple(map(label_of, values)) for axis, values in file.axes.items()},
        seeds=seeds,
        runs=tuple(cell.as_record() for cell in cells),
        table=file.table,
        quote=file.quote,
    )
    return Plan(
        record=record,
        workspace=Store(fixed.get("workspace", default_root())),
        shared=shared,
        augmented=RowsSettings(**{key: value for key, value in fixed.items() if key == "augmented"}).augmented,
        cells=cells,
        timing=timing if fixed.get("time") else {},
    )


def load_sweep(path: Path, settings: SweepSettings) -> Plan:
    """Return the plan of a grid's file with the settings of a sweep."""
    plan = load_grid(path, settings.set_, settings.flags, settings.name)
    return dataclasses.replace(plan, workspace=settings.paths, observers=settings.observer, threads=settings.threads)


def _cells(
    file: GridFile, seeds: Sequence[int], fixed: dict[str, Any], overrides: dict[str, Any], path: Path
) -> Iterator[Cell]:
    """Yield every cell with every seed, without the cells that rules skip."""
    if not file.axes:
        return
    by_label = [
        values if isinstance(values, dict) else {label_of(value): {axis: value} for value in values}
        for axis, values in file.axes.items()
    ]
    for combination in itertools.product(*(choices.items() for choices in by_label)):
        labels = {axis: str(label) for axis, (label, _) in zip(file.axes, combination, strict=True)}
        flags = settings_for("compress", fixed)
        for _, settings in combination:
            flags |= underscored(settings or {})
        flags = _with_rules(file.rules, labels, flags)
        if flags is None:
            continue
        flags = with_task_path(path, {**flags, **settings_for("compress", overrides)})
        _tasks(flags)
        cell = Cell(labels, seeds[0], flags, file.chains)
        try:
            check_jobs(cell.jobs)
        except UserError as error:
            words = ", ".join(f"{axis} {label}" for axis, label in labels.items())
            raise UserError(f"cell {words}: {str(error).removeprefix('compress: ')}") from error
        for seed in seeds:
            yield dataclasses.replace(cell, seed=seed, flags={**flags, "seed": seed})


def _with_rules(rules: Sequence[Rule], labels: dict[str, str], flags: dict[str, Any]) -> dict[str, Any] | None:
    """Return the settings after applying all matching rules, or None if a rule skips the cell."""
    for rule in rules:
        if all(_matches(_value(key, labels, flags), values) for key, values in rule.when.items()):
            if rule.skip:
                return None
            flags = {**flags, **underscored(rule.set)}
    return flags


def _value(key: str, labels: dict[str, str], flags: dict[str, Any]) -> Any:
    """Return an axis's label, or the value of a setting: as given, or the default."""
    if key in labels or key in flags:
        return labels.get(key, flags.get(key))
    defaults = Job("compress", flags).defaults()
    return defaults.get(key, CompressSettings.model_fields[key].get_default(call_default_factory=True))


def _matches(value: Any, options: Any) -> bool:
    return value is not None and label_of(value) in map(label_of, options if isinstance(options, list) else [options])


def _tasks(settings: dict[str, Any]) -> list[str]:
    """Return the tasks that the settings name. Raises UserError if there is none."""
    if "task" not in settings:
        raise UserError("settings: no task is given; set one in the file, or with --set task=NAME")
    return settings["task"] if isinstance(settings["task"], list) else [settings["task"]]


def _shared_jobs(
    file: GridFile, seeds: Sequence[int], fixed: dict[str, Any], overrides: dict[str, Any], path: Path
) -> Iterator[Job]:
    for job in file.shared:
        for kind, values in job.items():
            settings = with_task_path(path, underscored(values or {}))
            if not _is_for(fixed["task"], settings.pop("for_tasks", None)):
                continue
            for flags in _teachers_by_seed(settings, seeds) if kind == "finetune" else [settings]:
                merged = {**_for_shared(kind, fixed), **flags, **_for_shared(kind, overrides)}
                yield Job(kind, {**merged, "task": fixed["task"]})


def _is_for(task: str, tasks: Any) -> bool:
    """Return whether a job's `for_tasks` contains a task or is unset. Raises UserError if it is not a list of tasks."""
    if not isinstance(tasks, list | None):
        raise UserError(f"for_tasks: {tasks!r} is not a list of tasks")
    return tasks is None or load_task(task).name in [load_task(name).name for name in tasks]


def _teachers_by_seed(settings: dict[str, Any], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return the settings of a teacher; with `each_seed`, of one teacher per seed of the grid, named after the seed."""
    settings = dict(settings)
    if not settings.pop("each_seed", False):
        return [settings]
    name = settings.get("model_name") or Path(settings.get("arch", FinetuneSettings.model_fields["arch"].default)).name
    return [{**settings, "seed": seed, "model_name": f"{name}-s{seed}"} for seed in seeds]


def _for_shared(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that apply to a shared job; a batch size or learning rate applies to runs, not the teacher.

    The split that chooses weights applies to both, and so does a single name of augmented rows, since some jobs write
    these rows and others read them. Several names apply to runs only; shared jobs then name rows after their method or
    by their own settings.
    """
    of_runs = RUN_FIELDS - {*StageSettings.model_fields, "augmented", "select_on"}
    if isinstance(settings.get("augmented"), list | tuple):
        of_runs = of_runs | {"augmented"}
    if kind in ("evaluate", "analyze"):
        of_runs = of_runs | {"arch"}  # --arch names the teacher to fine-tune and would exclude the fine-tuned one
    return {key: value for key, value in settings_for(kind, settings).items() if key not in of_runs}
