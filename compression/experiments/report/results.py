"""results.json: rows of scores and sizes, and groups of rows that differ only in their seed, with mean and deviation.

Each row has a checksum that detects changes made by hand.
"""

import dataclasses
import functools
import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from common.errors import UserError
from common.store.files import fingerprint, read_json, write_text
from compression.evaluation.rows import Row

T = TypeVar("T")
DASH = "–"
GZIPPED, PACKED = "bytes_gzip", "bytes_packed"
MEASURED = {GZIPPED: "gzipped", PACKED: "packed", "bytes_model": "of weights"}
"""Sizes by which models are compared, and their names: the gzipped weights file, as in the thesis (bytes_model would
not show the gain of pruning, since zeros are stored), and the file with everything a prediction needs; a teacher's is
the weights file."""
MILLISECONDS = "milliseconds_for_one"
ECE_BEFORE = ("calibration", "ece_before")
_GLUE = ("accuracy", "f1", "matthews", "pearson", "spearman")
_SHARED = ("stage", "student_arch", "embedding_type", "embedding_dim", "vocab_size")
_SHARED += ("alpha", "augmented", "teacher", "select_on", "parameters")
"""Fields that all seeds of a group share, besides task, split, actions, cell and name."""
_STUDENT_AXES = ("student_arch", "embedding_type", "embedding_dim")
"""Axes whose labels are shown without the name of the axis."""
_SUFFIXES = {"factorize": "+f", "prune": "+p", "quantize": "+q"}
DISTILLED = "distilled"


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """Return key -> items, in the order in which the keys first appear."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def write_lines(path: Path, value: list[Any] | dict[str, Any]) -> None:
    """Write JSON with one entry per line, also for the lists of mappings inside a mapping."""

    def block(entry: Any) -> str:
        if not (isinstance(entry, list) and entry and all(isinstance(row, dict) for row in entry)):
            return json.dumps(entry, ensure_ascii=False)
        return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in entry) + "\n]"

    entries = [f'"{name}": {block(entry)}' for name, entry in value.items()] if isinstance(value, dict) else []
    write_text(path, ("{\n" + ",\n".join(entries) + "\n}" if entries else block(value)) + "\n")


def write_results(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, one per line, each with its checksum."""
    write_lines(path, [{**row, "checksum": _checksum(row)} for row in rows])


def read_results(path: Path) -> list[Row]:
    """Return the rows of a results.json.

    Raises UserError if the file is missing or malformed, or has a row that lacks a field or was changed by hand.
    """
    rows = read_json(path)
    advice = "write it again by running the experiment"
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: not a results file (a list of rows)")
    for number, row in enumerate(rows, 1):
        missing = [name for name in Row.__annotations__ if name in Row.__required_keys__ and name not in row]
        if missing:
            raise UserError(f"{path}: row {number} has no {missing[0]!r}; {advice}")
        if row.get("checksum") != _checksum(row):
            raise UserError(f"{path}: row {number} ({row['model']}) was changed after it was written; {advice}")
    return rows


def _checksum(row: Row) -> str:
    return fingerprint({name: value for name, value in row.items() if name != "checksum"})


