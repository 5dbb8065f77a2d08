"""Shares of labels before and after augmentation (table B.1 of the thesis)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from common.config import Settings
from common.data.split import read_labels
from common.data.tasks import Task, load_task
from common.progress import say
from common.store.artifact import points_to, read_manifest
from common.store.workspace import Workspace


class LabelShares(Settings):
    """Shares of labels among some rows of a task (table B.1 of the thesis)."""

    task: str
    rows: str
    """Name of the rows: train, augmented (with the teacher's choices; with names if there are several sets),
    validation, or a test split."""
    shares: dict[str, float]
    """Label -> share of the labelled rows with this label, from 0 to 1."""
    count: int
    """Number of labelled rows."""
    agreement: float | None = None
    """For augmented rows: among rows with their source's label, the share for which the teacher chooses that label;
    None if no row has a label."""


def split_shares(task: Task, name: str, split_file: Path) -> LabelShares:
    """Return the shares of labels in the rows of a split file; rows without a label are not counted."""
    return _shares(task, name, read_labels(split_file))


def augmented_shares(task: Task, logits_file: Path, rows_file: Path, name: str = "augmented") -> LabelShares:
    """Return the shares of the labels a teacher chose for augmented rows, and how often these are the sources' labels.

    logits_file: logits for the rows in rows_file; name: name of the rows in the result.
    """
    batches = pq.ParquetFile(logits_file).iter_batches()  # a column for each label
    logits = (np.stack([column.to_numpy() for column in batch.columns], 1) for batch in batches)
    chosen = np.concatenate([task.kind.choices(task, some) for some in logits])
    labels = read_labels(rows_file)
    labelled = task.kind.labelled(labels)
    agreement = float(task.kind.right(labels, chosen)[labelled].mean()) if labelled.any() else None
    return _shares(task, name, chosen).model_copy(update={"agreement": agreement})


def _shares(task: Task, rows: str, labels: np.ndarray) -> LabelShares:
    counts, labelled = task.kind.counts(labels, task), int(task.kind.labelled(labels).sum())
    shares = {label: float(count / max(1, labelled)) for label, count in zip(task.labels, counts, strict=True)}
    return LabelShares(task=task.name, rows=rows, shares=shares, count=labelled)


def say_label_table(task: Task, train_file: Path, logits_file: Path, rows_file: Path) -> None:
    """Print the shares of train's labels and of the teacher's choices for augmented rows to stderr."""
    original, augmented = split_shares(task, "train", train_file), augmented_shares(task, logits_file, rows_file)
    width = max(map(len, task.labels))
    say(f"{'labels':<{width}}  original  augmented (the teacher's choice)")
    for label in task.labels:
        say(f"{label:<{width}}  {original.shares[label]:>8.1%}  {augmented.shares[label]:>9.1%}")
    if augmented.agreement is None:
        say(f"{augmented.count:,} augmented rows, without labels of their own")
    else:
        say(f"{augmented.count:,} augmented rows; agreement with the source row's label {augmented.agreement:.1%}")


def recorded_labels(
    paths: Workspace, teachers: Mapping[str, str | None], augmented: Sequence[str] = ("tinybert",)
) -> tuple[LabelShares, ...]:
    """Return the label shares of every split of the tasks, and of their teachers' choices for augmented rows.

    Missing files are skipped, as are logits for augmented rows that have changed since. teachers: task -> teacher; None
    stands for the only teacher with logits for the augmented rows.
    """
    shares: list[LabelShares] = []
    for name, teacher in teachers.items():
        task = load_task(name)
        if not task.kind.has_classes:
            continue
        files = [(split, paths.split(task.name, split)) for split in task.splits]
        shares += [split_shares(task, split, file) for split, file in files if file.exists()]
        for rows_name in augmented:
            rows = paths.augmented(task.name, rows_name)
            logits = paths.logits(task.name, teacher or "*", rows_name)
            existing = list(logits.parent.parent.glob(f"{logits.parent.name}/{logits.name}"))
            if len(existing) == 1 and points_to(rows, read_manifest(existing[0]).inputs["rows"]):
                shown = "augmented" if len(augmented) == 1 else f"augmented: {rows_name}"
                shares.append(augmented_shares(task, existing[0], rows, shown))
    return tuple(shares)
