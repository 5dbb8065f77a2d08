"""How well each label is predicted."""

import numpy as np

from common.config import Settings
from common.data.tasks import Task

METRICS_OF_LABELS = ("accuracy", "f1_macro")
"""Metrics of tasks of the user's own with one label a text."""


class LabelScore(Settings):
    """How well one label is predicted, in [0, 1].

    rows: that have the label; words: of the rows, that speak most for it, if they are known.
    """

    label: str
    precision: float
    recall: float
    f1: float
    rows: int
    words: tuple[str, ...] = ()


def label_scores(task: Task, labels: np.ndarray, choices: np.ndarray) -> tuple[LabelScore, ...]:
    """Return the scores of each label of a task with labels of texts.

    labels, choices: int64 [n], or 1 and 0, [n, labels], for several labels a text; all labels known.
    """
    from sklearn.metrics import precision_recall_fscore_support  # the result of a fit is shown without it

    scored = precision_recall_fscore_support(labels, choices, labels=np.arange(len(task.labels)), zero_division=0.0)
    return tuple(
        LabelScore(label=label, precision=precision, recall=recall, f1=f1, rows=count)
        for label, precision, recall, f1, count in zip(task.labels, *scored, strict=True)
    )
