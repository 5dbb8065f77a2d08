"""From labels to training targets, and from logits to labels and their probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from common.data.ragged import known
from common.data.spans import best_spans, to_characters, to_words
from common.data.tasks import Task
from common.errors import UserError

if TYPE_CHECKING:
    from common.data.split import Split  # loads PyArrow, which predicting with a packed file does not need


def targets(task: Task, labels: np.ndarray, contexts: Sequence[str] | None = None) -> np.ndarray:
    """Return training targets: class indices and lists of labels unchanged; scores as float32 [n] in [0, 1].

    For spans, with their contexts, the first and the last word of each row's first answer, int64 [n, 2].
    """
    if task.spans and contexts is not None:
        return to_words(labels, contexts)
    if task.range is None:
        return labels
    low, high = task.range
    return ((labels - low) / (high - low)).astype(np.float32)


ANSWERED_FROM = 0.5
"""Least probability of an answer to a question that may have none, if no threshold is given."""


def choices(task: Task, logits: np.ndarray, threshold: float = ANSWERED_FROM) -> np.ndarray:
    """Return labels for logits [n, outputs]: classes int64 [n], or scores in the task's range float32 [n].

    For multilabel, float32 [n, outputs]: 1 for each label whose probability, the sigmoid of its logit, is at least a
    half, else 0. For tokens, padded arrays (see common.data.ragged): [n, words, outputs] -> int64 [n, words]. For
    spans, [n, 1 + words, 2] -> int64 [n, 2], first and last word (see common.data.spans); threshold: least probability
    of an answer if there may be none.
    """
    if task.spans:
        return best_spans(logits, threshold if task.unanswerable else None)
    if task.multilabel:
        return (logits >= 0).astype(np.float32)
    if task.tokens:
        return np.where(known(logits), logits.argmax(-1), -1)
    if task.range is None:
        return logits.argmax(1)
    low, high = task.range
    return (logits[:, 0] * (high - low) + low).astype(np.float32)


def check_loss(task: Task, loss: str) -> None:
    """Raise UserError if a regression is to be learned with a loss between probabilities."""
    if task.regression and loss != "mse":
        raise UserError(f"--loss {loss} is for classification; {task.name} is a regression: use mse")


def confidence(task: Task, logits: np.ndarray) -> np.ndarray:
    """Return the probability of `choices`, float32 [n]; with several labels or words, that of the least certain one.

    For spans it is the start's probability times the end's, each a softmax over the words (and "no answer", if there
    may be none). Raises UserError for a regression, which has no probabilities.
    """
    if task.regression:
        raise UserError(f"{task.name} is a regression, whose scores have no probabilities")
    if task.multilabel:
        return _sigmoid(np.abs(logits)).min(1)
    if task.spans:
        chosen, possible = choices(task, logits), logits.copy()
        if not task.unanswerable:
            possible[chosen[:, 0] > 0, 0] = np.nan
        shares = np.exp(possible - np.nanmax(possible, 1, keepdims=True))
        shares /= np.nansum(shares, 1, keepdims=True)
        return np.take_along_axis(shares, chosen[:, None], 1)[:, 0].prod(1)
    logits = logits - logits.max(-1, keepdims=True)
    chosen = 1 / np.exp(logits).sum(-1)
    return np.where(known(logits), chosen, 1).min(1) if task.tokens else chosen


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def with_choices(task: Task, split: Split, logits: np.ndarray, labelled: np.ndarray) -> Split:
    """Return the split with a teacher's choice for each row that is not labelled. labelled: bool [n]."""
    labels, chosen = split.labels.copy(), choices(task, logits)[~labelled]
    if task.tokens and chosen.shape[1] > labels.shape[1]:  # the longest text has no labels
        labels = np.pad(labels, ((0, 0), (0, chosen.shape[1] - labels.shape[1])), constant_values=-1)
    if task.spans:
        contexts = [split.sentence2[row] for row in np.flatnonzero(~labelled)] if split.sentence2 else []
        labels[~labelled] = -1
        labels[~labelled, :1] = to_characters(chosen, contexts)
    else:
        labels[~labelled] = chosen
    return dataclasses.replace(split, labels=labels)
