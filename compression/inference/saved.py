"""A teacher or a student of the workspace as a classifier. Needs PyTorch, which packed files do not."""

from pathlib import Path

import numpy as np

from common.data.split import Split, read_report
from common.errors import UserError
from common.store.artifact import folder_of, read_manifest
from common.store.workspace import Workspace
from common.training.models import ModelConfig, read_config
from compression.evaluation.scoring import load_predictor
from compression.inference.classifier import Classifier, Sentences, classifier_of


def load_saved(paths: Workspace, folder: Path, task: str | None, cpu: bool) -> Classifier:
    """Load the model of a folder. Raises UserError when it is missing or damaged."""
    config = read_config(folder)
    if config.tokens and config.pair:
        raise UserError(f"{config.name} answers questions; its answers to a task's are scored by evaluate.py alone")
    predict = load_predictor(folder, config, cpu)

    def logits(texts: Sentences) -> np.ndarray:
        first, *second = (list(sentences) for sentences in zip(*texts, strict=True))
        # The shape of the labels shows whether words or texts are classified.
        labels = np.zeros((len(texts), 1) if config.tokens else len(texts), np.int64)
        return predict(Split(first, second[0] if second else None, labels, np.arange(len(texts))))

    task = task or read_report(paths, config.task).get("task_file") or config.task
    return classifier_of(config, logits, task, _temperature(paths, config))


def _temperature(paths: Workspace, config: ModelConfig) -> float:
    """Return the temperature of a student's packed file, 1 where it is not packed, or another model was."""
    try:
        manifest = read_manifest(folder_of(paths.packed(config.task, config.name)))
    except UserError:
        return 1.0
    return manifest.facts.get("temperature", 1.0) if manifest.inputs["model"] == config.key else 1.0
