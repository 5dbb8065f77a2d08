"""Thresholds: the F1 of the second of two labels is often highest if the label is predicted from a probability other
than 0.5 (Lipton, Elkan and Narayanaswamy, Thresholding Classifiers to Maximize F1 Score, 2014). The same holds for
answers to questions that may have none (Rajpurkar et al., Know What You Don't Know, 2018, section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.kinds.answers import answer_scores
from common.kinds.spans import NO_ANSWER, best_answers
from common.progress import say
from common.training.calibration import DIGITS, fit_temperature
from common.training.models import ModelConfig
from compression.runtime import to_probabilities

HALF = 0.5
"""The threshold if none was chosen."""
FEWEST_ANSWERED = 20
"""Rows that are answered at least, if there are so many: the precision of fewer says little."""


def fit_packed(
    config: ModelConfig,
    logits: np.ndarray,
    labels: np.ndarray,
    contexts: Sequence[str],
    reject: float | None = None,
    other_logits: np.ndarray | None = None,
) -> dict[str, float]:
    """Return the `temperature` and the `threshold` of a student's packed file, if it has them.

    logits: of rows that were not trained on, all labelled; labels, contexts (sentence2): as in common.data.split.Split;
    reject: share of the answers that is right if texts below the threshold have none; None: all texts have one;
    other_logits: of texts that no label is for, float32 [n, outputs].
    """
    fitted = {}
    if config.task_kind.has_probabilities:
        fitted["temperature"] = fit_temperature(logits, labels, config.task_kind.independent)
    if reject is not None:
        others = logits[:0] if other_logits is None else other_logits
        probabilities = to_probabilities(np.concatenate([logits, others]), fitted["temperature"])
        right = probabilities.argmax(1) == np.append(labels, np.full(len(others), -1))
        fitted["threshold"] = fit_rejection(probabilities.max(1), right, reject)
    elif config.f1 and config.task_kind.always_pairs:
        fitted["threshold"] = fit_answer_threshold(logits, labels, contexts)
    elif config.f1:
        fitted["threshold"] = fit_threshold(to_probabilities(logits, fitted["temperature"]), labels)
    return fitted


def fit_threshold(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the probability from which predicting the second label has the highest F1.

    Among equal ones, it is the nearest to 0.5; if no row has that label, it is 0.5. probabilities: float32 [n, 2], of
    rows that were not trained on; labels: int64 [n].
    """
    second = np.sort(probabilities[:, 1].astype(np.float64))
    positive = np.sort(probabilities[labels == 1, 1].astype(np.float64))
    if not len(positive):
        return HALF
    thresholds = _candidates(second)
    answered = len(second) - np.searchsorted(second, thresholds)
    right = len(positive) - np.searchsorted(positive, thresholds)
    return _best(thresholds, 2 * right / (answered + len(positive)))


def fit_rejection(probabilities: np.ndarray, right: np.ndarray, precision: float) -> float:
    """Return the lowest probability from which at least this share of the answers is right.

    At least FEWEST_ANSWERED rows are answered, or all if there are fewer. If no probability reaches the precision, it
    is the one with the highest, and a message says so. probabilities: of the answers to rows that were not trained on,
    float32 [n]; right: bool [n].
    """
    order = np.argsort(probabilities)
    thresholds = np.unique(np.float32([0, *_candidates(probabilities[order].astype(np.float64))]))
    rejected = np.searchsorted(probabilities[order], thresholds)
    answered = len(right) - rejected
    kept = answered >= min(FEWEST_ANSWERED, len(right))
    right_among = right.sum() - np.append(0, np.cumsum(right[order]))[rejected[kept]]
    reached, thresholds = right_among / answered[kept], thresholds[kept]
    if reached.max() < precision:
        say(f"no threshold makes {precision:.1%} of the answers right; the best one, {reached.max():.1%}, is taken")
    return float(thresholds[np.argmax(reached >= min(precision, reached.max()))])


def fit_answer_threshold(logits: np.ndarray, labels: np.ndarray, contexts: Sequence[str]) -> float:
    """Return the probability from which giving the best answer has the highest F1.

    Among equal ones, it is the nearest to 0.5. logits: float32 [n, 1 + words, 2], of questions that were not trained on
    and may have no answer; labels, contexts: as in common.data.split.Split.
    """
    chosen, probabilities = best_answers(logits)
    answered = answer_scores(labels, chosen, contexts)[:, 1]
    withheld = answer_scores(labels, np.broadcast_to(NO_ANSWER, chosen.shape), contexts)[:, 1]
    order = np.argsort(probabilities)
    # F1 summed over all rows if none, the first, the first two, ... of the least probable answers are withheld.
    total = answered.sum() + np.append(0, np.cumsum((withheld - answered)[order]))
    thresholds = _candidates(probabilities[order])
    return _best(thresholds, total[np.searchsorted(probabilities[order], thresholds)])


def _candidates(probabilities: np.ndarray) -> np.ndarray:
    """Return 0.5, and the midpoints between 0, the sorted probabilities and 1."""
    ends = np.concatenate([[0.0], probabilities, [1.0]])
    between = np.round((ends[:-1] + ends[1:]) / 2, DIGITS)
    return np.unique(np.append(between[(between > 0) & (between < 1)], HALF))


def _best(thresholds: np.ndarray, f1: np.ndarray) -> float:
    best = thresholds[f1 >= f1.max() - 1e-9]
    return float(best[np.abs(best - HALF).argmin()])
