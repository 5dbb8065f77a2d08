"""A model's saved predictions on a test split. Predictions of another model or on other data are rejected."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data.split import Split, read_metadata, read_table
from common.data.tasks import Task
from common.errors import UserError
from common.installed import typed
from common.kinds.base import ANSWERED_FROM, Kind
from common.kinds.registry import KINDS, LABELS
from common.store.files import whole_file
from compression.evaluation.rows import Row

_KIND = "kind"
"""Key of the name of the kind in a file's metadata."""
_PROBABILITY = "probability"


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A model's predictions for the rows of a split, in order, or for all words of its rows.

    labels, choices: as the `from_predictions` of their kind returns them, such as int64 [n], -1 for an unknown label;
    probabilities: of the choices, float32 [n], None if the kind has none.
    """

    labels: np.ndarray
    choices: np.ndarray
    kind: Kind = LABELS
    probabilities: np.ndarray | None = None

    @property
    def labelled(self) -> np.ndarray:
        """bool [n]: which rows have a label."""
        return self.kind.known(self.labels)

    @property
    def right(self) -> np.ndarray:
        """bool [n]: which rows have the right answer."""
        return self.kind.right(self.labels, self.choices)


def predictions_file(scores: Path, split: str) -> Path:
    """Return the path of the predictions on a split in a folder of scores."""
    return scores / f"predictions-{split}.parquet"


def write_predictions(
    scores: Path, task: Task, row: Row, split: Split, logits: np.ndarray, temperature: float | None = None
) -> None:
    """Save the predictions behind a row of results.json: one per row, or for tags one per word.

    Of answers, the texts are saved, each with its scores. Where there are probabilities, that of the prediction is
    saved, of several labels that of the least certain one. split: the scored rows; logits: as in
    common.training.metrics.score; temperature: of a student's packed file.
    """
    chosen = task.kind.choices(task, logits, row.get("threshold", ANSWERED_FROM))
    columns = task.kind.prediction_columns(split.labels, chosen, split.sentence2)
    if task.kind.has_probabilities:
        columns[_PROBABILITY] = pa.array(task.kind.confidence(task, logits / np.float32(temperature or 1)))
    table = pa.table(columns).replace_schema_metadata({**_source(row), _KIND: task.kind.name})
    with whole_file(predictions_file(scores, row["split"])) as partial:
        pq.write_table(table, partial, compression="zstd")


def find_scores(workspace: Path, row: Row) -> Path | None:
    """Return the folder of scores that a row of results.json comes from, or None if it no longer exists."""
    folder = workspace / "store" / row.get("evaluation", "none")
    return folder if folder.is_dir() else None


def read_predictions(scores: Path, row: Row) -> Predictions:
    """Return the predictions behind a row of results.json, from its folder of scores.

    Raises UserError if they are missing or damaged, or do not belong to the row's model and data.
    """
    path = predictions_file(scores, row["split"])
    again = f"run: {typed('evaluate')} --task {row['task']} --model-name {row['model']}"
    table = read_table(path, again)
    metadata = read_metadata(path)
    kind = KINDS.get(metadata.pop(_KIND, ""))
    if metadata != _source(row) or kind is None:
        raise UserError(f"{path}: predictions of another model or of other data; {again}")
    try:
        labels, choices = (kind.from_predictions(table[name]) for name in ("label", "prediction"))
        probabilities = table[_PROBABILITY].to_numpy() if _PROBABILITY in table.column_names else None
        return Predictions(labels, choices, kind, probabilities)
    except KeyError:
        raise UserError(f"{path}: predictions of {kind.name}, which have no labels to compare") from None
    except ValueError as error:
        raise UserError(f"{path}: not a file of predictions ({error}); {again}") from None


def _source(row: Row) -> dict[str, str]:
    return {"model": row["config_hash"], "data": row["data"] or ""}
