"""Task metrics, computed by scikit-learn."""

import numpy as np
from sklearn.metrics import accuracy_score, f1_score


def compute(metrics: tuple[str, ...], labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Metric name -> value in [0, 1]. labels, predictions: int [n]. f1 is of class 1 (equation 6.9 of the thesis)."""
    functions = {
        "accuracy": lambda: accuracy_score(labels, predictions),
        "f1": lambda: f1_score(labels, predictions, zero_division=0.0),
    }
    return {name: float(functions[name]()) for name in metrics}
