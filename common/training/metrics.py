"""Task metrics, computed by scikit-learn, SciPy and, for entities, seqeval; for answers, by SQuAD's rules."""

from collections.abc import Sequence

import numpy as np
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from common.data.spans import texts_of, to_characters
from common.data.tasks import Task
from common.training.answers import row_scores
from common.training.targets import ANSWERED_FROM, choices


def score(
    task: Task,
    labels: np.ndarray,
    logits: np.ndarray,
    contexts: Sequence[str] | None = None,
    threshold: float = ANSWERED_FROM,
) -> dict[str, float]:
    """Return the task's metrics by name.

    labels: as in Split, all known; logits: float32 [n, outputs], for tokens [n, words, outputs], for spans
    [n, 1 + words, 2]; contexts: for spans, the texts that contain the answers; threshold: as in `choices`.

    accuracy, f1 (of class 1; equation 6.9 of the thesis) and f1_macro lie in [0, 1]; matthews, pearson and spearman
    in [-1, 1], 0 if predictions are constant. For multilabel, f1_micro is over all pairs of text and label, f1_macro is
    the mean of the labels' F1, and subset_accuracy is the share of texts with exactly the right labels. Entity metrics
    are those of conlleval and seqeval: an entity is found if all its words and its kind are right, and an I- tag need
    not continue an entity; their accuracy is over words. Answer metrics are SQuAD's, means over questions, in [0, 1].
    """
    predictions = choices(task, logits, threshold)
    if task.spans:
        exact, f1 = answer_scores(labels, predictions, contexts or ()).mean(0)
        return {name: float({"exact_match": exact, "answer_f1": f1}[name]) for name in task.all_metrics}
    if task.tokens:
        return _score_words(task, labels, predictions)
    functions = {
        "accuracy": lambda: accuracy_score(labels, predictions),
        "f1": lambda: f1_score(labels, predictions, zero_division=0.0),
        "f1_micro": lambda: f1_score(labels, predictions, average="micro", zero_division=0.0),
        "f1_macro": lambda: f1_score(labels, predictions, average="macro", zero_division=0.0),
        "subset_accuracy": lambda: accuracy_score(labels, predictions),  # share of exact matches
        "matthews": lambda: matthews_corrcoef(labels, predictions),
        "pearson": lambda: _correlation(stats.pearsonr, labels, predictions),
        "spearman": lambda: _correlation(stats.spearmanr, labels, predictions),
    }
    return {name: float(functions[name]()) for name in task.all_metrics}


def main_score(task: Task, labels: np.ndarray, logits: np.ndarray, contexts: Sequence[str] | None = None) -> float:
    """Return the metric that chooses checkpoints."""
    return score(task, labels, logits, contexts)[task.all_metrics[0]]


def answer_scores(labels: np.ndarray, chosen: np.ndarray, contexts: Sequence[str]) -> np.ndarray:
    """Return exact match and F1 of each row, float64 [n, 2]. labels: as in Split; chosen: words, int64 [n, 2]."""
    answers = [text for (text,) in texts_of(to_characters(chosen, contexts), contexts)]
    return row_scores(answers, texts_of(labels, contexts))


def _score_words(task: Task, labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Return metrics of tags. labels, predictions: int64 [n, words], -1 after a row's last word."""
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    true, predicted = ([[task.labels[i] for i in row[row >= 0]] for row in values] for values in (labels, predictions))
    precision, recall, f1, _ = precision_recall_fscore_support(true, predicted, average="micro", zero_division=0)
    accuracy = accuracy_score(labels[labels >= 0], predictions[predictions >= 0])
    scores = {"entity_f1": f1, "entity_precision": precision, "entity_recall": recall, "accuracy": accuracy}
    return {name: float(scores[name]) for name in task.all_metrics}


AGREEMENTS = ("agreement", "agreement_pearson")
"""Metrics of rows without labels: the share of rows of equal classes, or of all labels equal; for regression,
Pearson's correlation."""


def agreement(task: Task, teacher: np.ndarray, student: np.ndarray) -> dict[str, float]:
    """Return a student's agreement with its teacher, by the task's metric of AGREEMENTS. Logits are as in `score`."""
    expected, predicted = choices(task, teacher), choices(task, student)
    if task.regression:
        return {"agreement_pearson": float(_correlation(stats.pearsonr, expected, predicted))}
    if task.spans:
        return {"agreement": float((expected == predicted).all(1).mean())}
    return {"agreement": float(accuracy_score(expected, predicted))}


def _correlation(kind, labels: np.ndarray, predictions: np.ndarray) -> float:  # noqa: ANN001 - a SciPy function
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float(kind(labels.astype(np.float64), predictions.astype(np.float64)).statistic)