@dataclasses.dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation (n - 1); sd is None for a single value."""

    mean: float
    sd: float | None
    n: int

    @property
    def text(self) -> str:
        """Mean and deviation, times 100: '79.25 ± 0.31'."""
        return f"{100 * self.mean:.2f}" + ("" if self.sd is None else f" ± {100 * self.sd:.2f}")


def stat(values: Iterable[float | None]) -> Stat | None:
    """Return mean and deviation of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Stat(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values, or None if there are none."""
    summary = stat(values)
    return summary.mean if summary else None


def field(row: Row, *path: str) -> Any:
    """Return a field of a row, or of a mapping in it; None if it is not known. path: names, as they nest."""
    value: Any = row
    for name in path:
        value = (value or {}).get(name)
    return value


@dataclasses.dataclass(frozen=True)
class SeedGroup:
    """Models that differ only in their seed, scored on one split. rows: one per seed, at least one.

    A table of means also has groups of models of several tasks; sizes and speeds are then means over the tasks.
    disk_field: its field of the size on disk, the same for all students.
    """

    name: str
    rows: tuple[Row, ...]
    disk_field: str = "bytes_model"

    @property
    def first(self) -> Row:
        """Row of the first seed: fields that all seeds share are read from it."""
        return self.rows[0]

    @property
    def is_teacher(self) -> bool:
        """Whether these are teachers."""
        return self.first["stage"] == "teacher"

    @property
    def is_peer(self) -> bool:
        """Whether these are another library's models (fastText's), shown for comparison."""
        return self.first["stage"] == "peer"

    @property
    def selected_on_test(self) -> bool:
        """Whether the weights were selected on test, so that test scores are too high."""
        return any(row["select_on"] == "test" for row in self.rows)

    @property
    def label(self) -> str:
        """Name, with a dagger if selected on test."""
        return f"{self.name} †" if self.selected_on_test else self.name

    @property
    def trained_on(self) -> str:
        """Source of the training labels, and whether rows were augmented; a dash for teachers imported as logits."""
        alpha, augmented = self.first["alpha"], self.first["augmented"]
        if alpha == 1 and augmented:
            return "labels, the teacher's where augmented"
        if "imported" in self.first.get("actions", ()):
            return DASH
        if self.is_teacher or alpha == 1:
            return "labels only"
        if alpha is None:
            return DASH
        source = "teacher only" if alpha == 0 else f"labels + teacher, α {alpha:g}"
        return f"{source}, augmented" if augmented else source

    def stat(self, *path: str) -> Stat | None:
        """Return mean and deviation of a field of results.json over the seeds. path: see `field`."""
        return stat(field(row, *path) for row in self.rows)

    def mean(self, *path: str) -> float | None:
        """Return the mean of a field of results.json over the seeds, and then over the tasks; None if not known."""
        by_task = grouped(self.rows, lambda row: row["task"]).values()
        return mean(mean(field(row, *path) for row in rows) for rows in by_task)

    def metric(self, name: str) -> Stat | None:
        """Return a metric over the seeds, from 0 to 1 as in results.json."""
        return self.stat("metrics", name)

    def times_smaller(self, teacher: Self | None, size: str = "") -> float | None:
        """Return the teacher's bytes_model divided by this group's size. size: a field, by default `disk_field`."""
        return _ratio(teacher and teacher.mean("bytes_model"), self.mean(size or self.disk_field))

    def times_faster(self, teacher: Self | None) -> float | None:
        """Return the teacher's milliseconds per text divided by the group's."""
        return _ratio(teacher and teacher.mean("speed", MILLISECONDS), self.mean("speed", MILLISECONDS))


def _ratio(whole: float | None, part: float | None) -> float | None:
    return whole / part if whole and part else None


@dataclasses.dataclass(frozen=True)
class SplitResults:
    """All groups scored on one split of a task, teachers first: one table, and one skyline per metric."""

    task: str
    split: str
    groups: tuple[SeedGroup, ...]

    @functools.cached_property
    def metrics(self) -> list[str]:
        """Names of metrics in the task's order, the main one first."""
        return list(dict.fromkeys(name for group in self.groups for row in group.rows for name in row["metrics"]))

    @property
    def heading(self) -> str:
        """'sst-2, test (872 rows)', without the number if models were scored on different numbers of rows."""
        counts = {row["rows"] for group in self.groups for row in group.rows}
        rows = counts.pop() if len(counts) == 1 else 0
        return f"{self.task}, {self.split}" + (f" ({rows:,} rows)" if rows else "")

    def teacher_of(self, group: SeedGroup) -> SeedGroup | None:
        """Return the teacher to compare sizes with: itself, the one it learned from, or else the only one."""
        if group.is_teacher:
            return group
        teachers = [other for other in self.groups if other.is_teacher]
        name = group.first["teacher"]
        if name is not None:
            return next((teacher for teacher in teachers if name in [row["model"] for row in teacher.rows]), None)
        return teachers[0] if len(teachers) == 1 else None

    @functools.cached_property
    def size_field(self) -> str:
        """Field of the size to compare models by: of packed files, if there are any."""
        return PACKED if any(group.mean(PACKED) for group in self.groups) else GZIPPED

    @functools.cached_property
    def best_student(self) -> SeedGroup | None:
        """Student with the highest main metric on validation, or on this split if a student has no score on validation.

        Students selected on test count only if all are.
        """
        scores = "validation" if self.best_on_validation else "metrics"
        return max(self._candidates, key=lambda group: group.mean(scores, self.metrics[0]), default=None)

    @functools.cached_property
    def best_on_validation(self) -> bool:
        """Whether there is a best student, and it was chosen by its validation score."""
        scores = [group.mean("validation", self.metrics[0]) for group in self._candidates]
        return bool(scores) and None not in scores

    @functools.cached_property
    def _candidates(self) -> list[SeedGroup]:
        """Students that may be the best one."""
        students = [group for group in self.groups if not (group.is_teacher or group.is_peer)]
        scored = [group for group in students if self.metrics and group.metric(self.metrics[0])]
        return [group for group in scored if not group.selected_on_test] or scored


