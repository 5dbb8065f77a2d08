"""What a kind of task is: the form of its labels and logits, and everything that depends on it.

A kind reads labels, says which of them are known, turns them into targets, logits into choices, and both into a loss
and scores, and describes its labels in reports and predictions. Kinds have no state: one object of each is registered
in `common.kinds.registry`. Pairs of texts are a property of a task, not a kind.

PyTorch, pyarrow and scikit-learn are imported by the methods that need them: a packed file predicts without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from common.errors import UserError
from common.kinds.ragged import from_lists, join_padded, to_lists

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

ANSWERED_FROM = 0.5
"""Least probability of an answer to a question that may have none, if no threshold is given."""
LEAST = 1e-3
"""Least probability of a label in a teacher's answers, so that its logit is finite; an answer without one counts as
1."""
_TOLERANCE = 0.01
"""How far the sum of probabilities may differ from 1: they may be rounded."""

_SHOWN = 60
Contexts = Sequence[str] | None
"""For answers, the second texts of all rows; others may have none."""
LabelIndex = Callable[[Any], int]
"""Function from a cell with a label to its index; raises UserError."""


class Definition(Protocol):
    """The fields of a task that kinds read; see common.data.tasks.Task."""

    name: str
    labels: tuple[str, ...]
    label_values: tuple[str, ...]
    range: tuple[float, float] | None
    unanswerable: bool
    symmetric: bool
    equivalence: str | None
    source: Any
    columns: Mapping[Any, str]
    values: tuple[str, ...]
    pair: bool
    all_metrics: tuple[str, ...]


class Kind:
    """Base of the kinds. Its methods suit labels of rows, one value a row; others are overridden.

    n: number of rows; outputs: width of a model's output. Arrays of labels are as in common.data.split.Split, logits
    are float32 [n, outputs] or, by word, [n, words, outputs] with NaN after a row's last word.
    """

    name: ClassVar[str]
    """Value of `kind` in a task's YAML file."""
    labelled_things: ClassVar[str] = "texts"
    """What its models label, for messages."""
    metrics: ClassVar[tuple[str, ...]]
    """Metrics that a task may name."""
    default_metrics: ClassVar[tuple[str, ...]]
    """Metrics of a task that names none; the first one chooses checkpoints."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Fields of a task's YAML that only this kind has."""
    fixed_labels: ClassVar[tuple[str, ...]] = ()
    """Names of a model's outputs, if tasks do not name them."""
    by_word: ClassVar[bool] = False
    """Whether models have logits for each word (with pairs, of the second text), not for a text."""
    always_pairs: ClassVar[bool] = False
    """Whether all rows have two texts, of which the second one may be shared by several rows."""
    has_classes: ClassVar[bool] = True
    """Whether a row is of one or several of the task's labels, so that every split needs rows of each."""
    one_class: ClassVar[bool] = False
    """Whether a row has exactly one of the task's labels."""
    has_probabilities: ClassVar[bool] = True
    """Whether an answer to a text is a probability for each label, which a temperature calibrates."""
    is_scaled: ClassVar[bool] = False
    """Whether answers are numbers, scaled by the task's YAML file."""
    independent: ClassVar[bool] = False
    """Whether each label has its own probability, a sigmoid, not a share of a softmax."""
    value_names: ClassVar[tuple[str, ...]] = ()
    """Names of the values of an answer, if they are not the labels'."""
    labels_heading: ClassVar[str] = "label"
    """Heading of the counts of labels in the report."""
    in_lists: ClassVar[bool] = False
    """Whether a file has a list of labels for each row, not one label."""
    dtype: ClassVar[type[np.generic]] = np.int64
    unknown: ClassVar[float] = -1
    """Value of an unknown label, and of padding."""
    has_distributions: ClassVar[bool] = True
    """Whether logits are of distributions over labels or words, which some losses compare."""
    augments: ClassVar[bool] = True
    """Whether words of its texts may be replaced."""
    for_fairseq: ClassVar[bool] = False
    """Whether fairseq's loop trains teachers for it: with one class or one number a text."""
    files: ClassVar[str] = "tables"
    """Form of its files: a key of common.data.readers.tables.READERS."""
    prediction: ClassVar[str] = "predicted_label"
    """Column of its answers in files of predictions."""

    # The task

    def outputs(self, labels: Sequence[str]) -> int:
        """Return the width of a model's output."""
        return len(labels)

    def check(self, task: Definition) -> None:
        """Raise ValueError if a task's YAML file is not one of this kind."""
        if len(task.labels) < 2:
            raise ValueError("give two or more labels, or kind: numbers and a range")

    def check_student(self, task: Definition, arch: str, attends: bool, symmetric: bool) -> None:
        """Raise UserError if a student cannot learn such a task. attends: whether words read those of another text."""

    def check_adoption(self, task: Definition, arch: str, ours: bool) -> None:
        """Raise UserError if a classifier cannot be the task's teacher without training. ours: whether it is ours."""

    # Answers of other models

    def answer_reader(self, task: Definition, label: LabelIndex, predicted: bool) -> Callable[[Any], np.ndarray]:
        """Return a function from a cell with a model's answer to the logits of a row.

        predicted: whether the column is one that predict.py writes. The function raises UserError.
        """
        certain = [self.from_probabilities(row) for row in np.eye(len(task.labels))]
        return lambda cell: certain[label(cell)]

    def from_probabilities(self, values: np.ndarray) -> np.ndarray:
        """Return logits with a mean of 0, whose softmax is the probabilities, each at least about LEAST.

        Raises UserError if the values, float64 [labels], are not probabilities.
        """
        check_probabilities(values)
        if abs(values.sum() - 1) > _TOLERANCE:
            raise UserError(f"the probabilities sum to {values.sum():.4g}, not to 1")
        logits = np.log(np.maximum(values, LEAST))
        return (logits - logits.mean()).astype(np.float32)

    def word_counts(self, first: Sequence[str], second: Sequence[str] | None) -> np.ndarray | None:
        """Return the number of logits of each output in each row of texts, int64 [n]; None if it is 1."""

    def compact_logits(self, logits: np.ndarray) -> np.ndarray:
        """Return a teacher's logits as a small file has them."""
        return logits

    # Labels

    def parser(self, task: Definition, names: Sequence[str]) -> Callable[[Any], Any]:
        """Return a function from a label in a table, or a list of labels, to its row of the array of labels.

        names: the labels' values in the files, normalised. The function raises UserError.
        """
        index = {name: i for i, name in enumerate(names)}
        return lambda text: index_of(text, index)

    def unknown_labels(self, rows: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the labels of rows without any. shape: of a row's labels."""
        return np.full((rows, *shape), self.unknown, self.dtype)

    def shape(self, task: Definition) -> tuple[int, ...]:
        """Return the shape of a row's labels, the smallest one if they are padded."""
        return ()

    def known(self, labels: np.ndarray) -> np.ndarray:
        """Return which rows (or words, or answers) have a label: bool [n], or [n, words] if they are padded."""
        return ~np.isnan(labels) if np.isnan(self.unknown) else labels >= 0

    def labelled(self, labels: np.ndarray) -> np.ndarray:
        """Return which rows have a label, bool [n]."""
        return self.known(labels)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return labels of several groups of rows as one array."""
        return np.concatenate(parts)

    def join_logits(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return logits of several groups of rows as one array."""
        return np.concatenate(parts)

    def column(self, labels: np.ndarray) -> pa.Array:
        """Return labels as a column of a Parquet file."""
        import pyarrow as pa

        return pa.array(labels, pa.from_numpy_dtype(self.dtype))

    def from_column(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return the labels in a column that `column` returned."""
        return column.to_numpy()

    def counts(self, labels: np.ndarray, task: Definition) -> np.ndarray | None:
        """Return how many rows (or words) have each of the task's labels, int64 [labels]; None without classes."""
        return np.bincount(labels[labels >= 0], minlength=len(task.labels))

    def classes(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and the class of each label, int64 [n], by which n-grams are chosen. labels: all known.

        Raises UserError if rows have no classes.
        """
        raise UserError(f"--embedding-type ngrams: n-grams are chosen by labels of texts, not by {self.name}")

    def balance(self, labels: np.ndarray, task: Definition) -> dict[str, Any]:
        """Return what the report says about labels: for each name a number, or {"rows": count, "share": share}."""
        counts = self.counts(labels, task)
        return shares(dict(zip(task.labels, counts.tolist(), strict=True)), np.count_nonzero(self.known(labels)))

    def labels_of_a_row(self, labels: np.ndarray) -> dict[str, Any]:
        """Return what the report says about numbers of labels a row, if they differ."""
        return {}

    # Training

    def targets(self, task: Definition, labels: np.ndarray, contexts: Contexts = None) -> np.ndarray:
        """Return what a model is trained to predict."""
        return labels

    def label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a batch's targets: a mean over its rows, or words. logits: as a model's `for_loss`."""
        from torch.nn import functional as F

        return F.cross_entropy(logits, targets)

    def compared(self, logits: Tensor, teacher: Tensor, distributions: bool) -> tuple[Tensor, Tensor]:
        """Return the logits of a student and a teacher as a loss reads them.

        distributions: whether it compares distributions, of which each has a row.
        """
        return logits, teacher

    # Answers

    def choices(self, task: Definition, logits: np.ndarray, threshold: float = ANSWERED_FROM) -> np.ndarray:
        """Return labels for logits. threshold: least probability of an answer, if there may be none."""
        return logits.argmax(1)

    def fill(self, labels: np.ndarray, labelled: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> np.ndarray:
        """Return labels in which rows without one have a teacher's choice.

        labelled: bool [n]; chosen: choices for the rows that are not labelled; contexts: second texts of all rows.
        """
        labels = labels.copy()
        labels[~labelled] = chosen
        return labels

    def confidence(self, task: Definition, logits: np.ndarray) -> np.ndarray:
        """Return the probability of the choices, float32 [n]. Raises UserError if there are none."""
        return 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)

    def scores(self, task: Definition, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, float]:
        """Return the task's metrics by name; here those of classes, or of several labels a row, 1 or 0, [n, labels].

        labels: all known; chosen: as `choices` returns them. accuracy, f1 (of class 1; equation 6.9 of the thesis) and
        f1_macro lie in [0, 1], matthews in [-1, 1], 0 if choices are constant. With several labels, f1_micro is over
        all pairs of text and label, f1_macro is the mean of the labels' F1, and subset_accuracy is the share of texts
        with exactly the right labels.
        """
        from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

        functions = {
            "accuracy": lambda: accuracy_score(labels, chosen),
            "f1": lambda: f1_score(labels, chosen, zero_division=0.0),
            "f1_micro": lambda: f1_score(labels, chosen, average="micro", zero_division=0.0),
            "f1_macro": lambda: f1_score(labels, chosen, average="macro", zero_division=0.0),
            "subset_accuracy": lambda: accuracy_score(labels, chosen),  # share of exact matches
            "matthews": lambda: matthews_corrcoef(labels, chosen),
        }
        return {name: float(functions[name]()) for name in task.all_metrics}

    def agreement(self, expected: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
        """Return how well a student's choices agree with a teacher's, by the name of the metric."""
        return {"agreement": float(self.right(expected, chosen).mean())}

    def right(self, labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return which rows (or words) have the right answer, bool [n]."""
        return chosen == labels

    # Saved predictions

    def prediction_columns(self, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, pa.Array]:
        """Return the columns of saved predictions: `label` and `prediction`, one value a row (or word)."""
        import pyarrow as pa

        dtype = np.promote_types(self.dtype, np.int64)
        label = pa.array(labels.astype(dtype), mask=~self.known(labels))
        return {"label": label, "prediction": pa.array(chosen.astype(dtype))}

    def from_predictions(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return a column of `prediction_columns`, unknown labels as -1 or NaN. Raises ValueError if it is no such."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if column.type != pa.from_numpy_dtype(np.promote_types(self.dtype, np.int64)):
            raise ValueError(f"a column of type {column.type}")
        return pc.fill_null(column, self.unknown).to_numpy()


class Labels(Kind):
    """One label a text: the index of its class, int64 [n], -1 if unknown."""

    name = "labels"
    metrics = ("accuracy", "f1", "f1_macro", "matthews")
    default_metrics = ("accuracy",)
    one_class = True
    for_fairseq = True

    def classes(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(len(labels)), labels


class PaddedKind(Kind):
    """Base of the kinds whose models have logits for each word: rows of different length, padded to the longest.

    Labels are int64 [n, words, ...], -1 after a row's last one; logits [n, words, outputs], then NaN.
    """

    by_word = True
    has_probabilities = False

    def labelled(self, labels: np.ndarray) -> np.ndarray:
        return self.known(labels).any(1)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return join_padded(parts, self.unknown)

    def join_logits(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return join_padded(parts, np.nan)

    def column(self, labels: np.ndarray) -> pa.Array:
        import pyarrow as pa

        return to_lists(labels, self.known(labels), pa.int32())

    def from_column(self, column: pa.ChunkedArray) -> np.ndarray:
        return from_lists(column, self.unknown).astype(self.dtype)


def check_probabilities(values: np.ndarray) -> None:
    """Raise UserError if a value is not from 0 to 1."""
    wrong = values[(values < 0) | (values > 1)]
    if len(wrong):
        raise UserError(f"{wrong[0]:g} is not a probability")


def finite_numbers(cells: Sequence[Any]) -> np.ndarray:
    """Return cells as numbers, float64 [n]. Raises UserError for one that is not a finite number."""
    values = []
    for cell in cells:
        try:
            value = math.nan if isinstance(cell, bool) else float(cell)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"not a number: {str(cell)[:_SHOWN]!r}")
        values.append(value)
    return np.array(values)


def items_of(cell: Any, separator: str) -> list[Any]:
    """Return the items of a list, or of a text with a separator between them. Raises UserError for anything else."""
    if isinstance(cell, str):
        return cell.split(separator) if cell.strip() else []
    if not isinstance(cell, list):
        raise UserError(f"expected a list, found {str(cell)[:_SHOWN]!r}")
    return cell


def index_of(text: str, index: Mapping[str, int], what: str = "label") -> int:
    """Return a label's index. Raises UserError, with the nearest name, for an unknown label. what: its name there."""
    from common.config import nearest

    if text not in index:
        names = list(index)
        listed = ", ".join([*names[:10], *(["..."] if len(names) > 10 else [])])
        raise UserError(f"unknown {what} {text[:80]!r}; expected {listed}{nearest(text[:80], index)}")
    return index[text]


def shares(counts: Mapping[str, int], total: int) -> dict[str, Any]:
    """Return counts with their shares of a total, as the report has them."""
    return {name: {"rows": count, "share": round(count / max(1, total), 4)} for name, count in counts.items()}
