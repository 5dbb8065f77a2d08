"""Calibration of probabilities: expected calibration error, and the bins of a reliability diagram.

Guo et al., On Calibration of Modern Neural Networks, 2017, section 2.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from compression.runtime import to_probabilities

BINS = 15
"""Bins of equal width, as in the paper."""

Bin = Sequence[float]
"""Number of rows in a bin, mean probability of their predicted labels, and accuracy; 0, 0, 0 for an empty bin."""


def reliability_bins(probabilities: np.ndarray, labels: np.ndarray) -> list[Bin]:
    """Return BINS bins; bin i has the rows whose predicted label's probability is in ((i - 1) / BINS, i / BINS].

    probabilities: [n, labels]; labels: int64 [n], or 1 and 0, [n, labels], for several labels a row: then each pair of
    a row and a label counts as a binary prediction.
    """
    if labels.ndim == 2:
        confidence, right = np.maximum(probabilities, 1 - probabilities).ravel(), (probabilities >= 0.5) == labels
    else:
        confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    index = np.clip(np.ceil(confidence.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)
    counts = np.bincount(index, minlength=BINS)
    means = [np.bincount(index, values, BINS) / np.maximum(counts, 1) for values in (confidence, right.ravel())]
    return [[rows, *map(_rounded, of)] for rows, *of in zip(counts.tolist(), *means, strict=True)]


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean absolute difference of probability and accuracy over the bins, weighted by rows."""
    total = sum(rows for rows, _, _ in bins)
    return sum(rows * abs(accuracy - probability) for rows, probability, accuracy in bins) / total


def _rounded(value: float) -> float:
    return round(float(value), 6)


def calibration_fields(logits: np.ndarray, labels: np.ndarray, temperature: float | None) -> dict[str, Any]:
    """Return the fields of a row of results.json: `ece` of its probabilities, and `calibration` with their bins.

    logits: float32 [n, labels]; labels: as in `reliability_bins`, at least one row; temperature: if None, the
    probabilities are not calibrated, and the separate fields of uncalibrated probabilities are left out.
    """
    independent = labels.ndim == 2
    plain = reliability_bins(to_probabilities(logits, independent=independent), labels)
    if temperature is None:
        return {"ece": _rounded(expected_calibration_error(plain)), "calibration": {"bins": plain}}
    bins = reliability_bins(to_probabilities(logits, temperature, independent), labels)
    before = {"ece_before": _rounded(expected_calibration_error(plain)), "bins_before": plain}
    calibration = {"temperature": temperature, "bins": bins, **before}
    return {"ece": _rounded(expected_calibration_error(bins)), "calibration": calibration}
