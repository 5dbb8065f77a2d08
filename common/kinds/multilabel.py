"""Any number of labels a text: float32 [n, labels], 1 for each label of a row and 0 for the others, NaN if unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError
from common.kinds.base import (
    ANSWERED_FROM,
    LEAST,
    Contexts,
    Definition,
    Kind,
    LabelIndex,
    check_probabilities,
    index_of,
    items_of,
)
from common.kinds.ragged import fixed_lists, to_fixed_lists

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

JOINED_BY = "|"
"""Separator of the labels of a text in predictions, if it has several."""


class Multilabel(Kind):
    """Any number of labels a text, each predicted independently, if its probability is at least a half."""

    name = "multilabel"
    labelled_things = "texts with any number of labels"
    metrics = default_metrics = ("f1_micro", "f1_macro", "subset_accuracy")
    fields = ("label_separator",)
    independent = True
    in_lists = True
    dtype = np.float32
    unknown = np.nan
    prediction = "predicted_labels"

    def check(self, task: Definition) -> None:
        super().check(task)
        if task.equivalence is not None:
            raise ValueError("equivalence must be one of the labels of a task on pairs with one label each")
        for value in task.values:
            if not value or task.label_separator in value:
                raise ValueError(f"label {value!r} is empty or contains the label_separator {task.label_separator!r}")
        for label in task.labels:
            if JOINED_BY in label:
                raise ValueError(
                    f"label {label!r}: predictions are joined by {JOINED_BY}; rename it, with label_values"
                )

    def parser(self, task: Definition, names: Sequence[str]) -> Callable[[Any], Any]:
        index = {name: i for i, name in enumerate(names)}

        def parse(texts: Sequence[str]) -> np.ndarray:
            row = np.zeros(len(index), np.float32)
            for text in texts:
                label = index_of(text, index)
                if row[label]:
                    raise UserError(f"label {text!r} is repeated")
                row[label] = 1
            return row

        return parse

    def answer_reader(self, task: Definition, label: LabelIndex, predicted: bool) -> Callable[[Any], np.ndarray]:
        separator = JOINED_BY if predicted else task.label_separator

        def read(cell: Any) -> np.ndarray:
            chosen = np.zeros(len(task.labels))
            chosen[[label(item) for item in items_of(cell, separator)]] = 1
            return self.from_probabilities(chosen)

        return read

    def from_probabilities(self, values: np.ndarray) -> np.ndarray:
        """Return logits whose sigmoid is the probabilities, each from LEAST to 1 - LEAST."""
        check_probabilities(values)
        values = values.clip(LEAST, 1 - LEAST)
        return np.log(values / (1 - values)).astype(np.float32)

    def shape(self, task: Definition) -> tuple[int, ...]:
        return (len(task.labels),)

    def known(self, labels: np.ndarray) -> np.ndarray:
        """Return which rows have a list of labels, even an empty one, bool [n]. Unknown ones are NaN, saved ones -1."""
        return (labels >= 0).all(1)

    def column(self, labels: np.ndarray) -> pa.Array:
        return to_fixed_lists(labels)

    def from_column(self, column: pa.ChunkedArray) -> np.ndarray:
        return fixed_lists(column)

    def counts(self, labels: np.ndarray, task: Definition) -> np.ndarray:
        return np.nansum(labels, 0, np.float64).astype(np.int64)

    def classes(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.nonzero(labels)

    def labels_of_a_row(self, labels: np.ndarray) -> dict[str, Any]:
        counts = labels[self.known(labels)].sum(1)
        mean = round(float(counts.mean()), 4) if len(counts) else 0.0
        return {"labels_a_row": mean, "none": int((counts == 0).sum())}

    def label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the binary cross-entropy, a mean over labels too."""
        from torch.nn import functional as F

        return F.binary_cross_entropy_with_logits(logits, targets)

    def choices(self, task: Definition, logits: np.ndarray, threshold: float = ANSWERED_FROM) -> np.ndarray:
        """Return 1 for each label whose probability, the sigmoid of its logit, is at least a half, else 0."""
        return (logits >= 0).astype(np.float32)

    def confidence(self, task: Definition, logits: np.ndarray) -> np.ndarray:
        """Return the probability of the least certain label, float32 [n]."""
        return (1 / (1 + np.exp(-np.abs(logits)))).min(1)

    def right(self, labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return (chosen == labels).all(1)

    def prediction_columns(self, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, pa.Array]:
        columns = {"label": np.where(self.known(labels)[:, None], labels, -1), "prediction": chosen}
        return {name: to_fixed_lists(values.astype(np.int64)) for name, values in columns.items()}

    def from_predictions(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return int64 [n, labels]. Raises ValueError if the column has no lists."""
        if not hasattr(column.type, "list_size"):
            raise ValueError(f"a column of type {column.type}")
        return fixed_lists(column)
