"""From labels to training targets, and from logits to labels."""

import dataclasses

import numpy as np

from common.data.ragged import known
from common.data.split import Split
from common.data.tasks import Task


def targets(task: Task, labels: np.ndarray) -> np.ndarray:
    """Return training targets: class indices and lists of labels unchanged; scores as float32 [n] in [0, 1]."""
    if task.range is None:
        return labels
    low, high = task.range
    return ((labels - low) / (high - low)).astype(np.float32)


def choices(task: Task, logits: np.ndarray) -> np.ndarray:
    """Return labels for logits [n, outputs]: classes int64 [n], or scores in the task's range float32 [n].

    For multilabel 1 for each label whose probability, the sigmoid of its logit, is at least a half, else 0: float32
    [n, outputs]. For tokens, padded arrays (see common.data.ragged): [n, words, outputs] -> int64 [n, words].
    """
    if task.multilabel:
        return (logits >= 0).astype(np.float32)
    if task.tokens:
        return np.where(known(logits), logits.argmax(-1), -1)
    if task.range is None:
        return logits.argmax(1)
    low, high = task.range
    return (logits[:, 0] * (high - low) + low).astype(np.float32)


def with_choices(task: Task, split: Split, logits: np.ndarray, labelled: np.ndarray) -> Split:
    """Return the split with a teacher's choice for each row that is not labelled. labelled: bool [n]."""
    labels = split.labels.copy()
    labels[~labelled] = choices(task, logits)[~labelled]
    return dataclasses.replace(split, labels=labels)
