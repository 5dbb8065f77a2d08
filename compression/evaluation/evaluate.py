"""Evaluation of a saved model on a task's splits. Scores of an unchanged model on unchanged test splits are reused."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import pydantic

from common.data.split import find_splits
from common.data.tasks import Task, load_task
from common.devices import Precision, best_precision, pick_device
from common.errors import UserError
from common.store.artifact import Artifact, artifact_at, paths_of, read_manifest
from common.store.files import read_json, write_json
from common.store.step import Context, Inputs, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.logits import find_logits
from common.training.models import ModelConfig, find_model, read_config
from compression.evaluation.models import has_validation, split_names
from compression.evaluation.packed import find_packed
from compression.evaluation.rows import Row
from compression.evaluation.settings import EvaluateSettings

RESULT_FILE = "result.json"


class Evaluate(Step):
    """A model's scores on a task's test splits. Files: result.json, predictions-<split>.parquet."""

    version: ClassVar[int] = 6

    task: str
    precision: Precision | None
    """Arithmetic of a teacher; None for a student, and for imported logits."""
    definition: Task = pydantic.Field(exclude=True)
    folder: Path = pydantic.Field(exclude=True)
    """Folder of the model."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the model, the splits, and the logits that `evaluation_inputs` adds."""
        return evaluation_inputs(paths, self.definition, self.folder, self.definition.test_splits)

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Score every test split."""
        from compression.evaluation.scoring import load_predictor, score_model  # saved scores are listed without it

        folder, name = inputs["model"], context.names["model"]
        predict = load_predictor(folder, name, context.cpu, self.precision or "auto")
        rows = score_model(self.definition, self.definition.test_splits, inputs, predict, out=out)
        named = {"model": name, "run": f"models/{self.definition.models_task}/{name}"}
        write_json(out / RESULT_FILE, [{**row, **named, "evaluation": context.key} for row in rows])
        return {"model": name}


def evaluate(settings: EvaluateSettings) -> list[Row]:
    """Score a model. Returns one row per split, or one for the rows of --data; saved scores of test splits are reused.

    Only test scores of the model itself, not of a packed file, are saved. Speeds are measured every time.
    """
    if settings.data:
        from compression.evaluation.new_rows import score_new_rows  # SciPy and scikit-learn load here

        return [score_new_rows(settings, settings.data)]
    task = load_task(settings.task)
    if path := find_packed(settings.paths, task, settings.model_name):
        from compression.evaluation.packed_scores import score_packed  # SciPy and scikit-learn load here

        return score_packed(settings, path)
    folder, config = find_model(settings.paths, task, settings.model_name, settings.arch)
    if settings.packed or settings.split != "test":
        rows = _named(_score_now(settings, task, folder, config), folder)
    else:
        runs = config.kind == "teacher" and not config.imported
        precision = best_precision(pick_device(settings.cpu)) if runs else None
        step = Evaluate(task=task.name, precision=precision, definition=task, folder=folder)
        alias = settings.paths.scores(task.name, config.task, config.name)
        context = settings.context(f"scores of {config.name}")
        rows = kept_rows(settings.paths.make(step, context, alias=alias, replace=True).path, folder)
    if not settings.time:
        return rows
    from compression.evaluation.scoring import with_speeds  # PyTorch loads here

    return with_speeds(settings, folder, config, rows)


def evaluation_inputs(paths: Workspace, task: Task, folder: Path, names: Sequence[str]) -> dict[str, Artifact]:
    """Return the inputs of a model's scores: the model, the splits, and its teacher's logits over unlabelled splits.

    For a teacher imported as logits, its logits over the splits are inputs too. names: of the splits. Raises UserError
    if an input is missing.
    """
    splits, config = find_splits(paths, task), read_config(folder)
    inputs = {"model": artifact_at(folder), "splits": splits}
    if config.imported:
        return inputs | {f"logits {name}": find_logits(paths, task, config.name, name) for name in names}
    labelled = read_manifest(splits.path).facts["labelled"]
    if has_validation(task, config):
        names = (*names, "validation")
    for name in names:
        if config.teacher and labelled.get(name) == 0:
            inputs[f"logits {name}"] = find_logits(paths, task, config.teacher, name)
    return inputs


def saved_rows(paths: Workspace, task: Task, folder: Path, config: ModelConfig) -> list[Row]:
    """Return a model's saved rows on the task's test splits; empty if its current version was not scored."""
    store = Store(paths.root)
    runs = config.kind == "teacher" and not config.imported
    try:
        inputs = evaluation_inputs(paths, task, folder, task.test_splits)
    except UserError:
        return []
    precisions = get_args(Precision) if runs else (None,)
    for precision in precisions:
        step = Evaluate(task=task.name, precision=precision, definition=task, folder=folder)
        scores = store.get(step.key(inputs))
        if scores is not None:
            return kept_rows(scores.path, folder)
    return []


def kept_rows(scores: Path, folder: Path) -> list[Row]:
    """Return the rows in a folder of scores, with the model's current name and folder."""
    return _named(read_json(scores / RESULT_FILE), folder)


def _named(rows: Sequence[Row], folder: Path) -> list[Row]:
    return [{**row, "model": folder.name, "run": "/".join(folder.parts[-3:])} for row in rows]


def _score_now(settings: EvaluateSettings, task: Task, folder: Path, config: ModelConfig) -> list[Row]:
    """Return a model's rows on the splits of --split, or its packed file's."""
    from compression.evaluation.packed_scores import packed_logits
    from compression.evaluation.scoring import load_own_packed, load_predictor, score_model  # PyTorch loads here

    names = split_names(task, settings.split)
    inputs = paths_of(evaluation_inputs(settings.paths, task, folder, names))
    if not settings.packed:
        return score_model(task, names, inputs, load_predictor(folder, config.name, settings.cpu))
    packed = load_own_packed(settings, folder, config)
    return score_model(task, names, inputs, functools.partial(packed_logits, packed), packed)
