"""A number a text: float32 [n] in the task's range, NaN if unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError
from common.kinds.base import ANSWERED_FROM, Contexts, Definition, Kind, LabelIndex, finite_numbers

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST_SCORE = 1e15
"""Largest absolute score: scores and their squares are 32-bit floats."""


class Numbers(Kind):
    """A number a text (regression): float32 [n] in the task's range, NaN if unknown. Models predict it in [0, 1]."""

    name = "numbers"
    metrics = default_metrics = ("pearson", "spearman")
    fields = ("range",)
    has_classes = False
    has_probabilities = False
    is_scaled = True
    value_names = ("score",)
    dtype = np.float32
    unknown = np.nan
    has_distributions = False
    prediction = "predicted_score"
    for_fairseq = True

    def outputs(self, labels: Sequence[str]) -> int:
        return 1

    def check(self, task: Definition) -> None:
        if task.labels or task.range is None:
            raise ValueError("a task of kind numbers has a range (lowest and highest score) and no labels")
        if task.range[0] >= task.range[1]:
            raise ValueError("range: the lowest score must come first")
        if max(map(abs, task.range)) > _LARGEST_SCORE:
            raise ValueError(f"range: scores are at most {_LARGEST_SCORE:g}")

    def check_adoption(self, task: Definition, arch: str, ours: bool) -> None:
        if not ours:
            raise UserError(f"--as-is: {task.name} is a regression, and the range of the scores of {arch} is unknown")

    def parser(self, task: Definition, names: Sequence[str]) -> Callable[[Any], Any]:
        low, high = task.range

        def parse(text: str) -> float:
            try:
                value = float(text)
            except ValueError:
                value = np.nan
            if not low <= value <= high:
                raise UserError(f"unknown label {text[:80]!r}; expected a number from {low:g} to {high:g}")
            return value

        return parse

    def answer_reader(self, task: Definition, label: LabelIndex, predicted: bool) -> Callable[[Any], np.ndarray]:
        """Return a function from a score in the task's range (or, if predicted, any) to its logit, float32 [1]."""
        low, high = task.range

        def read(cell: Any) -> np.ndarray:
            value = finite_numbers([cell])
            if not predicted and not low <= value[0] <= high:
                raise UserError(f"{value[0]:g} is not a number from {low:g} to {high:g}")
            return self.targets(task, value)

        return read

    def counts(self, labels: np.ndarray, task: Definition) -> None:
        return None

    def classes(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and the quartile of each number, int64 [n]."""
        return np.arange(len(labels)), np.searchsorted(np.quantile(labels, (0.25, 0.5, 0.75)), labels)

    def balance(self, labels: np.ndarray, task: Definition) -> dict[str, Any]:
        labels = labels[self.known(labels)]
        functions = {"lowest": np.min, "mean": np.mean, "highest": np.max} if len(labels) else {}
        return {name: round(float(function(labels)), 4) for name, function in functions.items()}

    def targets(self, task: Definition, labels: np.ndarray, contexts: Contexts = None) -> np.ndarray:
        """Return scores scaled to [0, 1], float32 [n]."""
        low, high = task.range
        return ((labels - low) / (high - low)).astype(np.float32)

    def label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        from torch.nn import functional as F

        return F.mse_loss(logits[:, 0], targets)

    def choices(self, task: Definition, logits: np.ndarray, threshold: float = ANSWERED_FROM) -> np.ndarray:
        low, high = task.range
        return (logits[:, 0] * (high - low) + low).astype(np.float32)

    def confidence(self, task: Definition, logits: np.ndarray) -> np.ndarray:
        raise UserError(f"{task.name} is a regression, whose scores have no probabilities")

    def scores(self, task: Definition, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, float]:
        """Return correlations, in [-1, 1], 0 if either side is constant."""
        return {name: _correlation(name, labels, chosen) for name in task.all_metrics}

    def agreement(self, expected: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
        return {"agreement_pearson": _correlation("pearson", expected, chosen)}


def _correlation(name: str, labels: np.ndarray, chosen: np.ndarray) -> float:
    from scipy import stats

    if np.ptp(chosen) == 0 or np.ptp(labels) == 0:
        return 0.0
    function = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[name]
    return float(function(labels.astype(np.float64), chosen.astype(np.float64)).statistic)
