"""A teacher or student of the workspace as a classifier. Needs PyTorch, unlike packed files."""

from pathlib import Path
from typing import Any

import numpy as np

from common.data.split import Split, task_file_of_data
from common.data.tasks import load_task
from common.errors import UserError
from common.kinds.base import ANSWERED_FROM
from common.store.artifact import read_manifest
from common.store.workspace import Workspace
from common.training.models import ModelConfig, read_config
from compression.evaluation.scoring import load_predictor
from compression.inference.classifier import Classifier, Sentences, classifier_of


def load_saved(paths: Workspace, folder: Path, task: str | None, cpu: bool) -> Classifier:
    """Load the model in a folder. Raises UserError if it is missing or damaged."""
    config = read_config(folder)
    predict, kind = load_predictor(folder, config.name, cpu), config.task_kind

    def logits(texts: Sentences) -> np.ndarray:
        return predict(Split.of_texts(texts, kind))

    task = task or task_file_of_data(paths, config.task) or config.task
    fitted = _fitted(paths, config)
    may_have_none = fitted.get("reject") or (kind.always_pairs and load_task(task).unanswerable)
    threshold = fitted.get("threshold", ANSWERED_FROM) if may_have_none else None
    return classifier_of(config, logits, task, fitted.get("temperature", 1.0), threshold)


def _fitted(paths: Workspace, config: ModelConfig) -> dict[str, Any]:
    """Return temperature, threshold and --reject of a student's packed file; empty if missing or of another model."""
    try:
        manifest = read_manifest(paths.packed(config.task, config.name))
    except UserError:
        return {}
    return {**manifest.facts, **manifest.settings} if manifest.inputs["model"] == config.key else {}
