"""Scores of a packed file by compression.runtime, without PyTorch."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from common.data.split import Split, load_split
from common.data.task_use import check_no_overlap
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.kinds.base import ANSWERED_FROM
from common.kinds.spans import of_present_words
from common.training.metrics import score
from compression.evaluation.calibration import calibration_fields
from compression.evaluation.models import F1_AT_THRESHOLD, data_fingerprint, split_names
from compression.evaluation.packed import load_packed
from compression.evaluation.rows import Row
from compression.evaluation.settings import EvaluateSettings
from compression.evaluation.speed import packed_speed
from compression.runtime import Model, to_probabilities


def score_packed(settings: EvaluateSettings, path: Path) -> list[Row]:
    """Return a row of results.json for each split, without fields that only a saved student has.

    Raises UserError for a damaged file, and for a file of another task or with other labels.
    """
    task, paths = load_task(settings.task), settings.paths
    model = load_packed(path, settings.runtime)
    check_no_overlap((model.task,), task, paths)
    check_task(model, task, path, settings.arch)
    rows = []
    for name in split_names(task, settings.split):
        row, _ = packed_row(settings, path, model, task, name, load_split(paths, task, name))
        rows.append({**row, "run": paths.relative(path), "data": data_fingerprint(paths, task, name)})
    return rows


def packed_row(
    settings: EvaluateSettings, path: Path, model: Model, task: Task, name: str, split: Split
) -> tuple[dict[str, Any], np.ndarray]:
    """Return the scores of a packed file's model on the rows of a split, and the logits. name: of the split."""
    started = time.perf_counter()
    logits, threshold = packed_logits(model, split), scored_threshold(model)
    seconds = time.perf_counter() - started
    row = {"task": task.name, "split": name, "model": path.stem, "stage": "packed"}
    row |= {"student_arch": model.arch, "embedding_type": model.embedding, "bytes_packed": path.stat().st_size}
    row |= {"rows": len(split), "metrics": labelled_score(task, split, logits, model.temperature, threshold)}
    row |= fitted_fields(task, split, logits, model.temperature, threshold)
    row["seconds"] = {"evaluate": round(seconds, 4)}
    if settings.time:
        row["speed"] = packed_speed(path, settings.runtime, split, settings.watts)
    return row, logits


def scored_threshold(model: Model) -> float | None:
    """Return the threshold that scores depend on; None if the model rejects texts: it is scored by all its labels."""
    return None if model.rejects else model.threshold


def check_task(model: Model, task: Task, path: Path, arch: str | None = None) -> None:
    """Raise UserError if a packed file's task, labels or architecture differ from the given ones."""
    if arch not in (None, model.arch):
        raise UserError(f"{path}: a {model.arch}, not a {arch}")
    if model.task != task.models_task:
        raise UserError(f"{path} was trained for task {model.task}, not {task.models_task}")
    if (model.pair, model.kind) != (task.pair, task.kind.name):
        raise UserError(f"{path} has other inputs or outputs than {task.name}; the task was probably changed")
    if model.labels != task.labels:
        learned, of_task = (", ".join(labels) or "none" for labels in (model.labels, task.labels))
        raise UserError(f"{path} learned the labels {learned}, {task.name} has {of_task}")


def packed_logits(model: Model, split: Split) -> np.ndarray:
    """Return a packed model's logits for a split's texts or pairs, float32 [n, outputs].

    They are [n, words, outputs] for tasks that label words, and [n, 1 + words, 2] for questions; NaN after a row's last
    word.
    """
    logits = model.logits(list(zip(*split.sentences(), strict=True)) if model.pair else split.sentence1)
    if split.sentence2 and split.kind.always_pairs and model.plain_words:
        return of_present_words(logits, split.sentence2)
    return logits


def labelled_score(
    task: Task, split: Split, logits: np.ndarray, temperature: float | None = None, threshold: float | None = None
) -> dict[str, float]:
    """Return the task's metrics over a split's labelled rows; empty if no row has a label.

    logits: of all rows, as `packed_logits` returns them.

    If the task is scored by F1 and there is a threshold, which applies to the probabilities at `temperature`,
    F1_AT_THRESHOLD is included. For questions, the threshold is the minimum probability of an answer.
    """
    rows = np.flatnonzero(split.labelled)
    if not len(rows):
        return {}
    contexts = None if split.sentence2 is None else [split.sentence2[row] for row in rows]
    answered_from = ANSWERED_FROM if threshold is None else threshold
    labels, metrics = split.labels[rows], score(task, split.labels[rows], logits[rows], contexts, answered_from)
    if threshold is not None and "f1" in metrics:
        answered = to_probabilities(logits[rows], temperature or 1.0)[:, 1] >= threshold
        metrics[F1_AT_THRESHOLD] = float(f1_score(labels, answered, zero_division=0.0))
    return metrics


def fitted_fields(
    task: Task, split: Split, logits: np.ndarray, temperature: float | None, threshold: float | None
) -> dict[str, Any]:
    """Return the fields of a row of results.json with the threshold and the calibration, if there are any."""
    fields = {} if threshold is None else {"threshold": round(threshold, 6)}
    rows = np.flatnonzero(split.labelled)
    if task.kind.has_probabilities and len(rows):
        fields |= calibration_fields(logits[rows], split.labels[rows], temperature)
    return fields
