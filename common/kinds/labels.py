"""One label a text: int64 [n], -1 if unknown."""

import numpy as np

from common.kinds.base import Kind


class Labels(Kind):
    """One label a text: the index of its class, int64 [n], -1 if unknown."""

    name = "labels"
    metrics = ("accuracy", "f1", "f1_macro", "matthews")
    default_metrics = ("accuracy",)
    one_class = True
    for_fairseq = True

    def classes(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(labels)), labels
