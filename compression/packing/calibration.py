"""Temperature scaling: a student's logits are divided by one number, so that its probabilities are as high as it is
often right (Guo et al., On Calibration of Modern Neural Networks, 2017). The most probable label stays the same."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax

LEAST, MOST = 0.05, 20.0
"""Bounds of a temperature. At most 0.05, the probability of a label 1 above the next one's logit is 1."""
DIGITS = 4
"""Decimal places of a temperature: sums over the same rows differ in later ones from machine to machine."""


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    """Return the mean of -log softmax(logits / temperature) at the labels. logits: [n, outputs]; labels: int64 [n].

    For multilabel, labels 1 or 0 [n, outputs], the mean over rows and labels of -log of their sigmoids' likelihood.
    """
    scaled = logits.astype(np.float64) / temperature
    if labels.ndim == 2:
        return -float(np.where(labels > 0, log_expit(scaled), log_expit(-scaled)).mean())
    return -float(log_softmax(scaled, axis=1)[np.arange(len(labels)), labels].mean())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature of least negative log-likelihood; 1 where no row is wrong.

    logits: float32 [n, outputs] of rows that were not trained on; labels: int64 [n], or for multilabel 1 or 0
    [n, outputs]. The likelihood has one maximum (it is a logistic regression's on 1 / T), but without a wrong row the
    lower the temperature the higher it is.
    """
    chosen = logits >= 0 if labels.ndim == 2 else logits.argmax(1)
    if (chosen == labels).all():
        return 1.0

    def cost(temperature: float) -> float:
        return negative_log_likelihood(logits, labels, temperature)

    bounds = (np.log(LEAST), np.log(MOST))
    found = minimize_scalar(lambda x: cost(np.exp(x)), bounds=bounds, method="bounded", options={"xatol": 1e-7})
    temperature = round(float(np.exp(found.x)), DIGITS)
    return temperature if cost(temperature) < cost(1.0) else 1.0
