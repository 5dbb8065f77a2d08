"""Rows of results.json put together: models that differ only in their seed are one family, with mean and spread."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Iterable
from typing import Any

from compression.experiments.report.results import Row

_SAME = (
    "stage",
    "student_arch",
    "embedding_type",
    "embedding_dim",
    "vocab_size",
    "alpha",
    "augmented",
    "teacher",
    "select_on",
    "parameters",
)
"""What the members of a family have in common, beside task, split and a name that differs only in the seed."""
_STUDENT_AXES = ("student_arch", "embedding_type", "embedding_dim")
"""Axes whose labels speak for themselves, and together."""


@dataclasses.dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation (n - 1); one value has no deviation."""

    mean: float
    sd: float | None
    n: int


def stat(values: Iterable[float | None]) -> Stat | None:
    """Mean and spread of the values that are known, or None when none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Stat(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


@dataclasses.dataclass(frozen=True)
class Family:
    """Models that are the same in everything but the seed, scored on one split. rows: one a seed, at least one."""

    name: str
    rows: tuple[Row, ...]

    @property
    def is_teacher(self) -> bool:
        """Whether these are teachers."""
        return self.rows[0].get("stage") == "teacher"

    @property
    def is_peer(self) -> bool:
        """Whether these are another library's models (fastText's), beside which ours stand."""
        return self.rows[0].get("stage") == "peer"

    @property
    def selected_on_test(self) -> bool:
        """Whether the test split chose the weights, so that scores on it are too good."""
        return self.rows[0].get("select_on") == "test"

    @property
    def label(self) -> str:
        """Name, with a dagger when selected on test."""
        return f"{self.name} †" if self.selected_on_test else self.name

    @property
    def trained_on(self) -> str:
        """What it learned from, in words: labels, teacher or both, and augmented rows."""
        row = self.rows[0]
        alpha = row.get("alpha")
        if alpha == 1 and row.get("augmented"):
            return "labels, the teacher's where augmented"
        if self.is_teacher or alpha == 1:
            return "labels only"
        if alpha is None:
            return "–"
        source = "teacher only" if alpha == 0 else f"labels + teacher, α {alpha:g}"
        return f"{source}, augmented" if row.get("augmented") else source

    def size(self, field: str) -> float | None:
        """Mean of a count or size over the seeds."""
        found = stat(row.get(field) for row in self.rows)
        return found.mean if found else None

    def metric(self, name: str) -> Stat | None:
        """A metric over the seeds, as results.json has it: not yet times 100."""
        return stat((row.get("metrics") or {}).get(name) for row in self.rows)

    def training_seconds(self) -> float | None:
        """Mean seconds of training; None for what was pruned or quantized from a trained model."""
        found = stat((row.get("seconds") or {}).get("train") for row in self.rows)
        return found.mean if found else None


@dataclasses.dataclass(frozen=True)
class Group:
    """All families scored on one split of one task: one table, one skyline for each metric. Teachers come first."""

    task: str
    split: str
    families: tuple[Family, ...]

    @functools.cached_property
    def metrics(self) -> list[str]:
        """Names of metrics in the task's order, as the rows have it: its main one first."""
        names = [name for family in self.families for row in family.rows for name in row.get("metrics") or {}]
        return list(dict.fromkeys(names))

    @property
    def rows_scored(self) -> int | None:
        """Number of rows of the split, where all models were scored on as many."""
        counts = {row.get("rows") for family in self.families for row in family.rows}
        return counts.pop() if len(counts) == 1 else None

    def teacher_of(self, family: Family) -> Family | None:
        """The teacher to compare sizes with: itself, the one it learned from, or else the only one there is."""
        if family.is_teacher:
            return family
        teachers = [other for other in self.families if other.is_teacher]
        own = family.rows[0].get("teacher")
        named = [teacher for teacher in teachers if own in [row.get("model") for row in teacher.rows]]
        if own is not None:
            return named[0] if named else None
        return teachers[0] if len(teachers) == 1 else None

    def times_smaller(self, family: Family, field: str) -> float | None:
        """The teacher's bytes_model divided by the family's size in `field`."""
        teacher = self.teacher_of(family)
        whole, size = teacher.size("bytes_model") if teacher else None, family.size(field)
        return whole / size if whole and size else None

    @functools.cached_property
    def best_student(self) -> Family | None:
        """The student with the best first metric; one selected on test counts only where all are."""
        scored = [
            (not family.selected_on_test, score.mean, family)
            for family in self.families
            if not (family.is_teacher or family.is_peer) and self.metrics and (score := family.metric(self.metrics[0]))
        ]
        return max(scored, key=lambda item: item[:2])[2] if scored else None


def group_rows(rows: Iterable[Row]) -> list[Group]:
    """Families by task and split, in the order in which they first appear.

    Two rows of the same model (an evaluation run twice) count once: the later one.
    """
    groups: dict[tuple[str, str], dict[tuple, dict[Any, Row]]] = {}
    for row in rows:
        families = groups.setdefault((row["task"], row["split"]), {})
        key = (family_name(row), _cell(row), *(row.get(field) for field in _SAME))
        families.setdefault(key, {})[row.get("seed")] = row
    result = []
    for (task, split), families in groups.items():
        made = [Family(key[0], tuple(by_seed.values())) for key, by_seed in families.items()]
        result.append(Group(task, split, tuple(sorted(made, key=lambda family: not family.is_teacher))))
    return result


def family_name(row: Row) -> str:
    """What a row's family is called: by its cell in a sweep ('bilstm bpe 25, alpha 0 +p+q'), else by the model's name.

    Models of a sweep have hashes in their names, which tell a reader nothing.
    """
    cell = _cell(row)
    if cell is None:
        return name_without_seed(row)
    labels = {axis: label for axis, label in cell if axis != "task"}
    student = " ".join(labels.pop(axis) for axis in _STUDENT_AXES if axis in labels)
    if student and "student_arch" not in dict(cell):
        student = f"{row.get('student_arch')} {student}"  # a bare '25' would say nothing
    # Several words speak for themselves; one may be a number that means nothing without its axis.
    words = [student, *(label if " " in label else f"{axis} {label}" for axis, label in labels.items())]
    name = ", ".join(filter(None, words)) or "the only cell"
    _, plus, suffix = str(row["model"]).partition("+")
    return f"{name} {plus}{suffix}" if plus else name


def _cell(row: Row) -> tuple[tuple[str, str], ...] | None:
    cell = row.get("cell")
    return None if cell is None else tuple((str(axis), str(label)) for axis, label in cell.items())


def name_without_seed(row: Row) -> str:
    """'bilstm-bpe25-a0-aug-s3201976+p' of seed 3201976 is 'bilstm-bpe25-a0-aug+p'."""
    stem, plus, suffix = str(row["model"]).partition("+")
    return stem.removesuffix(f"-s{row.get('seed')}") + plus + suffix
