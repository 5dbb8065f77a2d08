"""Rows of results.json: a model's scores, sizes and speed on the splits of a task."""

import itertools
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from common.data.split import Split, load_split, read_metadata, read_split
from common.data.tasks import Task, load_task
from common.devices import Precision, pick_device, pick_dtype, threads
from common.errors import UserError
from common.installed import typed
from common.progress import counter, say
from common.store.artifact import find, read_manifest
from common.store.step import Inputs
from common.teachers.guided import split_file
from common.teachers.load import load_teacher
from common.teachers.logits import saved_logits
from common.training.calibration import DIGITS
from common.training.metrics import agreement
from common.training.models import ModelConfig, is_linear, members_of, read_config, read_history
from compression.evaluation.models import has_validation, identity
from compression.evaluation.packed import load_packed
from compression.evaluation.packed_scores import fitted_fields, labelled_score, scored_threshold
from compression.evaluation.predictions import write_predictions
from compression.evaluation.rows import Row
from compression.evaluation.settings import EvaluateSettings
from compression.evaluation.sizes import measure
from compression.evaluation.speed import ALONE, Predictor, packed_speed, speed, spread
from compression.evaluation.weights import parameters_by_part, stored_tensors, weights_of
from compression.packing import pack_student
from compression.runtime import Model
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.students.student import Student
from compression.students.threshold import fit_packed
from compression.students.weights import Dense, Product, replace_matrix

Shape = Sequence[int]


def score_model(
    task: Task,
    names: Sequence[str],
    inputs: Inputs,
    predict: Predictor | None,
    packed: Model | None = None,
    out: Path | None = None,
) -> list[Row]:
    """Return a row for each of the named splits. out: folder in which predictions are saved, if any.

    inputs: those of `evaluation_inputs`; predict: None for a teacher imported as logits, which is scored by these;
    packed: the packed file that predicts, if it is scored and not the model.
    """
    config = read_config(inputs["model"])
    validation, temperature, threshold = _validation(task, config, inputs, predict)
    same_for_all_splits = {**_model_fields(inputs["model"], config), "validation": validation}
    if packed:
        temperature = round(packed.temperature, DIGITS) if config.task_kind.has_probabilities else None
        threshold = scored_threshold(packed)
    history, rows = read_history(inputs["model"]), []
    trained = history[-1] if history else {}
    for name in names:
        file = split_file(inputs, name)
        split = read_split(file, f"run: {task.prepare_command}")
        started = time.perf_counter()
        logits = predict(split) if predict else saved_logits(task, inputs[f"logits {name}"])
        seconds = time.perf_counter() - started
        row = identity(task, name, config, inputs["model"]) | same_for_all_splits
        row["stage"] = "packed" if packed else config.stage
        metrics = _metrics(task, config, inputs, name, split, logits, temperature, threshold)
        row |= {"rows": len(split), "metrics": metrics, **fitted_fields(task, split, logits, temperature, threshold)}
        row["data"] = read_metadata(file).get("fingerprint")
        row["seconds"] = {"train": trained.get("seconds"), "evaluate": round(seconds, 4)}
        if "joules" in trained:
            row["joules"] = {"train": trained["joules"]}
        if out is not None:
            write_predictions(out, task, row, split, logits, temperature)
        rows.append(row)
    return rows


def with_speeds(settings: EvaluateSettings, folder: Path, config: ModelConfig, rows: list[Row]) -> list[Row]:
    """Return a model's rows with the field `speed`: a student's packed file is timed, or the teacher itself.

    Speeds are measured on one CPU thread; a teacher imported as logits and a linear one have none. With --watts, the
    energy of training is computed too. Raises UserError for a student that --runtime cannot read.
    """
    if config.imported:
        say(f"{config.name}: not timed, it was imported as logits")
        return rows
    if any(map(is_linear, (folder, *members_of(folder)))):
        say(f"{config.name}: not timed, the vectors of a linear teacher's texts may be cached")
        return rows
    if settings.watts:
        seconds = rows[0]["seconds"]["train"]  # the model's, the same in all rows
        energy = {} if seconds is None else {"joules": {"train": settings.watts * seconds}}
        rows = [row | energy for row in rows]
    task, cpu = load_task(settings.task), torch.device("cpu")
    splits = [load_split(settings.paths, task, row["split"]) for row in rows]
    # One thread of PyTorch, and of the teachers' tokenizers.
    with mock.patch.dict(os.environ, TOKENIZERS_PARALLELISM="false"), threads(1):
        if config.kind == "teacher":
            predict = load_predictor(folder, config.name, cpu=True)
            speeds = [{**speed(predict, split, settings.watts), "flops": flops(predict, split)} for split in splits]
        else:
            student, tokenizer, _ = load_student(folder, cpu)
            multiply_out(student)

            def answer(split: Split) -> np.ndarray:
                return student_logits(student, encode_split(tokenizer, split), cpu)

            counted = [flops(answer, split) for split in splits]
            with tempfile.TemporaryDirectory() as place:
                path = Path(place) / f"{config.name}.fwt"
                path.write_bytes(pack_student(folder))
                timed = [packed_speed(path, settings.runtime, split, settings.watts) for split in splits]
            speeds = [{**times, "flops": count} for times, count in zip(timed, counted, strict=True)]
    return [{**row, "speed": of_row} for row, of_row in zip(rows, speeds, strict=True)]


