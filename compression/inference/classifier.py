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
"""One sentence each, or two, normalised."""
Function = Callable[[Sentences], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A loaded model.

    labels: empty for a regression; pair: whether a text is two sentences; tokens: whether every word has an answer;
    of pairs, whether the first text is a question that a part of the second one answers; multilabel: whether a text has
    any number of labels; threshold: of questions that may have no answer, the least probability of one;
    probabilities: texts -> float32 [n, labels]; of a regression scores in the task's range, float32 [n, 1]; of tokens
    [n, words, labels], NaN past a text's last word; of questions the logits of the start and of the end,
    [n, 1 + words, 2], of "no answer" first.
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
        """Kind of its predictions: labels with probabilities, scores, the tags of words, or answers to questions."""
        if self.tokens:
            return "answers" if self.pair else "tags"
        return "labels" if self.labels else "scores"


def classifier_of(
    model: ModelConfig | Model, logits: Function, task: str, temperature: float = 1.0, threshold: float | None = None
) -> Classifier:
    """Return a model with softmax(logits / temperature), or with scores in the task's range.

    task: a shipped one, or the YAML file of another; threshold: as in Classifier.
    Raises UserError for a regression of a task whose YAML file, which has the range, is not known.
    """
    if not model.labels and task not in known_tasks() and not task.endswith((".yaml", ".yml")):
        raise UserError(f"{model.name} predicts scores of {task}: give --task the YAML file with their range")
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
