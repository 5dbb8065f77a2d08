"""Between labels and what models say: what a model is trained to, and what its outputs mean."""

import numpy as np

from common.data.ragged import known
from common.data.tasks import Task


def targets(task: Task, labels: np.ndarray) -> np.ndarray:
    """What a model is trained to: class indices int64 [n], or [n, words], as they are, or scores float32 [n] scaled to
    [0, 1]."""
    if task.range is None:
        return labels
    low, high = task.range
    return ((labels - low) / (high - low)).astype(np.float32)


def choices(task: Task, logits: np.ndarray) -> np.ndarray:
    """A model's outputs [n, outputs] as labels: its class int64 [n], or its score in the task's range float32 [n].

    Of tokens, padded arrays (see common.data.ragged): [n, words, outputs] -> int64 [n, words].
    """
    if task.tokens:
        return np.where(known(logits), logits.argmax(-1), -1)
    if task.range is None:
        return logits.argmax(1)
    low, high = task.range
    return (logits[:, 0] * (high - low) + low).astype(np.float32)
