"""Rows of several archived experiments as the seed groups of one task: the data of a page of results."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from common.errors import UserError
from compression.experiments.report.archived import Archived
from compression.experiments.report.results import Row
from compression.experiments.report.seed_groups import SeedGroup, SplitResults, group_rows, teachers_first


def merged(archives: Sequence[Archived], task: str) -> SplitResults:
    """Return the seed groups of a task in several experiments, over its test splits, teachers first.

    Of a chain of actions the last model counts. Where there are several test splits, a seed's score is the mean over
    them. A group that several experiments have, as they may have the same teacher, is there once. Raises UserError
    where no experiment has a test row of the task.
    """
    rows = {
        one.record.name: [row for row in _last(one.rows) if row["task"] == task and row["split"].startswith("test")]
        for one in archives
    }
    splits = list(dict.fromkeys(row["split"] for own in rows.values() for row in own))
    found: dict[str, SeedGroup] = {}
    for name, own in rows.items():
        for group in _renamed(name, [group for split in group_rows(_means(own, splits)) for group in split.groups]):
            scores = sorted((row["model"], str(row["seed"]), str(row["metrics"])) for row in group.rows)
            found.setdefault(str(scores), group)
    if not found:
        raise UserError(f"no model of {task} was scored on test in {' or '.join(rows)}")
    return SplitResults(task, " and ".join(splits), teachers_first(found.values()))


def _last(rows: Sequence[Row]) -> list[Row]:
    """Rows without those of models that a later action changed in the same cell, or in the same chain."""
    names: dict[str, set[str]] = {}
    for row in rows:
        names.setdefault(str((row["task"], row.get("cell"))), set()).add(str(row["model"]))
    return [
        row
        for row in rows
        if not any(name.startswith(f"{row['model']}+") for name in names[str((row["task"], row.get("cell")))])
    ]


def _means(rows: Sequence[Row], splits: Sequence[str]) -> Iterable[Row]:
    """Rows whose scores are means over all of the splits; a model that lacks one is left out."""
    scored: dict[str, dict[str, Row]] = {}
    for row in rows:
        scored.setdefault(str((row["model"], row["seed"], row.get("cell"))), {})[row["split"]] = row
    for by_split in scored.values():
        if len(by_split) == len(splits):
            metrics = [row["metrics"] or {} for row in by_split.values()]
            known = [name for name in metrics[0] if all(name in one for one in metrics)]
            means = {name: statistics.fmean(one[name] for one in metrics) for name in known}
            yield {**by_split[splits[0]], "split": " and ".join(splits), "metrics": means}


def _renamed(experiment: str, groups: Sequence[SeedGroup]) -> Iterable[SeedGroup]:
    """The groups named by their cells' labels alone ('FFN-Hash25, 4 bits'), or by the experiment in a single cell.

    Where names are the same, the suffix of the actions is added. Groups of a chain keep their names.
    """

    def name_of(group: SeedGroup) -> str:
        cell = group.rows[0].get("cell")
        if cell is None:
            return group.name
        return ", ".join(str(label) for axis, label in cell.items() if axis != "task") or experiment

    counts = Counter(map(name_of, groups))
    for group in groups:
        name = name_of(group)
        if counts[name] > 1 and "cell" in group.rows[0]:
            name = f"{name} {''.join(str(group.rows[0]['model']).partition('+')[1:])}".strip()
        yield dataclasses.replace(group, name=name)
