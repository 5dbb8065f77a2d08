"""A model's saved predictions on a test split. Predictions of another model or on other data are rejected."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common.data.ragged import fixed_lists, known
from common.data.spans import texts_of, to_characters
from common.data.split import Split, read_metadata, read_table
from common.data.tasks import Task
from common.errors import UserError
from common.store.files import whole_file
from common.training.answers import row_scores
from common.training.targets import ANSWERED_FROM, choices


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A model's predictions for the rows of a split, in order, or for all words of its rows.

    labels: int64 [n], -1 if unknown, or for regression float64 [n], NaN if unknown;
    choices: class indices int64 [n], or for regression scores float64 [n] in the task's range.
    For multilabel both are int64 [n, labels]: 1 for the labels of a row, 0 for the others.
    """

    labels: np.ndarray
    choices: np.ndarray

    @property
    def regression(self) -> bool:
        """Whether the predictions are scores instead of classes."""
        return self.choices.dtype.kind == "f"

    @property
    def multilabel(self) -> bool:
        """Whether a row has any number of labels."""
        return self.choices.ndim == 2

    @property
    def labelled(self) -> np.ndarray:
        """bool [n]: which rows have a label."""
        return known(self.labels).all(1) if self.multilabel else known(self.labels)

    @property
    def right(self) -> np.ndarray:
        """bool [n]: which rows have the right class, or for multilabel exactly the right labels."""
        same = self.choices == self.labels
        return same.all(1) if self.multilabel else same


def predictions_file(scores: Path, split: str) -> Path:
    """Return the path of the predictions on a split in a folder of scores."""
    return scores / f"predictions-{split}.parquet"


def write_predictions(scores: Path, task: Task, row: dict[str, Any], split: Split, logits: np.ndarray) -> None:
    """Save the predictions behind a row of results.json: one per row, or for token tasks one per word.

    For spans, the answers' texts are saved, each with its scores.

    split: the scored rows; logits: as in common.training.metrics.score.
    """
    kind = pa.float64() if task.regression else pa.int64()
    predicted = choices(task, logits, row.get("threshold", ANSWERED_FROM))
    values, labelled = split.labels, split.labelled
    if task.spans:
        contexts = split.sentence2 or []
        answers = [text for (text,) in texts_of(to_characters(predicted, contexts), contexts)]
        exact, f1 = row_scores(answers, texts_of(values, contexts)).T
        scored = {"exact_match": pa.array(exact, mask=~labelled), "answer_f1": pa.array(f1, mask=~labelled)}
        _write(scores, row, pa.table({"prediction": answers, **scored}))
        return
    if task.multilabel:
        labels = np.where(labelled[:, None], values, -1)
        table = pa.table({"label": _lists(labels), "prediction": _lists(predicted)})
        _write(scores, row, table)
        return
    if task.tokens:
        labelled = np.ones(np.count_nonzero(known(predicted)), bool)
        values, predicted = values[known(values)], predicted[known(predicted)]
    labels = pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=~labelled)
    _write(scores, row, pa.table({"label": labels, "prediction": pa.array(predicted, kind)}))


def _lists(values: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.int64).ravel()), values.shape[1])


def _write(scores: Path, row: dict[str, Any], table: pa.Table) -> None:
    with whole_file(predictions_file(scores, row["split"])) as partial:
        pq.write_table(table.replace_schema_metadata(_source(row)), partial, compression="zstd")


def find_scores(workspace: Path, row: dict[str, Any]) -> Path | None:
    """Return the folder of scores that a row of results.json comes from, or None if it no longer exists.

    workspace: also searched, in case the row's workspace was moved.
    """
    stores = (Path(row["run"]).parent.parent.parent / "store", workspace / "store")
    folders = (store / row.get("evaluation", "none") for store in stores)
    return next((folder for folder in folders if folder.is_dir()), None)


def read_predictions(scores: Path, row: dict[str, Any]) -> Predictions:
    """Return the predictions behind a row of results.json, from its folder of scores.

    Raises UserError if they are missing or damaged, or do not belong to the row's model and data.
    """
    path = predictions_file(scores, row["split"])
    again = f"run: python evaluate.py --task {row['task']} --model-name {row['model']}"
    table = read_table(path, again)
    if read_metadata(path) != _source(row):
        raise UserError(f"{path}: predictions of another model or of other data; {again}")
    if "answer_f1" in table.column_names:
        raise UserError(f"{path}: predictions of question answering, which have no labels to compare")
    types = {table.schema.field(name).type for name in table.column_names}
    lists = all(pa.types.is_fixed_size_list(kind) for kind in types)
    if table.column_names != ["label", "prediction"] or not (lists or types in ({pa.int64()}, {pa.float64()})):
        raise UserError(f"{path}: not a file of predictions; {again}")
    if lists:
        return Predictions(fixed_lists(table["label"]), fixed_lists(table["prediction"]))
    unknown = float("nan") if types == {pa.float64()} else -1
    return Predictions(pc.fill_null(table["label"], unknown).to_numpy(), table["prediction"].to_numpy())


def _source(row: dict[str, Any]) -> dict[str, str]:
    return {"model": row["config_hash"], "data": row["data"] or ""}
