"""Significance of differences: standard paired tests over seeds and over test rows."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from compression.evaluation.predictions import Predictions

PAIRED_T, BOOTSTRAP = "paired t over seeds", "bootstrap over test rows"
DRAWS = 10_000
"""Number of bootstrap resamples of the test rows."""
_AT_ONCE = 2**22
"""Numbers held in memory at a time."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean difference with its confidence interval; p_value: two-sided, None for a bootstrap."""

    mean: float
    low: float
    high: float
    method: str
    p_value: float | None


def paired_t(differences: Sequence[float], confidence: float) -> Interval:
    """Return the interval of the mean of at least two paired differences, by Student's t with n - 1 degrees of freedom.

    If all differences are equal, the interval has zero width, and p is 1 for a difference of 0, else 0.
    """
    from scipy import stats  # takes a second to load

    mean = float(np.mean(differences))
    if np.ptp(differences) == 0:
        return Interval(mean, mean, mean, PAIRED_T, 0.0 if mean else 1.0)
    test = stats.ttest_1samp(differences, 0.0)
    low, high = map(float, test.confidence_interval(confidence))
    return Interval(mean, low, high, PAIRED_T, float(test.pvalue))


def mcnemar(first: Predictions, second: Predictions) -> tuple[int, int, float]:
    """Return how many rows only the first model gets right, how many only the second, and the two-sided p-value.

    McNemar's exact test (1947): under the null hypothesis, a row that exactly one model gets right is equally likely
    to be either model's (Dietterich, 1998, section 3.1). Both models classify the same rows; rows without a label are
    left out. For multilabel, a row is right if exactly its labels are chosen.
    """
    from scipy import stats

    right, other = (p.right[first.labelled] for p in (first, second))
    b, c = int((right & ~other).sum()), int((~right & other).sum())
    return b, c, float(stats.binomtest(b, b + c).pvalue) if b + c else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's step-down method (1979), in the order given."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    scaled = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(scaled, 1.0))
    return adjusted.tolist()


def bootstrap(metric: str, first: Predictions, second: Predictions, confidence: float, mean: float) -> Interval | None:
    """Return the bootstrap percentile interval of the difference in a metric (Efron and Tibshirani, 1993, chapter 13).

    Both models are scored on the same resamples of the test rows, and the draws are the same every time. mean: the
    difference itself. Returns None if the metric cannot be computed from labels: agreement with a teacher, or too few
    labelled rows.
    """
    from scipy import stats

    rows = first.labelled
    classes = first.kind.has_classes
    if rows.sum() < (1 if classes else 2) or metric not in first.kind.metrics:
        return None
    labels, *choices = first.labels[rows], first.choices[rows], second.choices[rows]
    if not classes:
        low, high = stats.bootstrap(
            (labels, *choices),
            lambda labels, a, b, axis: _correlation(metric, labels, a, axis) - _correlation(metric, labels, b, axis),
            n_resamples=DRAWS,
            batch=max(1, _AT_ONCE // len(labels)),
            paired=True,
            confidence_level=confidence,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
    else:
        # Rows with the same label and choices are interchangeable, so a resample is a count of rows of each such kind.
        kinds, counts = np.unique(np.stack([labels, *choices], 1), axis=0, return_counts=True)
        rng, step = np.random.default_rng(0), max(1, _AT_ONCE // len(kinds))
        differences = []
        for start in range(0, DRAWS, step):
            drawn = rng.multinomial(counts.sum(), counts / counts.sum(), min(step, DRAWS - start))  # [draws, kinds]
            a, b = (class_scores(metric, drawn, kinds[:, 0], kinds[:, column]) for column in (1, 2))
            differences.append(a - b)
        low, high = np.quantile(np.concatenate(differences), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, float(low), float(high), BOOTSTRAP, None)


def class_scores(metric: str, counts: np.ndarray, labels: np.ndarray, choices: np.ndarray) -> np.ndarray:
    """Return a metric of classes, float64 [draws], as defined in common.kinds.base.

    counts: number of rows of each kind in each draw, [draws, kinds]; labels, choices: of each kind, [kinds], or 1 and 0
    for each label, [kinds, labels].
    """
    several = labels.ndim == 2
    if not several:
        classes = np.arange(1 + max(labels.max(), choices.max()))
        labels, choices = (kinds_of_one[:, None] == classes for kinds_of_one in (labels, choices))
    is_label, is_choice = labels.astype(bool), choices.astype(bool)  # [kinds, classes]
    right, of_label, of_choice = (counts @ which.astype(float) for which in (is_label & is_choice, is_label, is_choice))
    rows = counts.sum(1)
    if metric == "accuracy":
        return right.sum(1) / rows
    if metric == "matthews":  # Gorodkin (2004)
        covariance = right.sum(1) * rows - (of_label * of_choice).sum(1)
        return _divided(covariance, np.sqrt((rows**2 - (of_label**2).sum(1)) * (rows**2 - (of_choice**2).sum(1))))
    if metric == "subset_accuracy":
        return counts @ (is_label == is_choice).all(1) / rows
    if metric == "f1_micro":
        return _divided(2 * right.sum(1), (of_label + of_choice).sum(1))
    f1 = _divided(2 * right, of_label + of_choice)  # 0 where a class is neither a label nor a choice
    if metric == "f1":
        return f1[:, 1] if f1.shape[1] > 1 else np.zeros(len(f1))
    if several:
        return f1.mean(1)
    return f1.sum(1) / (of_label + of_choice > 0).sum(1)


def _correlation(metric: str, one: np.ndarray, other: np.ndarray, axis: int) -> np.ndarray:
    """Return Pearson's or Spearman's correlation along an axis, 0 where either variable is constant."""
    if metric == "spearman":
        from scipy import stats

        one, other = (stats.rankdata(values, axis=axis) for values in (one, other))
    one, other = (values - values.mean(axis, keepdims=True) for values in (one, other))
    return _divided((one * other).sum(axis), np.sqrt((one**2).sum(axis) * (other**2).sum(axis)))


def _divided(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    return np.divide(over, under, out=np.zeros(np.shape(over)), where=under > 0)
