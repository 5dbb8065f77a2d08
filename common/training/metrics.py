"""Scores of logits by a task's metrics."""

from collections.abc import Sequence

import numpy as np

from common.data.tasks import Task
from common.kinds.base import ANSWERED_FROM


def score(
    task: Task,
    labels: np.ndarray,
    logits: np.ndarray,
    contexts: Sequence[str] | None = None,
    threshold: float = ANSWERED_FROM,
) -> dict[str, float]:
    """Return the task's metrics by name, as its kind computes them.

    labels: as in Split, all known; logits: float32 [n, outputs], or of words, [n, words, outputs]; contexts: for
    answers, the texts that contain them; threshold: least probability of an answer if there may be none.
    """
    return task.kind.scores(task, labels, task.kind.choices(task, logits, threshold), contexts)


def main_score(task: Task, labels: np.ndarray, logits: np.ndarray, contexts: Sequence[str] | None = None) -> float:
    """Return the metric that chooses checkpoints."""
    return score(task, labels, logits, contexts)[task.all_metrics[0]]


def agreement(task: Task, teacher: np.ndarray, student: np.ndarray) -> dict[str, float]:
    """Return a student's agreement with its teacher, for rows without labels, as the task's kind computes it.

    It is `agreement`, the share of rows with the same class, or the same labels; for numbers `agreement_pearson`,
    Pearson's correlation. Logits are as in `score`.
    """
    return task.kind.agreement(task.kind.choices(task, teacher), task.kind.choices(task, student))
