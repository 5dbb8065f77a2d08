"""A tag a word, in the IOB2 scheme: int64 [n, words], -1 after a row's last word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError
from common.kinds.base import ANSWERED_FROM, Contexts, Definition, Kind, LabelIndex, PaddedKind, items_of
from common.kinds.iob import check_tags
from common.kinds.ragged import count_words

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


class Tags(PaddedKind):
    """A tag a word, in the IOB2 scheme: int64 [n, words], -1 after a row's last word. A row is one text."""

    name = "tags"
    labelled_things = "words"
    metrics = ("entity_f1", "entity_precision", "entity_recall", "accuracy")
    default_metrics = metrics[:3]
    has_classes = False
    labels_heading = "words by label"
    files = "tagged"
    prediction = "predicted_tags"

    def check(self, task: Definition) -> None:
        super().check(task)
        if task.pair:
            raise ValueError("kind: a task of kind tags has single texts")
        if "unlabelled" in task.source.files or task.source.where or task.source.header:
            raise ValueError(
                "kind: files of kind tags have a word and its tag on each line, so no where, header or unlabelled"
            )
        if task.columns != {"sentence1": "text", "label": "label"}:
            raise ValueError(
                "kind: files of kind tags have no columns: a line starts with the word and ends with its tag"
            )
        check_tags(task.labels)

    def check_student(self, task: Definition, arch: str, attends: bool, symmetric: bool) -> None:
        if arch == "ffn":
            raise UserError(
                f"{task.name} has a label for every word, but an FFN has one state per text: use another student"
            )

    def shape(self, task: Definition) -> tuple[int, ...]:
        return (1,)

    def word_counts(self, first: Sequence[str], second: Sequence[str] | None) -> np.ndarray:
        return count_words(first)

    def answer_reader(self, task: Definition, label: LabelIndex, predicted: bool) -> Callable[[Any], np.ndarray]:
        """Return a function from tags, a list or separated by spaces, to logits [words, outputs]."""
        one = super().answer_reader(task, label, predicted)
        return lambda cell: np.array([one(tag) for tag in items_of(cell, " ")]).reshape(-1, len(task.labels))

    def label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy. logits: of all words, [words, outputs]; targets: padded, [batch, words]."""
        return Kind.label_loss(self, logits, targets[targets >= 0])

    def compared(self, logits: Tensor, teacher: Tensor, distributions: bool) -> tuple[Tensor, Tensor]:
        """Return the logits of all words, concatenated; the teacher's are padded, [batch, words, outputs]."""
        return logits, teacher[~teacher[..., 0].isnan()]

    def choices(self, task: Definition, logits: np.ndarray, threshold: float = ANSWERED_FROM) -> np.ndarray:
        return np.where(np.isnan(logits[..., 0]), -1, logits.argmax(-1))

    def fill(self, labels: np.ndarray, labelled: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> np.ndarray:
        """Return labels in which rows without tags have a teacher's; the longest text may have none."""
        more = max(0, chosen.shape[1] - labels.shape[1])
        return super().fill(np.pad(labels, ((0, 0), (0, more)), constant_values=-1), labelled, chosen, contexts)

    def confidence(self, task: Definition, logits: np.ndarray) -> np.ndarray:
        """Return the probability of the least certain word's tag, float32 [n]."""
        highest = 1 / np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)
        return np.where(np.isnan(highest), 1, highest).min(1)

    def scores(self, task: Definition, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, float]:
        """Return entity metrics, those of conlleval and seqeval, and the accuracy over words.

        An entity is found if all its words and its kind are right, and an I- tag need not continue an entity.
        """
        from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

        true, predicted = ([[task.labels[i] for i in row[row >= 0]] for row in values] for values in (labels, chosen))
        precision, recall, f1, _ = precision_recall_fscore_support(true, predicted, average="micro", zero_division=0)
        accuracy = (labels[labels >= 0] == chosen[chosen >= 0]).mean()
        scores = {"entity_f1": f1, "entity_precision": precision, "entity_recall": recall, "accuracy": accuracy}
        return {name: float(scores[name]) for name in task.all_metrics}

    def prediction_columns(self, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, pa.Array]:
        return Kind.prediction_columns(self, labels[labels >= 0], chosen[chosen >= 0], contexts)
