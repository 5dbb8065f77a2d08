"""Rows of several archived experiments as the families of one task: what a page of results compares."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from common.errors import UserError
from compression.experiments.report.archived import Archived
from compression.experiments.report.families import Family, Group, Row, group_rows


def merged(archives: Sequence[Archived], task: str) -> Group:
    """The families of a task in several experiments, over its test splits, teachers first.

    Of a chain of actions the last model stands for all. Where there are several test splits, a seed's score is the mean
    over them. A family that several experiments have, as they may have the same teacher, is there once. Raises
    UserError where no experiment has a test row of the task.
    """
    rows = {one.record.name: _on_test(one.rows, task) for one in archives}
    splits = list(dict.fromkeys(row["split"] for own in rows.values() for row in own))
    families: dict[Any, Family] = {}
    for name, own in rows.items():
        for family in _named(name, [family for group in _means(own, splits) for family in group.families]):
            families.setdefault(_members(family), family)
    if not families:
        raise UserError(f"no model of {task} was scored on test in {' or '.join(rows)}")
    ordered = sorted(families.values(), key=lambda family: not family.is_teacher)
    return Group(task, " and ".join(splits), tuple(ordered))


def _on_test(rows: Iterable[Row], task: str) -> list[Row]:
    return [row for row in outcomes(rows) if row["task"] == task and row["split"].startswith("test")]


def outcomes(rows: Iterable[Row]) -> list[Row]:
    """Rows without those of models that something else was made of in the same cell, or in the same chain."""
    listed = list(rows)
    names: dict[str, set[str]] = {}
    for row in listed:
        names.setdefault(_where(row), set()).add(str(row["model"]))
    return [row for row in listed if not any(name.startswith(f"{row['model']}+") for name in names[_where(row)])]


def _where(row: Row) -> str:
    return str((row["task"], row.get("cell")))


def _means(rows: Sequence[Row], splits: Sequence[str]) -> list[Group]:
    """Groups of rows whose scores are means over all of the splits, a model that lacks one left out."""
    scored: dict[str, dict[str, Row]] = {}
    for row in rows:
        scored.setdefault(str((row["model"], row["seed"], row.get("cell"))), {})[row["split"]] = row
    return group_rows(_mean(by_split, splits) for by_split in scored.values() if len(by_split) == len(splits))


def _mean(by_split: dict[str, Row], splits: Sequence[str]) -> Row:
    first = by_split[splits[0]]
    metrics = [row["metrics"] or {} for row in by_split.values()]
    known = [name for name in metrics[0] if all(name in one for one in metrics)]
    means = {name: statistics.fmean(one[name] for one in metrics) for name in known}
    return {**first, "split": " and ".join(splits), "metrics": means}


def _named(experiment: str, families: Sequence[Family]) -> Iterator[Family]:
    """The families by their cells' labels alone, with what was done to them where that would not tell them apart."""
    names = [_name(experiment, family) for family in families]
    counts = Counter(names)
    for name, family in zip(names, families, strict=True):
        suffix = "".join(str(family.rows[0]["model"]).partition("+")[1:]) if counts[name] > 1 else ""
        yield dataclasses.replace(family, name=f"{name} {suffix}".strip() if "cell" in family.rows[0] else family.name)


def _name(experiment: str, family: Family) -> str:
    """'FFN-Hash25, 4 bits'; of a grid with a single cell, the experiment's name; of a chain, the model's."""
    cell = family.rows[0].get("cell")
    if cell is None:
        return family.name
    return ", ".join(str(label) for axis, label in cell.items() if axis != "task") or experiment


def _members(family: Family) -> str:
    """What tells families of several experiments apart: their models, seeds and scores."""
    return str(sorted((row["model"], str(row["seed"]), str(row["metrics"])) for row in family.rows))
