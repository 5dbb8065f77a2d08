"""Temperature scaling: a student's logits are divided by one number, so that its probabilities are as high as it is
often right (Guo et al., On Calibration of Modern Neural Networks, 2017). The most probable label stays the same."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

LEAST, MOST = 0.05, 20.0
"""Bounds of a temperature. At most 0.05, the probability of a label 1 above the next one's logit is 1."""
DIGITS = 4
"""Decimal places of a temperature: sums over the same rows differ in later ones from machine to machine."""


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    """Return the mean of -log softmax(logits / temperature) at the labels. logits: [n, outputs]; labels: int64 [n]."""
    log_probabilities = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return -float(log_probabilities[np.arange(len(labels)), labels].mean())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature of least negative log-likelihood; 1 where no row is wrong.

    logits: float32 [n, outputs] of rows that were not trained on; labels: int64 [n]. The likelihood has one maximum
    (it is a logistic regression's on 1 / T), but without a wrong row the lower the temperature the higher it is.
    """
    if (logits.argmax(1) == labels).all():
        return 1.0

    def cost(temperature: float) -> float:
        return negative_log_likelihood(logits, labels, temperature)

    bounds = (np.log(LEAST), np.log(MOST))
    found = minimize_scalar(lambda x: cost(np.exp(x)), bounds=bounds, method="bounded", options={"xatol": 1e-7})
    temperature = round(float(np.exp(found.x)), DIGITS)
    return temperature if cost(temperature) < cost(1.0) else 1.0
