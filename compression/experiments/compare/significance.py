"""Is a difference more than chance? Paired tests over seeds and over test rows, each as its textbook has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from compression.evaluation.predictions import Predictions

DRAWS = 10_000
"""Resamples of the test rows."""
_AT_ONCE = 2**22
"""Numbers in memory at a time."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean difference with its confidence interval; p_value: two-sided, None for a bootstrap."""

    mean: float
    low: float
    high: float
    method: Literal["paired t over seeds", "bootstrap over test rows"]
    p_value: float | None


@dataclasses.dataclass(frozen=True)
class McNemar:
    """McNemar's exact test. b: rows that only the first model has right; c: only the second; p_value: two-sided."""

    b: int
    c: int
    p_value: float


def paired_t(differences: Sequence[float], confidence: float) -> Interval:
    """Interval of the mean of at least two paired differences, by Student's t with n - 1 degrees of freedom.

    Where all are equal the interval has no width, and p is 1 for no difference, else 0.
    """
    values = np.asarray(differences, np.float64)
    mean, error = float(values.mean()), float(stats.sem(values))
    if np.ptp(values) == 0:
        return Interval(mean, mean, mean, "paired t over seeds", 0.0 if mean else 1.0)
    reach = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    p_value = 2 * float(stats.t.sf(abs(mean) / error, len(values) - 1))
    return Interval(mean, mean - reach, mean + reach, "paired t over seeds", p_value)


def mcnemar(first: Predictions, second: Predictions) -> McNemar:
    """McNemar's test (1947), exact: rows that one model alone has right are even odds (Dietterich, 1998, section 3.1).

    Both of the same labelled rows of a classification; rows without a label are left out.
    """
    rows = first.labelled
    right, other = (p.choices[rows] == p.labels[rows] for p in (first, second))
    b, c = int((right & ~other).sum()), int((~right & other).sum())
    return McNemar(b, c, float(stats.binomtest(b, b + c).pvalue) if b + c else 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number by Holm's step-down method (1979), in the order given."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def bootstrap(metric: str, first: Predictions, second: Predictions, confidence: float, mean: float) -> Interval | None:
    """Percentile interval of the difference in a metric over resamples of the test rows, the same for both models.

    mean: the difference itself (Efron and Tibshirani, 1993, chapter 13). The draws are the same every time.
    None for what cannot be had from labels: agreement with a teacher, or no labelled row.
    """
    rows = first.labelled
    if not rows.any() or metric not in (_SCORES if first.regression else CLASS_METRICS):
        return None
    draw = _draw_scores if first.regression else _draw_classes
    rng = np.random.default_rng(0)
    differences = draw(metric, first.labels[rows], first.choices[rows], second.choices[rows], rng)
    low, high = np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, float(low), float(high), "bootstrap over test rows", None)


def _draw_classes(
    metric: str, labels: np.ndarray, first: np.ndarray, second: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Differences, float64 [DRAWS]. Rows of the same label and choices are alike: a draw is a number of each kind."""
    kinds, counts = np.unique(np.stack([labels, first, second], 1), axis=0, return_counts=True)
    drawn = rng.multinomial(counts.sum(), counts / counts.sum(), DRAWS)  # [draws, kinds]
    classes = int(kinds.max()) + 1
    scores = []
    for choices in (kinds[:, 1], kinds[:, 2]):
        place = np.zeros((len(kinds), classes * classes))
        place[np.arange(len(kinds)), kinds[:, 0] * classes + choices] = 1
        scores.append(CLASS_METRICS[metric]((drawn @ place).reshape(-1, classes, classes)))
    return scores[0] - scores[1]


def _draw_scores(
    metric: str, labels: np.ndarray, first: np.ndarray, second: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Differences, float64 [DRAWS], some draws at a time."""
    step = max(1, _AT_ONCE // len(labels))
    parts = []
    for start in range(0, DRAWS, step):
        rows = rng.integers(len(labels), size=(min(step, DRAWS - start), len(labels)))
        drawn = [_SCORES[metric](values[rows]) for values in (labels, first, second)]
        parts.append(_correlations(drawn[0], drawn[1]) - _correlations(drawn[0], drawn[2]))
    return np.concatenate(parts)


def _correlations(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each row of [draws, n] with the other's, 0 where a row is constant."""
    one, other = (values - values.mean(1, keepdims=True) for values in (one, other))
    scale = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    return np.divide((one * other).sum(1), scale, out=np.zeros(len(one)), where=scale > 0)


_SCORES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "pearson": lambda values: values,
    "spearman": lambda values: stats.rankdata(values, axis=1),
}
"""What to correlate, values [draws, n]."""


def _accuracy(confusion: np.ndarray) -> np.ndarray:
    return np.trace(confusion, axis1=1, axis2=2) / confusion.sum((1, 2))


def _f1_by_class(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F1 [draws, classes], 0 where undefined, and whether a class is among labels or choices."""
    right, marginals = np.diagonal(confusion, axis1=1, axis2=2), confusion.sum(1) + confusion.sum(2)
    return np.divide(2 * right, marginals, out=np.zeros_like(right), where=marginals > 0), marginals > 0


def _f1(confusion: np.ndarray) -> np.ndarray:
    return _f1_by_class(confusion)[0][:, 1] if confusion.shape[1] > 1 else np.zeros(len(confusion))


def _f1_macro(confusion: np.ndarray) -> np.ndarray:
    scores, present = _f1_by_class(confusion)
    return scores.sum(1) / present.sum(1)


def _matthews(confusion: np.ndarray) -> np.ndarray:
    rows, said, is_so = confusion.sum((1, 2)), confusion.sum(1), confusion.sum(2)
    covariance = np.trace(confusion, axis1=1, axis2=2) * rows - (said * is_so).sum(1)
    scale = np.sqrt((rows**2 - (said**2).sum(1)) * (rows**2 - (is_so**2).sum(1)))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)


CLASS_METRICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "f1_macro": _f1_macro,
    "matthews": _matthews,
}
"""Metrics [draws] of confusion matrices float64 [draws, label, choice]; the same as common.training.metrics."""
