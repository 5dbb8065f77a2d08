"""The work of evaluate.py: scores of any saved model on a task's test splits, as rows of results.json."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.settings import StageSettings
from common.store.workspace import Workspace
from compression.evaluation.result_cache import (
    data_fingerprint,
    has_validation,
    result_file,
    saved_rows,
    validation_fingerprint,
)

if TYPE_CHECKING:
    import numpy as np

    from common.data.data import Split
    from common.teachers import Teacher
    from common.training.models import ModelConfig

    Predictor = Callable[[Split], np.ndarray]

TIMED_PASSES = 3


class EvaluateSettings(StageSettings):
    """Settings of evaluate.py (the thesis's table C.4 and what goes beyond it)."""

    model_name: str
    """Model to score: its name in the workspace, or the path of its folder."""
    arch: str | None = None
    """Check that the model has this architecture."""
    split: Literal["test", "validation", "train"] = "test"
    """Rows to score; test means every test split of the task."""
    packed: bool = False
    """Score the student's packed file by compression.runtime, without PyTorch. Nothing is saved then."""
    time: bool = False
    """Also time the model: sentences a second, and milliseconds for one sentence alone."""
    json_: bool = False
    """Print the rows of results.json to stdout instead of a table."""


def evaluate(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """Score a model; save the rows in its folder (see `result_file`), and its predictions. Returns one row a split."""
    from common.data.data import load_split
    from common.store.workspace import write_json
    from common.training.models import find_model
    from compression.evaluation.predictions import write_predictions

    task = load_task(settings.task)
    folder, config = find_model(settings.paths, task, settings.model_name, settings.arch)
    predict = packed_predictor(folder, config) if settings.packed else load_predictor(folder, config, settings.cpu)
    same = _about_model(settings.paths, task, folder, config, predict)
    rows = []
    for name in _split_names(settings, task):
        split = load_split(settings.paths, task, name)
        started = time.perf_counter()
        logits = predict(split)
        seconds = time.perf_counter() - started
        row = identity(task, name, config, folder) | same
        row["stage"] = "packed" if settings.packed else config.stage
        row |= {"rows": len(split), "metrics": _metrics(settings.paths, task, config, name, split, logits)}
        row["data"] = data_fingerprint(settings.paths, task, name)
        row["seconds"] = {"train": _training_seconds(folder), "evaluate": round(seconds, 4)}
        if settings.time:
            row["speed"] = _speed(predict, split)
        if settings.split == "test" and not settings.packed:
            write_predictions(folder, config, task, row, split, logits)
        rows.append(row)
    if settings.split == "test" and not settings.packed:
        write_json(result_file(folder, config, task), rows)
    return rows


def _split_names(settings: EvaluateSettings, task: Task) -> tuple[str, ...]:
    if settings.split == "test":
        return task.test_splits
    if settings.split not in task.splits:
        raise UserError(f"{task.name} has no {settings.split} rows (it has: {', '.join(task.splits)})")
    return (settings.split,)


def _about_model(paths: Workspace, task: Task, folder: Path, config: ModelConfig, predict: Predictor) -> dict[str, Any]:
    """Fields that are the same for every split: sizes, settings, and a student's scores over validation.

    A teacher's pass over validation costs minutes and chooses nothing here: it has none.
    """
    from common.data.data import load_split
    from compression.evaluation.sizes import measure

    validation = None
    # A model may be scored where only test rows are.
    if has_validation(task, config) and paths.split(task.name, "validation").exists():
        split = load_split(paths, task, "validation")
        validation = _metrics(paths, task, config, "validation", split, predict(split)) or None
    trained = {} if config.trained_parameters is None else {"trained_parameters": config.trained_parameters}
    return {
        **measure(folder),
        **trained,
        "parts": _parts(folder, config),
        "settings": config.settings,
        "validation": validation,
        "validation_data": validation_fingerprint(paths, task, config),
    }


def _parts(folder: Path, config: ModelConfig) -> dict[str, int]:
    """Major part -> number of weights; an ensemble's members together."""
    from common.training.models import members_of, read_config
    from compression.evaluation.weights import parameters_by_part, stored_tensors, weights_of

    models = members_of(folder) or [folder]
    weights = (weights_of(model, read_config(model), stored_tensors(model)) for model in models)
    return parameters_by_part(itertools.chain.from_iterable(weights))


def finished_rows(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """The rows of an earlier evaluation of this very model on this very data, by these metrics; none where none was."""
    from common.training.models import find_model

    task = load_task(settings.task)
    folder, config = find_model(settings.paths, task, settings.model_name, settings.arch)
    if settings.force or settings.time or settings.packed or settings.split != "test":
        return []
    return saved_rows(settings.paths, task, folder, config)


def load_predictor(folder: Path, config: ModelConfig, cpu: bool) -> Predictor:
    """A function from a Split to logits, as in common.training.metrics.score, for a teacher or a student."""
    from common.devices import pick_device, pick_dtype

    device = pick_device(cpu)
    if config.kind == "teacher":
        from common.teachers import load_teacher

        teacher = load_teacher(folder, device, pick_dtype("auto", device))
        return lambda split: _with_bar(teacher, split, config.name)
    from compression.students.saved import load_student
    from compression.students.scoring import encode_split, student_logits

    student, tokenizer, _ = load_student(folder, device)
    return lambda split: student_logits(student, encode_split(tokenizer, split), device, config.name)


def packed_predictor(folder: Path, config: ModelConfig) -> Predictor:
    """The same of a student's packed file. Raises UserError when it is missing or damaged."""
    from compression.evaluation.classifier import load_packed

    path = folder / f"{folder.name}.fwt"
    if not path.exists():
        raise UserError(f"{path}: no such file; run: compress.py --compression-actions pack --load-trained-model")
    model = load_packed(path)
    return lambda split: model.logits(list(zip(*split.sentences(), strict=True)) if config.pair else split.sentence1)


def _with_bar(teacher: Teacher, split: Split, label: str) -> np.ndarray:
    from common.progress import counter

    with counter(label, len(split)) as advance:
        return teacher.logits(split, advance)


def identity(task: Task, split: str | None, config: ModelConfig, folder: Path) -> dict[str, Any]:
    """What identifies a row of results.json: everything but sizes and scores."""
    student = config.student
    return {
        "task": task.name,
        "split": split,
        "model": config.name,
        "stage": config.stage,
        "student_arch": config.arch if config.kind == "student" else None,
        "embedding_type": student.get("embedding_type"),
        "embedding_dim": student.get("embedding_dim"),
        "vocab_size": student.get("vocab_size"),
        "alpha": config.alpha,
        "augmented": config.augmented,
        "seed": config.seed,
        "teacher": config.teacher,
        "select_on": config.select_on,
        "run": str(folder),
        "config_hash": config.fingerprint,
    }


def _metrics(
    paths: Workspace, task: Task, config: ModelConfig, name: str, split: Split, logits: np.ndarray
) -> dict[str, float]:
    """The task's metrics over labelled rows; where no row has a label, how far a student agrees with its teacher."""
    import numpy as np

    from common.teachers.logits import load_logits
    from common.training.metrics import agreement, score

    labelled = np.flatnonzero(split.labelled)
    if len(labelled):
        return score(task, split.labels[labelled], logits[labelled])
    if config.teacher is None:
        return {}
    return agreement(task, load_logits(paths, task, config.teacher, name, split), logits)


def _training_seconds(folder: Path) -> float | None:
    """Seconds of training noted in history.jsonl; models made by pruning or quantizing have none of their own."""
    history = folder / "history.jsonl"
    if not history.exists():
        return None
    return json.loads(history.read_text(encoding="utf-8").splitlines()[-1])["seconds"]


def _speed(predict: Predictor, split: Split) -> dict[str, float]:
    """Best of a few passes, so that a busy machine disturbs least. Tokenizing is part of it."""
    import numpy as np

    from common.progress import show_bars

    show_bars(False)
    one = split.take(np.arange(1))
    return {
        "sentences_per_second": round(len(split) / _best_time(predict, split), 1),
        "milliseconds_for_one": round(1000 * _best_time(predict, one), 3),
    }


def _best_time(predict: Predictor, split: Split) -> float:
    times = []
    for _ in range(TIMED_PASSES):
        started = time.perf_counter()
        predict(split)
        times.append(time.perf_counter() - started)
    return min(times)