def group_rows(rows: Iterable[Row]) -> list[SplitResults]:
    """Return the groups by task and split, in the order in which they first appear.

    If a model has two rows (it was evaluated twice), only the later one counts.
    """
    results = []
    for (task, split), scored in grouped(rows, lambda row: (row["task"], row["split"])).items():
        members = grouped(
            scored, lambda row: (_group_name(row), str(row.get("cell")), stage_label(row), *map(row.get, _SHARED))
        )
        by_seed = {key: {row["seed"]: row for row in of_key} for key, of_key in members.items()}
        groups = [SeedGroup(name, tuple(seeds.values())) for (name, *_), seeds in by_seed.items()]
        results.append(split_results(task, split, groups))
    return results


def split_results(task: str, split: str, groups: Iterable[SeedGroup]) -> SplitResults:
    """Return the groups of a split, teachers first."""
    return SplitResults(task, split, tuple(sorted(groups, key=lambda group: not group.is_teacher)))


def _group_name(row: Row) -> str:
    """Return the name of a row's group: from its cell in a sweep ('bilstm bpe 25, alpha 0 +p+q'), else its model's.

    The names of a sweep's models contain hashes, which mean nothing to a reader.
    """
    cell = row.get("cell")
    if cell is None:
        return name_without_seed(row["model"], row["seed"])
    labels = {axis: str(label) for axis, label in cell.items() if axis != "task"}
    student = " ".join(labels.pop(axis) for axis in _STUDENT_AXES if axis in labels)
    if student and "student_arch" not in cell:
        student = f"{row['student_arch']} {student}"  # a bare '25' would mean nothing
    # A label of several words is clear by itself; a single word may be a number that needs its axis.
    words = [student, *(label if " " in label else f"{axis} {label}" for axis, label in labels.items())]
    return f"{', '.join(filter(None, words)) or 'the only cell'} {stage_label(row)}".removesuffix(f" {DISTILLED}")


def stage_label(row: Row) -> str:
    """Return 'distilled', '+p', '+p+q', ... for the actions applied to a student."""
    return "".join(_SUFFIXES.get(action, "") for action in row.get("actions", ())) or DISTILLED


def name_without_seed(name: str, seed: int) -> str:
    """Return a model's name without its seed: 'bilstm-bpe25-a0-aug+p' for 'bilstm-bpe25-a0-aug-s3201976+p'."""
    return re.sub(rf"-s{seed}(?!\d)", "", name, count=1)


def average_of_tasks(scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
    """Return the mean over tasks of the means over their metrics; None if a score is missing or there is one task.

    scores: task -> metric -> score. Metrics that GLUE does not have count only if they are a task's main one. Source:
    Wang et al., 2019.
    """
    counted = [
        [metrics[name] for name in metrics if name in _GLUE] or list(metrics.values())[:1]
        for metrics in scores.values()
    ]
    if len(counted) < 2 or any(None in of_task for of_task in counted):
        return None
    return statistics.fmean(map(statistics.fmean, counted))


def means_over_splits(rows: Iterable[Row]) -> list[Row]:
    """Return each model's row with mean scores over the test splits of its task, without models that lack one."""
    on_test = [row for row in rows if row["split"].startswith("test")]
    by_task = grouped(on_test, lambda row: row["task"])
    splits = {task: list(dict.fromkeys(row["split"] for row in of_task)) for task, of_task in by_task.items()}
    models = grouped(on_test, lambda row: str((row["task"], row["model"], row["seed"], row.get("cell")))).values()
    return [row for model in models if (row := mean_over_splits(model, splits[model[0]["task"]]))]


def mean_over_splits(rows: Iterable[Row], splits: Sequence[str]) -> Row | None:
    """Return a model's row with the mean scores over test splits, or None if it lacks one of them."""
    by_split = {row["split"]: row for row in rows}
    if not splits or not by_split.keys() >= set(splits):
        return None
    scored = [by_split[split] for split in splits]
    names = [name for name in scored[0]["metrics"] if all(field(row, "metrics", name) is not None for row in scored)]
    means = {name: statistics.fmean(row["metrics"][name] for row in scored) for name in names}
    row: Row = {**scored[0], "split": " and ".join(splits), "metrics": means}
    if len(splits) > 1:  # calibration bins belong to a single split
        row |= {"ece": mean(row.get("ece") for row in scored), "calibration": None}
    return row
