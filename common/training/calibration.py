"""Temperature scaling: a student's logits are divided by one number, so that its probabilities match its accuracy.

The most probable label stays the same. Source: Guo et al., On Calibration of Modern Neural Networks, 2017.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax

LEAST, MOST = 0.05, 20.0
"""Bounds of a temperature. At 0.05 or less, a label whose logit is 1 above the next has probability 1."""
DIGITS = 4
"""Decimal places of a temperature: later ones differ between machines, even for the same rows."""


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
