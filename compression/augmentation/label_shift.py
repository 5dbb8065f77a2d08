"""Shares of labels before and after augmentation (table B.1 of the thesis): has the teacher's choice drifted?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from common.config import Settings
from common.data.tasks import Task, load_task
from common.progress import say
from common.store.workspace import Workspace


class LabelShares(Settings):
    """Shares of labels among some rows of a task (table B.1 of the thesis)."""

    task: str
    """Task."""
    rows: str
    """Which rows: train, augmented (the teacher's choices), validation, or a test split."""
    shares: dict[str, float]
    """Label -> share of the labelled rows, from 0 to 1."""
    count: int
    """Labelled rows."""


@dataclasses.dataclass(frozen=True)
class LabelShare:
    """One label's share of the rows of train, and of the teacher's choices over augmented rows, from 0 to 1."""

    label: str
    original: float
    augmented: float


def label_table(task: Task, train_file: Path, logits_file: Path) -> list[LabelShare]:
    """Shares of every label of a classification task; rows without a label are not counted."""
    counts = _label_counts(task, train_file), _choice_counts(task, logits_file)
    shares = [count / max(1, count.sum()) for count in counts]
    return [LabelShare(label, *map(float, pair)) for label, *pair in zip(task.labels, *shares, strict=True)]


def _label_counts(task: Task, split_file: Path) -> np.ndarray:
    """Rows of each label in a split file, int64 [labels]. Reads a part at a time."""
    counts = np.zeros(len(task.labels), np.int64)
    for batch in pq.ParquetFile(split_file).iter_batches(columns=["label"]):
        labels = batch["label"].to_numpy()
        counts += np.bincount(labels[labels >= 0], minlength=len(counts))
    return counts


def _choice_counts(task: Task, logits_file: Path) -> np.ndarray:
    """Rows of each label as the teacher chose, int64 [labels]. Reads a part at a time."""
    counts = np.zeros(len(task.labels), np.int64)
    for batch in pq.ParquetFile(logits_file).iter_batches():
        logits = np.stack([column.to_numpy() for column in batch.columns], 1)  # [rows, classes]
        counts += np.bincount(logits.argmax(1), minlength=len(counts))
    return counts


def say_label_table(task: Task, train_file: Path, logits_file: Path) -> None:
    """Print the table to stderr."""
    rows = label_table(task, train_file, logits_file)
    width = max(len(row.label) for row in rows)
    say(f"{'labels':<{width}}  original  augmented (the teacher's choice)")
    for row in rows:
        say(f"{row.label:<{width}}  {row.original:>8.1%}  {row.augmented:>9.1%}")


def recorded_labels(
    paths: Workspace, teachers: Mapping[str, str | None], augmented: str = "tinybert"
) -> tuple[LabelShares, ...]:
    """Shares of labels in every split of the tasks, and in what their teachers chose for augmented rows, where there.

    teachers: task -> its teacher; None stands for the only one that has looked at the augmented rows.
    """
    found: list[LabelShares] = []
    for name, teacher in teachers.items():
        task = load_task(name)
        if task.regression or task.tokens:
            continue
        files = [(split, paths.split(task.name, split)) for split in task.splits]
        found += [_recorded(task, split, _label_counts(task, file)) for split, file in files if file.exists()]
        logits = paths.logits(task.name, teacher or "*", augmented)
        made = list(logits.parent.parent.glob(f"{logits.parent.name}/{logits.name}"))
        if len(made) == 1:
            found.append(_recorded(task, "augmented", _choice_counts(task, made[0])))
    return tuple(found)


def _recorded(task: Task, rows: str, counts: np.ndarray) -> LabelShares:
    shares = {label: float(count) / max(1, int(counts.sum())) for label, count in zip(task.labels, counts, strict=True)}
    return LabelShares(task=task.name, rows=rows, shares=shares, count=int(counts.sum()))