def _validation(
    task: Task, config: ModelConfig, inputs: Inputs, predict: Predictor | None
) -> tuple[dict[str, float] | None, float | None, float | None]:
    """Return a student's validation scores and its packed file's temperature and threshold; None if unknown.

    Answers to questions are scored at this threshold, as on test; since it is fitted to the same rows, their scores are
    slightly too high.
    """
    if config.calibration is not None:
        return None, config.calibration.get("temperature"), config.calibration.get("threshold")
    # Teachers are not scored: it takes minutes, and nothing is chosen by it. A workspace may have only test rows.
    file = split_file(inputs, "validation")
    if not predict or not has_validation(task, config) or not file.exists():
        return None, None, None
    split = read_split(file)
    logits, rows = predict(split), np.flatnonzero(split.labelled)
    labelled = split.take(rows)
    fitted = fit_packed(config, logits[rows], labelled.labels, labelled.sentence2 or []) if len(rows) else {}
    temperature, threshold = fitted.get("temperature"), fitted.get("threshold")
    # F1 of labels has a metric of its own at the threshold.
    of_answers = None if task.kind.has_probabilities else threshold
    metrics = _metrics(task, config, inputs, "validation", split, logits, threshold=of_answers) or None
    return metrics, temperature, threshold


def _model_fields(folder: Path, config: ModelConfig) -> dict[str, Any]:
    """Return the fields that are equal for all splits: sizes and settings."""
    trained = {} if config.trained_parameters is None else {"trained_parameters": config.trained_parameters}
    models = [] if config.imported else members_of(folder) or [folder]
    weights = (weights_of(model, read_config(model), stored_tensors(model)) for model in models)
    parts = parameters_by_part(itertools.chain.from_iterable(weights))
    return {**measure(folder), **trained, "parts": parts, "settings": config.settings}


def load_predictor(folder: Path, name: str, cpu: bool, precision: Precision = "auto") -> Predictor | None:
    """Return the logits function of a saved teacher or student; None for a teacher that was imported as logits.

    name: title of progress bars; precision: of a teacher's arithmetic.
    """
    device, config = pick_device(cpu), read_config(folder)
    if config.imported:
        return None
    if config.kind == "student":
        student, tokenizer, _ = load_student(folder, device)
        return lambda split: student_logits(student, encode_split(tokenizer, split), device, name)
    teacher = load_teacher(folder, device, pick_dtype(precision, device))

    def predict(split: Split) -> np.ndarray:
        with counter(name, len(split)) as advance:
            return teacher.logits(split, advance)

    return predict


def load_own_packed(settings: EvaluateSettings, folder: Path, config: ModelConfig) -> Model:
    """Load a student's packed file. Raises UserError if it is missing or out of date."""
    path = settings.paths.packed(config.task, folder.name)
    arguments = f"--task {settings.task} --compression-actions pack --load-trained-model {config.name}"
    command = f"{typed('compress')} {arguments}"
    packed = find(path, f"run: {command}")
    if read_manifest(packed.path).inputs["model"] != config.key:
        raise UserError(f"{path}: packed from another model than {config.name} is now; run: {command}")
    return load_packed(path, settings.runtime)


def _metrics(
    task: Task,
    config: ModelConfig,
    inputs: Inputs,
    name: str,
    split: Split,
    logits: np.ndarray,
    temperature: float | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """Return the task's metrics on labelled rows; without labels, a student's agreement with its teacher."""
    if split.labelled.any():
        return labelled_score(task, split, logits, temperature, threshold)
    if config.teacher is None:
        return {}
    return agreement(task, saved_logits(task, inputs[f"logits {name}"]), logits)


def flops(predict: Predictor, split: Split) -> int:
    """Return the mean FLOPs over ALONE texts of a split, each predicted alone and thus without padding.

    A multiply-add of a matrix product counts as two operations; this includes attention and the steps of an LSTM.
    Biases, activations, normalisation, pooling and embedding look-ups are not counted. Zeros of a pruned matrix are
    counted, because the runtimes multiply them.
    """
    rows = spread(split, ALONE)
    # The counter supports neither oneDNN's LSTM nor the fused attention of CPUs.
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mkldnn_rnn_layer: _lstm})
    with sdpa_kernel(SDPBackend.MATH), counter:
        for row in rows:
            predict(split.take(np.array([row])))
    return round(counter.get_total_flops() / len(rows))


def _lstm(vectors: Shape, weight_ih: Shape, weight_hh: Shape, *others: object, **more: object) -> int:
    # Per direction; the shapes are [time, batch, dim], [gates, dim] and [gates, hidden].
    return 2 * math.prod(vectors[:-1]) * (math.prod(weight_ih) + math.prod(weight_hh))


def multiply_out(student: Student) -> None:
    """Replace low-rank factors by their product, in place, as the runtimes do when they load a file."""
    products = [(name, module) for name, module in student.named_modules() if isinstance(module, Product)]
    for name, product in products:
        replace_matrix(student, name, Dense(product.dense().detach()))
