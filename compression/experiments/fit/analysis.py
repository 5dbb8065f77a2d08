"""The answers of the recommended student to the test rows: scores of each label, words for it, and the mistakes."""

import itertools
import string
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from common.data.split import Split
from common.data.tasks import Task
from common.kinds.multilabel import JOINED_BY
from compression.evaluation.label_scores import label_scores
from compression.evaluation.predictions import Predictions
from compression.experiments.fit.result import Analysis, Answered, Mistake
from compression.inference.classifier import Classifier, Sentences
from compression.inference.explain import leave_one_out

_MISTAKES = 20
_LETTERS = 200
"""Letters of a text that are shown."""
_THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95)
_WORDS = 8
"""Words of a label."""
_MOST_WORDS = 30
"""First words of a text that are read: a text is read once without each of its words."""
_CHARACTERS = 1_000_000
"""Characters that the student reads in all: about a second."""


def analyse(task: Task, split: Split, predictions: Predictions, model: Classifier) -> Analysis:
    """Return the analysis of a model's predictions for a split's rows."""
    from sklearn.metrics import confusion_matrix

    rows = np.flatnonzero(predictions.labelled)
    if task.kind.by_word or task.kind.always_pairs or not len(rows):
        return Analysis()
    labels, choices = predictions.labels[rows], predictions.choices[rows]
    if predictions.probabilities is None:
        errors = np.abs(labels - choices)
        return Analysis(mistakes=_mistakes(task, split, predictions, rows[np.argsort(-errors, kind="stable")]))
    words = words_of_labels(model, list(zip(*split.sentences(), strict=True)))
    scores = label_scores(task, labels, choices)
    confusion = {}
    if task.kind.one_class:
        counts = confusion_matrix(labels, choices, labels=np.arange(len(task.labels))).tolist()
        for label, row in zip(task.labels, counts, strict=True):
            confusion[label] = {answer: count for answer, count in zip(task.labels, row, strict=True) if count}
    probabilities, right = predictions.probabilities[rows], predictions.right[rows]
    order = np.argsort(-probabilities, kind="stable")
    return Analysis(
        per_label=tuple(one.model_copy(update={"words": words.get(one.label, ())}) for one in scores),
        confusion=confusion,
        mistakes=_mistakes(task, split, predictions, rows[order[~right[order]]]),
        answered=tuple(answered_from(threshold, predictions) for threshold in _THRESHOLDS),
    )


def answered_from(threshold: float, predictions: Predictions) -> Answered:
    """Return the share of the labelled rows whose answers have at least this probability, and their accuracy.

    predictions: with probabilities.
    """
    right = predictions.right[predictions.labelled]
    kept = predictions.probabilities[predictions.labelled] >= threshold
    accuracy = float(right[kept].mean()) if kept.any() else None
    return Answered(probability=threshold, share=float(kept.mean()), accuracy=accuracy)


def _mistakes(task: Task, split: Split, predictions: Predictions, rows: np.ndarray) -> tuple[Mistake, ...]:
    """Return the first rows as mistakes. rows: int64 [m], the worst first."""

    def words(answer: Any) -> str:
        if task.kind.is_scaled:
            return f"{answer:.4g}"
        labels = np.flatnonzero(answer) if task.kind.independent else [answer]
        return JOINED_BY.join(task.labels[label] for label in labels)

    mistakes = []
    for row in rows[:_MISTAKES].tolist():
        text = " ".join(" / ".join(column[row] for column in split.sentences()).split())
        mistake = Mistake(
            row=row,
            text=text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…",
            label=words(predictions.labels[row]),
            answer=words(predictions.choices[row]),
            probability=None if predictions.probabilities is None else float(predictions.probabilities[row]),
        )
        mistakes.append(mistake)
    return tuple(mistakes)


def words_of_labels(model: Classifier, texts: Sentences) -> dict[str, tuple[str, ...]]:
    """Return up to eight words for each label, the strongest first; labels that are no text's answer are left out.

    A word's strength is the sum of its drops (`leave_one_out`) over the texts with this answer. Of long texts the
    beginnings are read, of many texts the first ones.
    """
    read = list(_beginnings(texts))
    values = model.probabilities(read).tolist() if read else []
    strengths: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for drops, row in zip(leave_one_out(model, read, values), values, strict=True):
        answer = model.labels[row.index(max(row))]
        for word, drop in itertools.chain.from_iterable(drops):
            strengths[answer][word.strip(string.punctuation).lower()] += drop
    return {
        label: tuple(word for word, strength in words.most_common() if word and strength > 0)[:_WORDS]
        for label, words in strengths.items()
    }


def _beginnings(texts: Sentences) -> Iterator[tuple[str, ...]]:
    """Yield the first words of the first texts, as many as can be read once without each word."""
    left = _CHARACTERS
    for text in texts:
        words = [sentence.split()[:_MOST_WORDS] for sentence in text]
        beginning = tuple(map(" ".join, words))
        left -= sum(map(len, words)) * sum(map(len, beginning))
        if left < 0:
            return
        yield beginning
