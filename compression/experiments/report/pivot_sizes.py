"""Sizes and speeds of a table's rows: over all tasks, or for single sentences and pairs (thesis, table 7.5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from common.data.tasks import load_task
from common.errors import UserError
from compression.experiments.report.reference import QUOTED_TEACHER, QuotedFigure, quoted_points
from compression.experiments.report.results import Row, grouped
from compression.experiments.report.seed_groups import MILLISECONDS, mean, speed_of
from compression.experiments.report.speed_columns import FASTER, HEADINGS, MEASURES, ratio_entry, speed_entry
from compression.experiments.report.table import Entry, Head, number_entry

ALL, SINGLE, PAIRS = "", "single", "pairs"
_NAMES = {ALL: ("P", "S", ""), SINGLE: ("P single", "SS", " single"), PAIRS: ("P pairs", "SP", " pairs")}
"""Kind of tasks -> headings of parameters and bytes, and the suffix of the headings of speeds."""


@dataclasses.dataclass(frozen=True)
class Size:
    """Size of a row's models on the tasks of one kind; None if it is unknown or differs between cells.

    size: bytes, from `field` of results.json: bytes_model for a distilled student or a teacher, bytes_gzip for a pruned
    or quantized student, as the thesis reports them. ratio: how many times larger the teacher's weights file is.
    speeds: the known speeds, by their names in HEADINGS.
    """

    parameters: float | None = None
    size: float | None = None
    field: str | None = None
    ratio: float | None = None
    speeds: Mapping[str, float] = dataclasses.field(default_factory=dict)


Sizes = Mapping[str, Size]
"""Kind of tasks -> size of a row's models."""


def kinds_of(tasks: Sequence[str], by_task: bool) -> dict[str, list[str]]:
    """Return kind -> tasks: a single kind, or single sentences and pairs if a table has columns of both."""
    if not by_task:
        return {ALL: list(tasks)}
    by_kind = grouped(tasks, lambda task: PAIRS if _pair(task) else SINGLE)
    return {kind: by_kind[kind] for kind in (SINGLE, PAIRS)} if len(by_kind) == 2 else {ALL: list(tasks)}


def sizes_of(rows: Iterable[Row], kinds: Mapping[str, Sequence[str]], teachers: Sequence[Row] = ()) -> dict[str, Size]:
    """Return a row's sizes, averaged over tasks. rows: rows of results.json; teachers: the teachers' rows."""
    rows = list(rows)
    return {kind: _size([row for row in rows if row["task"] in tasks], teachers) for kind, tasks in kinds.items()}


def quoted_sizes(figures: Iterable[QuotedFigure], kinds: Mapping[str, Sequence[str]]) -> dict[str, Size]:
    """Return the sizes in the thesis of a row's models, whose teacher is RoBERTa-large."""
    figures, sizes = list(figures), {}
    for kind, tasks in kinds.items():
        by_task = {figure.task: figure.size_bytes for figure in figures if figure.task in tasks and figure.size_bytes}
        size = mean(by_task.values())
        teacher = mean(p.size_bytes for task in by_task for p in quoted_points(task) if p.name == QUOTED_TEACHER)
        sizes[kind] = Size(None, size, None, teacher / size if teacher and size else None)
    return sizes


def size_columns(
    kinds: Iterable[str], ratios: bool, quoted: bool, speeds: Sequence[str]
) -> list[tuple[str, Head, Callable[[Size, Size], Entry]]]:
    """Return the columns of sizes: kind of tasks, heading, and the entry of a row's own size and the thesis's.

    ratios: with the times smaller; quoted: with the thesis's sizes; speeds: names in HEADINGS.
    """
    columns = []
    for kind in kinds:
        parameters, size, ending = _NAMES[kind]
        measured = [
            (True, parameters, lambda ours, _: number_entry(ours.parameters)),
            (True, f"{size}, MB", lambda ours, _: _megabytes(ours.size)),
            (ratios, f"{size}, × smaller", lambda ours, _: ratio_entry(ours.ratio)),
        ]
        printed = [
            (quoted, f"{size}, MB, thesis (quoted)", lambda _, thesis: _megabytes(thesis.size)),
            (quoted, f"{size}, × smaller, thesis (quoted)", lambda _, thesis: ratio_entry(thesis.ratio)),
        ]
        columns += [(kind, Head((title,)), entry) for shown, title, entry in measured if shown]
        columns += [(kind, Head((title,), quoted=True), entry) for shown, title, entry in printed if shown]
        columns += [(kind, Head((f"{HEADINGS[name]}{ending}",)), partial(_speed, name)) for name in speeds]
    return columns


def _speed(name: str, ours: Size, _: Size) -> Entry:
    return speed_entry(name, ours.speeds.get(name))


def _pair(task: str) -> bool:
    try:
        return load_task(task).pair
    except UserError:  # a user's own task, whose file no longer exists
        return False


def _size(rows: Sequence[Row], teachers: Sequence[Row]) -> Size:
    by_task = grouped(rows, lambda row: row["task"])
    several = any(len({row.get("parameters") for row in of_task}) > 1 for of_task in by_task.values())
    fields = {"bytes_gzip" if row.get("stage") in ("pruned", "quantized") else "bytes_model" for row in rows}
    if several or len(fields) != 1:
        return Size()
    (field,) = fields
    size = mean(row.get(field) for row in rows)
    names = {(row["task"], row.get("teacher")) for row in rows}
    theirs = [row for row in teachers if (row["task"], row["model"]) in names]
    whole = mean(row.get("bytes_model") for row in theirs)
    ratio = whole / size if whole and size else None
    parameters = mean(mean(row.get("parameters") for row in of_task) for of_task in by_task.values())
    speeds = {
        name: mean(mean(speed_of(row, name) for row in of_task) for of_task in by_task.values()) for name in MEASURES
    }
    slow, fast = mean(speed_of(row, MILLISECONDS) for row in theirs), speeds[MILLISECONDS]
    speeds[FASTER] = slow / fast if slow and fast else None
    known = {name: value for name, value in speeds.items() if value is not None}
    return Size(parameters, size, None if size is None else field, ratio, known)


def _megabytes(size: float | None) -> Entry:
    megabytes = None if size is None else size / 1e6
    digits = 3 if megabytes is None or megabytes < 10 else 1 if megabytes < 1000 else 0
    return Entry(number_entry(megabytes, f",.{digits}f").text, size)
