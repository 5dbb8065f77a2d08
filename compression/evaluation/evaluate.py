"""Scores of any saved model on a task's test splits, as rows of results.json."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pydantic

from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.artifact import Artifact, artifact_at, find, folder_of, read_manifest
from common.store.files import read_json, write_json
from common.store.settings import StageSettings
from common.store.step import Context, Step
from common.store.store import Store
from common.store.workspace import Workspace
from compression.evaluation.models import data_fingerprint, has_validation, validation_fingerprint

if TYPE_CHECKING:
    import numpy as np

    from common.data.split import Split
    from common.teachers.base import Teacher
    from common.training.models import ModelConfig

    Predictor = Callable[[Split], np.ndarray]

TIMED_PASSES = 3
RESULT_FILE = "result.json"


class EvaluateSettings(StageSettings):
    """Evaluation (the thesis's table C.4, and more)."""

    most_used = ("task", "model_name", "split", "packed", "time", "json_")

    model_name: str
    """Model to score: its name in the workspace, or the path of its folder."""
    arch: str | None = None
    """Check that the model has this architecture."""
    split: Literal["test", "validation", "train"] = "test"
    """Rows to score; test: every test split of the task."""
    packed: bool = False
    """Score the student's packed file by compression.runtime, without PyTorch. Nothing is saved then."""
    time: bool = False
    """Also time the model: sentences per second, and milliseconds for a single sentence."""
    json_: bool = False
    """Print the rows of results.json to stdout instead of a table."""


class Evaluate(Step):
    """A model's scores on a task's test splits. Files: result.json, predictions-<split>.parquet."""

    task: str
    settings: EvaluateSettings = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the model, the splits, and its teacher's logits over splits without labels."""
        return evaluation_inputs(paths, load_task(self.settings.task), *_model(self.settings))

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Score every test split."""
        folder, config = _model(self.settings)
        rows = _rows(self.settings, folder, config, load_predictor(folder, config, self.settings.cpu), out)
        write_json(out / RESULT_FILE, [{**row, "evaluation": context.key} for row in rows])
        return {"model": config.name}


def evaluate(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """Score a model. Returns one row a split; scores of an unchanged model on unchanged test splits are reused.

    Only scores on test splits, of the model itself and without timing, are kept.
    """
    folder, config = _model(settings)
    if settings.packed or settings.time or settings.split != "test":
        predict = packed_predictor(settings, folder, config) if settings.packed else None
        predict = predict or load_predictor(folder, config, settings.cpu)
        return _rows(settings, folder, config, predict, None)
    task = load_task(settings.task)
    alias = settings.paths.scores(task.name, config.task, config.name)
    step, context = Evaluate(task=task.name, settings=settings), settings.context(f"scores of {config.name}")
    scores = settings.paths.make(step, context, alias=alias, replace=True)
    return kept_rows(scores.path, folder, config)


def finished_rows(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """Return the rows of an earlier evaluation of this very model on this very data; none where there was none."""
    folder, config = _model(settings)
    return saved_rows(settings.paths, load_task(settings.task), folder, config)


def evaluation_inputs(paths: Workspace, task: Task, folder: Path, config: ModelConfig) -> dict[str, Artifact]:
    """Return what a model's scores depend on: the model, the splits, its teacher's logits over unlabelled splits.

    Raises UserError for one that is missing.
    """
    from common.data.split import find_splits
    from common.teachers.logits import find_logits

    splits = find_splits(paths, task)
    labelled = read_manifest(splits.path).facts["labelled"]
    names = (*task.test_splits, *(["validation"] if has_validation(task, config) else []))
    unlabelled = [name for name in names if not labelled.get(name, 1)] if config.teacher else []
    logits = {f"logits {name}": find_logits(paths, task, config.teacher, name) for name in unlabelled}
    return {"model": artifact_at(folder), "splits": splits, **logits}


def saved_rows(paths: Workspace, task: Task, folder: Path, config: ModelConfig) -> list[dict[str, Any]]:
    """Return a model's saved rows over the task's test splits, none where it was not scored as it is now."""
    settings = EvaluateSettings(task=task.argument, workspace=paths.root, model_name=str(folder))
    try:
        key = Evaluate(task=task.name, settings=settings).key(evaluation_inputs(paths, task, folder, config))
    except UserError:
        return []
    scores = Store(paths.root).get(key)
    return kept_rows(scores.path, folder, config) if scores else []


def kept_rows(scores: Path, folder: Path, config: ModelConfig) -> list[dict[str, Any]]:
    """Return the rows in a folder of scores, under the name and place that the model has now."""
    return [{**row, "model": config.name, "run": str(folder)} for row in read_json(scores / RESULT_FILE)]


def _model(settings: EvaluateSettings) -> tuple[Path, ModelConfig]:
    from common.training.models import find_model

    return find_model(settings.paths, load_task(settings.task), settings.model_name, settings.arch)


def _rows(
    settings: EvaluateSettings, folder: Path, config: ModelConfig, predict: Predictor, out: Path | None
) -> list[dict[str, Any]]:
    """Return a row for each split. out: folder for the predictions, if they are kept."""
    from common.data.split import load_split
    from compression.evaluation.predictions import write_predictions

    task, paths = load_task(settings.task), settings.paths
    same = _about_model(paths, task, folder, config, predict)
    rows = []
    for name in _split_names(settings, task):
        split = load_split(paths, task, name)
        started = time.perf_counter()
        logits = predict(split)
        seconds = time.perf_counter() - started
        row = identity(task, name, config, folder) | same
        row["stage"] = "packed" if settings.packed else config.stage
        row |= {"rows": len(split), "metrics": _metrics(paths, task, config, name, split, logits)}
        row["data"] = data_fingerprint(paths, task, name)
        row["seconds"] = {"train": _training_seconds(folder), "evaluate": round(seconds, 4)}
        if settings.time:
            row["speed"] = _speed(predict, split)
        if out is not None:
            write_predictions(out, task, row, split, logits)
        rows.append(row)
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
    from common.data.split import load_split
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


def load_predictor(folder: Path, config: ModelConfig, cpu: bool) -> Predictor:
    """A function from a Split to logits, as in common.training.metrics.score, for a teacher or a student."""
    from common.devices import pick_device, pick_dtype

    device = pick_device(cpu)
    if config.kind == "teacher":
        from common.teachers.load import load_teacher

        teacher = load_teacher(folder, device, pick_dtype("auto", device))
        return lambda split: _with_bar(teacher, split, config.name)
    from compression.students.saved import load_student
    from compression.students.scoring import encode_split, student_logits

    student, tokenizer, _ = load_student(folder, device)
    return lambda split: student_logits(student, encode_split(tokenizer, split), device, config.name)


def packed_predictor(settings: EvaluateSettings, folder: Path, config: ModelConfig) -> Predictor:
    """Return the same for a student's packed file. Raises UserError when it is missing, damaged or out of date."""
    from compression.evaluation.packed import load_packed

    path = settings.paths.packed(config.task, folder.name)
    command = f"compress.py --task {settings.task} --compression-actions pack --load-trained-model {config.name}"
    packed = find(path, f"run: python {command}")
    if read_manifest(folder_of(packed.path)).inputs["model"] != config.key:
        raise UserError(f"{path}: packed from another model than {config.name} is now; run: python {command}")
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
        "config_hash": config.key,
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
    return agreement(task, load_logits(paths, task, config.teacher, name), logits)


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
