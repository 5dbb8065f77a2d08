"""Any model as one function from texts to probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from common.data.tasks import TASK_SUFFIXES, known_tasks, load_task
from common.errors import UserError
from common.kinds.base import Kind
from common.kinds.registry import KINDS
from common.training.models import ModelConfig
from compression.runtime import Model, to_probabilities

Sentences = Sequence[tuple[str, ...]]
"""Normalised texts, each one sentence or a pair."""
Function = Callable[[Sentences], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A loaded model.

    labels: empty for numbers; pair: whether a text is two sentences; kind: of its task; threshold: minimum probability
    of an answer, for questions and texts that may have none; plain_words: whether contexts are divided into words as
    for older packed files (see compression.runtime.words); probabilities: function from texts to float32 [n, labels];
    for numbers, numbers in the task's range; for tags, [n, words, labels], NaN after a text's last word; for answers,
    the logits of start and end, [n, 1 + words, 2], with "no answer" first.
    """

    name: str
    task: str
    labels: tuple[str, ...]
    pair: bool
    kind: Kind
    probabilities: Function
    threshold: float | None = None
    plain_words: bool = False


def classifier_of(
    model: ModelConfig | Model, logits: Function, task: str, temperature: float, threshold: float | None
) -> Classifier:
    """Return a classifier of a model with these logits.

    task: a built-in task, or the path of a task's YAML file; threshold: as in Classifier.
    Raises UserError for a kind whose numbers depend on the task's YAML file, if this is not known.
    """
    kind = model.task_kind if isinstance(model, ModelConfig) else KINDS[model.kind]
    scaled = None
    if kind.is_scaled:
        if task not in known_tasks() and not task.endswith(TASK_SUFFIXES):
            raise UserError(
                f"{model.name} predicts {kind.name} of {task}: give the YAML file with their range as --task"
            )
        scaled = load_task(task)

    def values(texts: Sentences) -> np.ndarray:
        raw = logits(texts)
        if kind.always_pairs:
            return raw  # parts of contexts are chosen from logits
        if scaled is not None:
            return kind.choices(scaled, raw).reshape(len(raw), -1)
        return to_probabilities(raw, temperature, kind.independent)

    plain = isinstance(model, Model) and model.plain_words
    return Classifier(model.name, model.task, model.labels, model.pair, kind, values, threshold, plain)
