"""Shares of labels before and after augmentation (table B.1 of the thesis): has the teacher's choice drifted?"""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from common.progress import say
from common.tasks import Task


@dataclasses.dataclass(frozen=True)
class LabelShare:
    """One label's share of the rows of train, and of the teacher's choices over augmented rows, from 0 to 1."""

    label: str
    original: float
    augmented: float


def label_table(task: Task, train_file: Path, logits_file: Path) -> list[LabelShare]:
    """Shares of every label of a classification task; rows without a label are not counted. Reads a part at a time."""
    original = np.zeros(len(task.labels), np.int64)
    for batch in pq.ParquetFile(train_file).iter_batches(columns=["label"]):
        labels = batch["label"].to_numpy()
        original += np.bincount(labels[labels >= 0], minlength=len(original))
    augmented = np.zeros_like(original)
    for batch in pq.ParquetFile(logits_file).iter_batches():
        logits = np.stack([column.to_numpy() for column in batch.columns], 1)  # [rows, classes]
        augmented += np.bincount(logits.argmax(1), minlength=len(augmented))
    shares = [counts / max(1, counts.sum()) for counts in (original, augmented)]
    return [LabelShare(label, *map(float, pair)) for label, *pair in zip(task.labels, *shares, strict=True)]


def say_label_table(task: Task, train_file: Path, logits_file: Path) -> None:
    """Print the table to stderr."""
    rows = label_table(task, train_file, logits_file)
    width = max(len(row.label) for row in rows)
    say(f"{'labels':<{width}}  original  augmented (the teacher's choice)")
    for row in rows:
        say(f"{row.label:<{width}}  {row.original:>8.1%}  {row.augmented:>9.1%}")
