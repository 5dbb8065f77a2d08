"""The temperature and the threshold of a packed file's probabilities.

Temperature scaling: a student's logits are divided by one number, so that its probabilities match its accuracy (Guo et
al., On Calibration of Modern Neural Networks, 2017). The most probable label stays the same.

Thresholds: the F1 of the second of two labels is often highest if the label is predicted from a probability other than
0.5 (Lipton, Elkan and Narayanaswamy, Thresholding Classifiers to Maximize F1 Score, 2014). The same holds for answers
to questions that may have none (Rajpurkar et al., Know What You Don't Know, 2018, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax

from common.kinds.answers import answer_scores
from common.kinds.spans import NO_ANSWER, best_answers
from common.training.models import ModelConfig
from compression.runtime import to_probabilities

LEAST, MOST = 0.05, 20.0
"""Bounds of a temperature. At 0.05 or less, a label whose logit is 1 above the next has probability 1."""
DIGITS = 4
"""Decimal places of a temperature: later ones differ between machines, even for the same rows."""
HALF = 0.5
"""The threshold if none was chosen."""


def negative_log_likelihood(
    logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0, independent: bool = False
) -> float:
    """Return the mean of -log softmax(logits / temperature) at the labels. logits: [n, outputs]; labels: int64 [n].

    independent: labels are 1 or 0, [n, outputs], and it is the mean over rows and labels, with sigmoids.
    """
    scaled = logits.astype(np.float64) / temperature
    if independent:
        return -float(np.where(labels > 0, log_expit(scaled), log_expit(-scaled)).mean())
    return -float(log_softmax(scaled, axis=1)[np.arange(len(labels)), labels].mean())


def fit_temperature(logits: np.ndarray, labels: np.ndarray, independent: bool = False) -> float:
    """Return the temperature of least negative log-likelihood; 1 if no row is wrong.

    logits: float32 [n, outputs] of rows that were not trained on; labels: int64 [n], or if independent, 1 or 0,
    [n, outputs]. The likelihood has one maximum (that of a logistic regression on 1 / T), but if no row is wrong, it
    only rises as the temperature falls.
    """
    chosen = logits >= 0 if independent else logits.argmax(1)
    if (chosen == labels).all():
        return 1.0

    def cost(temperature: float) -> float:
        return negative_log_likelihood(logits, labels, temperature, independent)

    bounds = (np.log(LEAST), np.log(MOST))
    result = minimize_scalar(lambda x: cost(np.exp(x)), bounds=bounds, method="bounded", options={"xatol": 1e-7})
    temperature = round(float(np.exp(result.x)), DIGITS)
    return temperature if cost(temperature) < cost(1.0) else 1.0


def fit_packed(
    config: ModelConfig, logits: np.ndarray, labels: np.ndarray, contexts: Sequence[str]
) -> dict[str, float]:
    """Return the `temperature` and the `threshold` of a student's packed file, if it has them.

    logits: of rows that were not trained on, all labelled; labels, contexts (sentence2): as in common.data.split.Split.
    """
    fitted = {}
    if config.task_kind.has_probabilities:
        fitted["temperature"] = fit_temperature(logits, labels, config.task_kind.independent)
    if config.f1 and config.task_kind.always_pairs:
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
    total = answered.sum() + np.concatenate([np.zeros(1), np.cumsum((withheld - answered)[order])])
    thresholds = _candidates(probabilities[order])
    return _best(thresholds, total[np.searchsorted(probabilities[order], thresholds)])


def _candidates(probabilities: np.ndarray) -> np.ndarray:
    """Return 0.5, and the midpoints between 0, the sorted probabilities and 1."""
    ends = np.concatenate([np.zeros(1), probabilities, np.ones(1)])
    between = np.round((ends[:-1] + ends[1:]) / 2, DIGITS)
    return np.unique([*between[(between > 0) & (between < 1)], HALF])


def _best(thresholds: np.ndarray, f1: np.ndarray) -> float:
    best = thresholds[f1 >= f1.max() - 1e-9]
    return float(best[np.abs(best - HALF).argmin()])
