"""Evaluation of a saved model on a task's splits. Scores of an unchanged model on unchanged test splits are reused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pydantic

from common.config import later
from common.data.split import find_splits
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.store.artifact import Artifact, artifact_at, read_manifest
from common.store.files import read_json, write_json
from common.store.step import Context, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.logits import find_logits
from common.training.models import ModelConfig, find_model
from compression.evaluation.models import has_validation
from compression.evaluation.packed import find_packed
from compression.evaluation.settings import EvaluateSettings

RESULT_FILE = "result.json"


class Evaluate(Step):
    """A model's scores on a task's test splits. Files: result.json, predictions-<split>.parquet."""

    version: ClassVar[int] = 4

    task: str
    fitted_threshold: bool = later(False)
    """Whether validation is scored at the threshold that is fitted to it, not at 0.5."""
    settings: EvaluateSettings = pydantic.Field(exclude=True)

    @classmethod
    def of(cls, settings: EvaluateSettings, task: Task, config: ModelConfig) -> Evaluate:
        """Return the step that scores a model on a task."""
        # Other models are scored as before there was this field, so their scores stay up to date.
        fitted_threshold = task.unanswerable and config.kind == "student"
        return cls(task=task.name, fitted_threshold=fitted_threshold, settings=settings)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the model, the splits, and the logits that `evaluation_inputs` adds."""
        return evaluation_inputs(paths, load_task(self.settings.task), *_model(self.settings))

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Score every test split."""
        folder, config = _model(self.settings)
        rows = _score(self.settings, folder, config, out)
        write_json(out / RESULT_FILE, [{**row, "evaluation": context.key} for row in rows])
        return {"model": config.name}


def evaluate(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """Score a model. Returns one row per split; scores of an unchanged model on unchanged test splits are reused.

    Only test scores of the model itself, not of a packed file, are saved. Speeds are measured every time.
    """
    task = load_task(settings.task)
    path = find_packed(settings.paths, task, settings.model_name)
    if path and not settings.packed:
        raise UserError(f"{settings.model_name} is a packed file: score it with --packed")
    if path:
        from compression.evaluation.packed_scores import score_packed  # SciPy and scikit-learn load here

        return score_packed(settings, path)
    folder, config = _model(settings)
    if settings.packed or settings.split != "test":
        rows = _score(settings, folder, config)
    else:
        alias = settings.paths.scores(task.name, config.task, config.name)
        step, context = Evaluate.of(settings, task, config), settings.context(f"scores of {config.name}")
        rows = kept_rows(settings.paths.make(step, context, alias=alias, replace=True).path, folder, config)
    if not settings.time:
        return rows
    from compression.evaluation.scoring import with_speeds  # PyTorch loads here

    return with_speeds(settings, folder, config, rows)


def evaluation_inputs(paths: Workspace, task: Task, folder: Path, config: ModelConfig) -> dict[str, Artifact]:
    """Return the inputs of a model's scores: the model, the splits, and its teacher's logits over unlabelled splits.

    For a teacher imported as logits, its logits over the test splits are inputs too. Raises UserError if an input is
    missing.
    """
    splits = find_splits(paths, task)
    if config.imported:
        own = {f"logits {name}": find_logits(paths, task, config.name, name) for name in task.test_splits}
        return {"model": artifact_at(folder), "splits": splits, **own}
    labelled = read_manifest(splits.path).facts["labelled"]
    names = (*task.test_splits, *(["validation"] if has_validation(task, config) else []))
    unlabelled = [name for name in names if not labelled.get(name, 1)] if config.teacher else []
    logits = {f"logits {name}": find_logits(paths, task, config.teacher, name) for name in unlabelled}
    return {"model": artifact_at(folder), "splits": splits, **logits}


def saved_rows(paths: Workspace, task: Task, folder: Path, config: ModelConfig) -> list[dict[str, Any]]:
    """Return a model's saved rows on the task's test splits; empty if its current version was not scored."""
    settings = EvaluateSettings(task=task.argument, workspace=paths.root, model_name=str(folder))
    try:
        key = Evaluate.of(settings, task, config).key(evaluation_inputs(paths, task, folder, config))
    except UserError:
        return []
    scores = Store(paths.root).get(key)
    return kept_rows(scores.path, folder, config) if scores else []


def kept_rows(scores: Path, folder: Path, config: ModelConfig) -> list[dict[str, Any]]:
    """Return the rows in a folder of scores, with the model's current name and folder."""
    return [
        {**row, "model": config.name, "run": "/".join(folder.parts[-3:])} for row in read_json(scores / RESULT_FILE)
    ]


def _model(settings: EvaluateSettings) -> tuple[Path, ModelConfig]:
    return find_model(settings.paths, load_task(settings.task), settings.model_name, settings.arch)


def _score(
    settings: EvaluateSettings, folder: Path, config: ModelConfig, out: Path | None = None
) -> list[dict[str, Any]]:
    # Saved scores are listed without loading PyTorch, which scoring needs.
    from compression.evaluation.scoring import score_model

    return score_model(settings, folder, config, out)
