"""What to compare with what: rows of two models, families or experiments, paired by seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from common.config import nearest
from common.data.data import read_report
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import ModelConfig
from compression.evaluation.result_cache import readable_models, saved_rows
from compression.experiments.report.seed_groups import Row, name_without_seed
from compression.experiments.report.record import RECORD_FILE, RESULTS_FILE
from compression.experiments.report.results import read_results

if TYPE_CHECKING:
    from compression.experiments.compare.compare import CompareSettings

BySeed = dict[Any, tuple[Row, Row]]
"""Seed -> rows of A and B."""


@dataclasses.dataclass(frozen=True)
class Key:
    """What two rows must share to be compared, beside the seed. cell: axes and labels; stage: empty for families."""

    task: str
    split: str
    stage: str = ""
    cell: tuple[tuple[str, str], ...] = ()


Side = dict[Key, dict[Any, Row]]
"""Rows of one side, by key and seed."""


def paired_rows(settings: CompareSettings, a: str, b: str) -> tuple[dict[Key, BySeed], list[str]]:
    """Pairs of rows of A and B, and notes of what was left out.

    Two names of experiments mean these; other names are models or families of models.
    Raises UserError as `compare` does.
    """
    experiments = [_is_experiment(settings.paths, name) for name in (a, b)]
    if all(experiments):
        sides = _experiments(settings, a, b)
    else:
        mixed = [name for name, is_one in zip((a, b), experiments, strict=True) if is_one]
        sides = _models(settings, a, b, f"; {mixed[0]} is an experiment: compare it with another one" if mixed else "")
    return _paired(sides, a, b)


def _is_experiment(paths: Workspace, name: str) -> bool:
    return (paths.experiment(name) / RECORD_FILE).exists()


def _paired(sides: tuple[Side, Side], a: str, b: str) -> tuple[dict[Key, BySeed], list[str]]:
    first, second = sides
    pairs: dict[Key, BySeed] = {}
    notes = []
    for key, rows in first.items():
        beside = second.get(key, {})
        both = {seed: (row, beside[seed]) for seed, row in rows.items() if seed in beside}
        for name, one, other in ((a, rows, beside), (b, beside, rows)):
            alone = [str(seed) for seed in one if seed not in other]
            if alone and both:
                notes.append(f"only {name} has seed {', '.join(alone)}: left out")
        if both:
            pairs[key] = both
    for name, own in ((a, first), (b, second)):
        others = [
            " ".join([*dict(key.cell).values(), key.stage, key.task, key.split]) for key in own if key not in pairs
        ]
        if others and pairs:
            cells = ", ".join(others[:3])
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            notes.append(f"only {name} has {cells}{more} with a common seed: left out")
    if not pairs:
        seeds = [sorted({str(seed) for rows in side.values() for seed in rows}) for side in sides]
        said = " and ".join(f"{name} has {', '.join(own) or 'none'}" for name, own in zip((a, b), seeds, strict=True))
        raise UserError(f"{a} and {b} have no row of the same task, split and seed to compare (seeds: {said})")
    for left, right in (pair for by_seed in pairs.values() for pair in by_seed.values()):
        if left.get("data") != right.get("data"):
            raise UserError(
                f"{left['model']} and {right['model']} were scored on other data of {left['task']}, {left['split']}: "
                "evaluate both again"
            )
    return pairs, notes


def _experiments(settings: CompareSettings, a: str, b: str) -> tuple[Side, Side]:
    """Rows of students. Rows without a cell are told apart by their family, where there are several families."""
    task = load_task(settings.task).name if settings.task else None
    found = []
    for name in (a, b):
        rows = read_results(settings.paths.experiment(name) / RESULTS_FILE)
        students = [
            row for row in rows if row["stage"] != "teacher" and row["split"] == (settings.split or row["split"])
        ]
        found.append([row for row in students if row["task"] == (task or row["task"])])
        if not found[-1]:
            wanted = " ".join(filter(None, [settings.task, settings.split]))
            raise UserError(f"experiment {name} has no scores of students{f' on {wanted}' if wanted else ''}")
    return _keyed(found[0], _several(found)), _keyed(found[1], _several(found))


def _several(sides: list[list[Row]]) -> bool:
    """Whether rows of one key are of several families."""
    families: dict[tuple[int, Key], set[str]] = {}
    for number, rows in enumerate(sides):
        for row in rows:
            families.setdefault((number, _key(row)), set()).add(name_without_seed(row))
    return any(len(names) > 1 for names in families.values())


def _keyed(rows: Iterable[Row], by_name: bool) -> Side:
    side: Side = {}
    for row in rows:
        key = _key(row)
        if by_name and not row.get("cell"):
            key = dataclasses.replace(key, cell=(("model", name_without_seed(row)),))
        side.setdefault(key, {})[row["seed"]] = row
    return side


def _key(row: Row) -> Key:
    """+q and +p+q are both the stage `quantized`: what was done after distilling is in the name."""
    _, plus, done = str(row["model"]).partition("+")
    return Key(row["task"], row["split"], plus + done or row["stage"], tuple(sorted((row.get("cell") or {}).items())))


def _models(settings: CompareSettings, a: str, b: str, hint: str) -> tuple[Side, Side]:
    """Rows of models and families. Two single models are compared whatever their seeds."""
    task, members = _members(settings, a, b, hint)
    if settings.split not in (None, *task.test_splits):
        raise UserError(f"{task.name} has no test split {settings.split!r} (it has: {', '.join(task.test_splits)})")
    seeds: list[Any] = [[config.seed for config in side] for side in members]
    single = all(len(side) == 1 for side in members) and all(
        side[0].name == name for side, name in zip(members, (a, b), strict=True)
    )
    if single and seeds[0] != seeds[1]:
        seeds = [[f"{seeds[0][0]} / {seeds[1][0]}"]] * 2
    sides: list[Side] = [{}, {}]
    for side, configs, names in zip(sides, members, seeds, strict=True):
        for config, seed in zip(configs, names, strict=True):
            for row in _scores(settings, task, config):
                side.setdefault(Key(task.name, row["split"]), {})[seed] = row
    return sides[0], sides[1]


def _scores(settings: CompareSettings, task: Task, config: ModelConfig) -> list[Row]:
    rows = saved_rows(settings.paths, task, settings.paths.model(task.models_task, config.name), config)
    if not rows:
        raise UserError(
            f"{config.name} was not evaluated as it is now, on the data of now: "
            f"run: python evaluate.py --task {task.argument} --model-name {config.name}"
        )
    return [row for row in rows if row["split"] == (settings.split or row["split"])]


def _members(settings: CompareSettings, a: str, b: str, hint: str) -> tuple[Task, list[list[ModelConfig]]]:
    """The task in which both names are, and the models they mean."""
    asked = load_task(settings.task) if settings.task else None
    models = settings.paths.root / "models"
    folders = [models / asked.models_task] if asked else sorted(models.glob("[!.]*"))
    known = {folder.name: readable_models(folder) for folder in folders}
    found = {task: [_named(configs, name) for name in (a, b)] for task, configs in known.items()}
    both = [task for task, sides in found.items() if all(sides)]
    if len(both) == 1:
        return asked or _task_of(settings.paths, both[0]), found[both[0]]
    if both:
        raise UserError(f"{a} and {b} are in several tasks: give --task ({', '.join(both)})")
    where = []
    for place, name in enumerate((a, b)):
        tasks = [task for task, sides in found.items() if sides[place]]
        where.append(f"{name} is of {', '.join(tasks)}")
        if not tasks:
            names = {known_as for configs in known.values() for config in configs for known_as in _names(config)}
            near = nearest(name, names)
            raise UserError(f"no model and no family of models {name!r} in {settings.task or 'any task'}{near}{hint}")
    raise UserError(f"models of different tasks cannot be compared: {'; '.join(where)}")


def _task_of(paths: Workspace, name: str) -> Task:
    """A task by its folder's name; one of the user's own is known by the file that its data were made from."""
    return load_task(read_report(paths, name).get("task_file") or name)


def _names(config: ModelConfig) -> tuple[str, str]:
    """A model's own name and its family's."""
    return config.name, name_without_seed({"model": config.name, "seed": config.seed})


def _named(configs: list[ModelConfig], name: str) -> list[ModelConfig]:
    """The model of that name, or else the family's members."""
    return [config for config in configs if config.name == name] or [c for c in configs if _names(c)[1] == name]
