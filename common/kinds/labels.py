"""One label a text: int64 [n], -1 if unknown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.kinds.base import Definition, Kind, classification_scores


class Labels(Kind):
    """One label a text: the index of its class, int64 [n], -1 if unknown."""

    name = "labels"
    metrics = ("accuracy", "f1", "f1_macro", "matthews")
    default_metrics = ("accuracy",)
    one_class = True
    fits = True
    for_fairseq = True

    def classes(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and the class of each label, int64 [n]."""
        return np.arange(len(labels)), labels

    def scores(
        self, task: Definition, labels: np.ndarray, chosen: np.ndarray, contexts: Sequence[str] | None
    ) -> dict[str, float]:
        """Return the task's metrics; see `classification_scores`."""
        return classification_scores(task, labels, chosen)
