"""Any model as one function from texts to probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from common.data.tasks import known_tasks, load_task
from common.errors import UserError
from common.training.models import ModelConfig
from common.training.targets import choices
from compression.runtime import Model, to_probabilities

Sentences = Sequence[tuple[str, ...]]
"""Normalised texts, each one sentence or a pair."""
Function = Callable[[Sentences], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A loaded model.

    labels: empty for a regression; pair: whether a text is two sentences; tokens: whether every word has a label, or
    for pairs, whether the first text is a question that a part of the second one answers; multilabel: whether a text
    has any number of labels; threshold: minimum probability of an answer, for questions that may have none;
    probabilities: function from texts to float32 [n, labels]; for a regression, scores in the task's range [n, 1]; for
    tokens, [n, words, labels], NaN after a text's last word; for questions, the logits of start and end,
    [n, 1 + words, 2], with "no answer" first.
    """

    name: str
    task: str
    labels: tuple[str, ...]
    pair: bool
    tokens: bool
    multilabel: bool
    probabilities: Function
    threshold: float | None = None

    @property
    def kind(self) -> Literal["labels", "scores", "tags", "answers"]:
        """Kind of predictions: labels with probabilities, scores, tags of words, or answers to questions."""
        if self.tokens:
            return "answers" if self.pair else "tags"
        return "labels" if self.labels else "scores"


def classifier_of(
    model: ModelConfig | Model, logits: Function, task: str, temperature: float = 1.0, threshold: float | None = None
) -> Classifier:
    """Return a classifier with probabilities softmax(logits / temperature), or with scores in the task's range.

    task: a built-in task, or the path of a task's YAML file; threshold: as in Classifier.
    Raises UserError for a regression if the task's YAML file, which has the range of scores, is not known.
    """
    if not model.labels and task not in known_tasks() and not task.endswith((".yaml", ".yml")):
        raise UserError(f"{model.name} predicts scores of {task}: give the YAML file with their range as --task")
    scored = None if model.labels else load_task(task)

    def probabilities(texts: Sentences) -> np.ndarray:
        values = logits(texts)
        if model.tokens and model.pair:
            return values
        if scored is not None:
            return choices(scored, values)[:, None]
        return to_probabilities(values, temperature, model.multilabel)

    kind = model.pair, model.tokens, model.multilabel
    return Classifier(model.name, model.task, model.labels, *kind, probabilities, threshold)
