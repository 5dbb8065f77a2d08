"""Thresholds: the F1 of the second of two labels is often the highest where that label is answered from a probability
other than a half (Lipton, Elkan and Narayanaswamy, Thresholding Classifiers to Maximize F1 Score, 2014)."""

from __future__ import annotations

import numpy as np

from compression.packing.calibration import DIGITS

HALF = 0.5
"""The threshold where none was chosen."""


def fit_threshold(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the probability from which answering the second label has the highest F1: of equal ones the nearest to a
    half, and a half where no row has that label.

    probabilities: float32 [n, 2], of rows that were not trained on; labels: int64 [n].
    """
    second = np.sort(probabilities[:, 1].astype(np.float64))
    positive = np.sort(probabilities[labels == 1, 1].astype(np.float64))
    if not len(positive):
        return HALF
    below = np.concatenate([np.zeros(1), second[:-1]])
    between = np.round((below + second) / 2, DIGITS)
    thresholds = np.unique([*between[(between > 0) & (between < 1)], HALF])
    answered = len(second) - np.searchsorted(second, thresholds)
    right = len(positive) - np.searchsorted(positive, thresholds)
    f1 = 2 * right / (answered + len(positive))
    best = thresholds[f1 == f1.max()]
    return float(best[np.abs(best - HALF).argmin()])
