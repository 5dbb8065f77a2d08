"""Rows of two models, families or experiments, paired by seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from common.config import nearest
from common.data.split import read_report
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import ModelConfig
from compression.evaluation.evaluate import saved_rows
from compression.evaluation.models import readable_models
from compression.experiments.compare.comparison import CompareSettings
from compression.experiments.report.record import RECORD_FILE, RESULTS_FILE
from compression.experiments.report.results import Row, read_results
from compression.experiments.report.seed_groups import name_without_seed

BySeed = dict[Any, tuple[Row, Row]]
"""Seed -> rows of A and B."""


@dataclasses.dataclass(frozen=True)
class Key:
    """Fields that two rows share to be compared, besides the seed. cell: axes and labels; stage: '' for families."""

    task: str
    split: str
    stage: str = ""
    cell: tuple[tuple[str, str], ...] = ()


_Rows = dict[Key, dict[Any, Row]]
"""Rows of one of the two, by key and seed."""


def paired_rows(settings: CompareSettings, a: str, b: str) -> tuple[dict[Key, BySeed], list[str]]:
    """Return pairs of rows of A and B, and notes of what was left out.

    Two names of experiments mean these; other names are models or families of models.
    Raises UserError as `compare` does.
    """
    experiments = [name for name in (a, b) if (settings.paths.experiment(name) / RECORD_FILE).exists()]
    if len(experiments) == 2:
        first, second = _experiments(settings, a, b)
    else:
        hint = f"; {experiments[0]} is an experiment: compare it with another one" if experiments else ""
        first, second = _models(settings, a, b, hint)
    pairs: dict[Key, BySeed] = {}
    notes = []
    for key in [key for key in first if key in second]:
        one, other = first[key], second[key]
        if both := {seed: (row, other[seed]) for seed, row in one.items() if seed in other}:
            pairs[key] = both
            for name, own in ((a, one), (b, other)):
                if alone := [str(seed) for seed in own if seed not in both]:
                    notes.append(f"only {name} has seed {', '.join(alone)}: left out")
    if not pairs:
        seeds = [sorted({str(seed) for rows in found.values() for seed in rows}) for found in (first, second)]
        known = " and ".join(f"{name} has {', '.join(own) or 'none'}" for name, own in zip((a, b), seeds, strict=True))
        raise UserError(f"{a} and {b} have no row of the same task, split and seed to compare (seeds: {known})")
    for name, keys in ((a, first), (b, second)):
        others = [" ".join([*dict(k.cell).values(), k.stage, k.task, k.split]) for k in keys if k not in pairs]
        if others:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            notes.append(f"only {name} has {', '.join(others[:3])}{more} with a common seed: left out")
    for left, right in (pair for by_seed in pairs.values() for pair in by_seed.values()):
        if left.get("data") != right.get("data"):
            raise UserError(
                f"{left['model']} and {right['model']} were scored on other data of {left['task']}, {left['split']}: "
                "evaluate both again"
            )
    return pairs, notes


def _experiments(settings: CompareSettings, a: str, b: str) -> Iterator[_Rows]:
    """Rows of students. Rows without a cell are separated by their family, where there are several families."""
    task = load_task(settings.task).name if settings.task else None
    found: list[list[Row]] = []
    for name in (a, b):
        rows = [
            row for row in read_results(settings.paths.experiment(name) / RESULTS_FILE) if row["stage"] != "teacher"
        ]
        wanted = {"task": task, "split": settings.split}
        found.append(
            [row for row in rows if all(row[field] == (value or row[field]) for field, value in wanted.items())]
        )
        if not found[-1]:
            asked = " ".join(filter(None, [settings.task, settings.split]))
            raise UserError(f"experiment {name} has no scores of students{f' on {asked}' if asked else ''}")
    families: dict[tuple[int, Key], set[str]] = {}
    for number, rows in enumerate(found):
        for row in rows:
            families.setdefault((number, _key(row)), set()).add(name_without_seed(row))
    by_name = any(len(names) > 1 for names in families.values())
    for rows in found:
        keyed: _Rows = {}
        for row in rows:
            key = _key(row)
            if by_name and not row.get("cell"):
                key = dataclasses.replace(key, cell=(("model", name_without_seed(row)),))
            keyed.setdefault(key, {})[row["seed"]] = row
        yield keyed


def _key(row: Row) -> Key:
    """+q and +p+q are both the stage `quantized`: the actions after distilling are in the name."""
    _, plus, actions = str(row["model"]).partition("+")
    return Key(
        row["task"], row["split"], plus + actions or row["stage"], tuple(sorted((row.get("cell") or {}).items()))
    )


def _models(settings: CompareSettings, a: str, b: str, hint: str) -> Iterator[_Rows]:
    """Rows of models and families. Two single models are compared whatever their seeds."""
    task, members = _members(settings, a, b, hint)
    if settings.split not in (None, *task.test_splits):
        raise UserError(f"{task.name} has no test split {settings.split!r} (it has: {', '.join(task.test_splits)})")
    seeds: list[Any] = [[config.seed for config in configs] for configs in members]
    single = [[config.name for config in configs] for configs in members] == [[a], [b]]
    if single and seeds[0] != seeds[1]:
        seeds = [[f"{seeds[0][0]} / {seeds[1][0]}"]] * 2
    for configs, names in zip(members, seeds, strict=True):
        keyed: _Rows = {}
        for config, seed in zip(configs, names, strict=True):
            for row in _scores(settings, task, config):
                keyed.setdefault(Key(task.name, row["split"]), {})[seed] = row
        yield keyed


def _scores(settings: CompareSettings, task: Task, config: ModelConfig) -> list[Row]:
    rows = saved_rows(settings.paths, task, settings.paths.model(task.models_task, config.name), config)
    if not rows:
        raise UserError(
            f"{config.name} was not evaluated in its present form on the present data: "
            f"run: python evaluate.py --task {task.argument} --model-name {config.name}"
        )
    return [row for row in rows if row["split"] == (settings.split or row["split"])]


def _members(settings: CompareSettings, a: str, b: str, hint: str) -> tuple[Task, list[list[ModelConfig]]]:
    """The task that has both names, and the models of each name: of that very name, or else the family's members."""
    asked = load_task(settings.task) if settings.task else None
    models = settings.paths.root / "models"
    known = {
        folder.name: readable_models(folder)
        for folder in ([models / asked.models_task] if asked else sorted(models.glob("[!.]*")))
    }
    found = {
        task: [[c for c in configs if c.name == name] or [c for c in configs if _family(c) == name] for name in (a, b)]
        for task, configs in known.items()
    }
    both = [task for task, members in found.items() if all(members)]
    if len(both) == 1:
        return asked or _task_of(settings.paths, both[0]), found[both[0]]
    if both:
        raise UserError(f"{a} and {b} are in several tasks: give --task ({', '.join(both)})")
    where = []
    for place, name in enumerate((a, b)):
        tasks = [task for task, members in found.items() if members[place]]
        where.append(f"{name} is of {', '.join(tasks)}")
        if not tasks:
            names = {own for configs in known.values() for config in configs for own in (config.name, _family(config))}
            near = nearest(name, names)
            raise UserError(f"no model and no family of models {name!r} in {settings.task or 'any task'}{near}{hint}")
    raise UserError(f"models of different tasks cannot be compared: {'; '.join(where)}")


def _family(config: ModelConfig) -> str:
    return name_without_seed({"model": config.name, "seed": config.seed})


def _task_of(paths: Workspace, name: str) -> Task:
    """A task by its folder's name; one of the user's own by the file in the report of its data."""
    return load_task(read_report(paths, name).get("task_file") or name)
