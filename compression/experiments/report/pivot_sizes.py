"""Sizes of a table's rows: of all its tasks, or SS and SP of the thesis's table 7.5, single sentences and pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from common.data.tasks import load_task
from common.errors import UserError
from compression.experiments.report.reference import QUOTED_TEACHER, QuotedFigure, quoted_points
from compression.experiments.report.results import Row, grouped
from compression.experiments.report.seed_groups import mean
from compression.experiments.report.table import Entry, Head, number_entry

ALL, SINGLE, PAIRS = "", "single", "pairs"
_NAMES = {ALL: ("P", "S"), SINGLE: ("P single", "SS"), PAIRS: ("P pairs", "SP")}
"""Kind of tasks -> how parameters and bytes are headed."""


@dataclasses.dataclass(frozen=True)
class Size:
    """Size of a row's models on the tasks of one kind; None where it is unknown or not the same in all cells.

    size: bytes, in results.json's `field`: bytes_model of a distilled student or a teacher, bytes_gzip of a pruned or
    quantized one, as the thesis reports them. ratio: how many times the teacher's weights file is larger.
    """

    parameters: float | None = None
    size: float | None = None
    field: str | None = None
    ratio: float | None = None


Sizes = Mapping[str, Size]
"""Kind of tasks -> size of a row's models."""


def kinds_of(tasks: Sequence[str], by_task: bool) -> dict[str, list[str]]:
    """Return kind -> its tasks: all in one, or single sentences and pairs where a table has columns of both."""
    if not by_task:
        return {ALL: list(tasks)}
    found = grouped(tasks, lambda task: PAIRS if _pair(task) else SINGLE)
    return {kind: found[kind] for kind in (SINGLE, PAIRS)} if len(found) == 2 else {ALL: list(tasks)}


def sizes_of(rows: Iterable[Row], kinds: Mapping[str, Sequence[str]], teachers: Sequence[Row] = ()) -> dict[str, Size]:
    """Return a row's sizes, those of several tasks as their mean. rows: of results.json; teachers: rows of theirs."""
    rows = list(rows)
    return {kind: _size([row for row in rows if row["task"] in tasks], teachers) for kind, tasks in kinds.items()}


def quoted_sizes(figures: Iterable[QuotedFigure], kinds: Mapping[str, Sequence[str]]) -> dict[str, Size]:
    """Return the thesis's sizes of a row's models; their teacher is RoBERTa-large."""
    figures, found = list(figures), {}
    for kind, tasks in kinds.items():
        own = {figure.task: figure.size_bytes for figure in figures if figure.task in tasks and figure.size_bytes}
        size = mean(own.values())
        teacher = mean(p.size_bytes for task in own for p in quoted_points(task) if p.name == QUOTED_TEACHER)
        found[kind] = Size(None, size, None, teacher / size if teacher and size else None)
    return found


def size_heads(kinds: Iterable[str], ratios: bool, quoted: bool) -> list[Head]:
    """Return the heads of `size_entries`."""
    heads = []
    for parameters, size in map(_NAMES.__getitem__, kinds):
        heads += [Head((parameters,)), Head((f"{size}, MB",))]
        heads += [Head((f"{size}, × smaller",))] if ratios else []
        if quoted:
            heads += [Head((f"{size}, MB, thesis (quoted)",), quoted=True)]
            heads += [Head((f"{size}, × smaller, thesis (quoted)",), quoted=True)]
    return heads


def size_entries(own: Sizes, thesis: Sizes, ratios: bool, quoted: bool) -> list[Entry]:
    """Return a row's sizes of each kind: parameters and MB; with `ratios`, and the thesis's with `quoted`."""
    entries = []
    for kind, each in own.items():
        entries += [number_entry(each.parameters), _megabytes(each.size)]
        entries += [_ratio(each.ratio)] if ratios else []
        if quoted:
            theirs = thesis.get(kind, Size())
            entries += [_megabytes(theirs.size), _ratio(theirs.ratio)]
    return entries


def _pair(task: str) -> bool:
    try:
        return load_task(task).pair
    except UserError:  # a task of the user's own, whose file is not here any more
        return False


def _size(rows: Sequence[Row], teachers: Sequence[Row]) -> Size:
    by_task = grouped(rows, lambda row: row["task"])
    several = any(len({row.get("parameters") for row in own}) > 1 for own in by_task.values())
    fields = {"bytes_gzip" if row.get("stage") in ("pruned", "quantized") else "bytes_model" for row in rows}
    if several or len(fields) != 1:
        return Size()
    (field,) = fields
    size = mean(row.get(field) for row in rows)
    names = {(row["task"], row.get("teacher")) for row in rows}
    whole = mean(row.get("bytes_model") for row in teachers if (row["task"], row["model"]) in names)
    ratio = whole / size if whole and size else None
    parameters = mean(mean(row.get("parameters") for row in own) for own in by_task.values())
    return Size(parameters, size, None if size is None else field, ratio)


def _megabytes(size: float | None) -> Entry:
    megabytes = None if size is None else size / 1e6
    digits = 3 if megabytes is None or megabytes < 10 else 1 if megabytes < 1000 else 0
    return Entry(number_entry(megabytes, f",.{digits}f").text, size)


def _ratio(ratio: float | None) -> Entry:
    return number_entry(ratio, ",.0f" if ratio is None or ratio >= 10 else ".1f")
