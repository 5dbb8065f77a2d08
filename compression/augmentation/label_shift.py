"""Shares of labels before and after augmentation (table B.1 of the thesis)."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from common.config import Settings
from common.data.ragged import known, label_counts
from common.data.split import label_values
from common.data.tasks import Task, load_task
from common.progress import say
from common.store.workspace import Workspace
from common.training.targets import choices


class LabelShares(Settings):
    """Shares of labels among some rows of a task (table B.1 of the thesis)."""

    task: str
    rows: str
    """Which rows: train, augmented (the teacher's choices), validation, or a test split."""
    shares: dict[str, float]
    """Label -> share of the labelled rows that have it, from 0 to 1."""
    count: int
    """Labelled rows."""


def split_shares(task: Task, name: str, split_file: Path) -> LabelShares:
    """Return the shares of labels in the rows of a split file; rows without a label are not counted."""
    return _shares(task, name, [label_values(pq.read_table(split_file, columns=["label"])["label"])])


def augmented_shares(task: Task, logits_file: Path) -> LabelShares:
    """Return the shares of labels that a teacher chose for augmented rows, by a file of its logits."""
    batches = pq.ParquetFile(logits_file).iter_batches()  # a column for each label
    logits = (np.stack([column.to_numpy() for column in batch.columns], 1) for batch in batches)
    return _shares(task, "augmented", (choices(task, some) for some in logits))


def _shares(task: Task, rows: str, labels: Iterable[np.ndarray]) -> LabelShares:
    counts, labelled = np.zeros(len(task.labels), np.int64), 0
    for some in labels:
        counts += label_counts(some, len(counts))
        labelled += int((known(some).all(1) if task.multilabel else known(some)).sum())
    shares = {label: float(count / max(1, labelled)) for label, count in zip(task.labels, counts, strict=True)}
    return LabelShares(task=task.name, rows=rows, shares=shares, count=labelled)


def say_label_table(task: Task, train_file: Path, logits_file: Path) -> None:
    """Print the shares of train's labels and of the teacher's choices over augmented rows to stderr."""
    original, augmented = split_shares(task, "train", train_file), augmented_shares(task, logits_file)
    width = max(map(len, task.labels))
    say(f"{'labels':<{width}}  original  augmented (the teacher's choice)")
    for label in task.labels:
        say(f"{label:<{width}}  {original.shares[label]:>8.1%}  {augmented.shares[label]:>9.1%}")


def recorded_labels(
    paths: Workspace, teachers: Mapping[str, str | None], augmented: str = "tinybert"
) -> tuple[LabelShares, ...]:
    """Return the shares of labels in every split of the tasks, and in their teachers' choices over augmented rows.

    Files that do not exist are left out. teachers: task -> its teacher; None stands for the only one with logits over
    the augmented rows.
    """
    found: list[LabelShares] = []
    for name, teacher in teachers.items():
        task = load_task(name)
        if task.regression or task.tokens:
            continue
        files = [(split, paths.split(task.name, split)) for split in task.splits]
        found += [split_shares(task, split, file) for split, file in files if file.exists()]
        logits = paths.logits(task.name, teacher or "*", augmented)
        existing = list(logits.parent.parent.glob(f"{logits.parent.name}/{logits.name}"))
        if len(existing) == 1:
            found.append(augmented_shares(task, existing[0]))
    return tuple(found)
