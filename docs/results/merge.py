"""The seed groups of a task in several archived experiments together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from common.errors import UserError
from compression.experiments.report.results import (
    Row,
    SeedGroup,
    SplitResults,
    group_rows,
    grouped,
    mean_over_splits,
    split_results,
    stage_label,
)


def merged(experiments: Mapping[str, Sequence[Row]], task: str) -> SplitResults:
    """Return the seed groups of a task in several experiments, by name, over its test splits, teachers first.

    Only the last model of a chain of actions is included. If there are several test splits, a seed's score is the mean
    over them. A group shared by several experiments, such as their teacher, is included once. Raises UserError if no
    experiment has a test row of the task.
    """
    rows = {
        name: [row for row in _last_models(of_experiment) if row["task"] == task and row["split"].startswith("test")]
        for name, of_experiment in experiments.items()
    }
    splits = list(dict.fromkeys(row["split"] for of_experiment in rows.values() for row in of_experiment))
    groups: dict[str, SeedGroup] = {}
    for experiment, of_experiment in rows.items():
        models = grouped(of_experiment, lambda row: str((row["model"], row["seed"], row.get("cell"))))
        means = [row for model in models.values() if (row := mean_over_splits(model, splits))]
        for group in _renamed(experiment, [group for results in group_rows(means) for group in results.groups]):
            scores = sorted((row["model"], str(row["seed"]), str(row["metrics"])) for row in group.rows)
            groups.setdefault(str(scores), group)
    if not groups:
        raise UserError(f"no model of {task} was scored on test in {' or '.join(rows)}")
    return split_results(task, " and ".join(splits), groups.values())


def _last_models(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, without those of models from which others in the same cell or chain were built."""

    def place(row: Row) -> str:
        return str((row["task"], row.get("cell")))

    used = {(place(row), parent) for row in rows for parent in row.get("made_from", ())}
    return [row for row in rows if (place(row), row["config_hash"]) not in used]


def _renamed(experiment: str, groups: Sequence[SeedGroup]) -> Iterable[SeedGroup]:
    """Yield the groups renamed to their cells' labels ('FFN-Hash25, 4 bits'), or to the experiment for a single cell.

    If names are equal, the suffix of the actions is added. Groups of a chain keep their names.
    """

    def name_of(group: SeedGroup) -> str:
        cell = group.first.get("cell")
        if cell is None:
            return group.name
        return ", ".join(str(label) for axis, label in cell.items() if axis != "task") or experiment

    counts = Counter(map(name_of, groups))
    for group in groups:
        name = name_of(group)
        if counts[name] > 1 and group.first.get("cell") is not None:
            name = f"{name} {stage_label(group.first)}".removesuffix(" distilled")
        yield dataclasses.replace(group, name=name)
