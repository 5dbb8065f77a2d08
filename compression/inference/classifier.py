"""Any saved model as one function from texts to probabilities: a teacher, a student, or a packed file.

A packed file needs NumPy alone, neither PyTorch nor a workspace: what other models need is imported for them only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.config import nearest
from common.data.tasks import known_tasks, load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import model_folder, read_config, saved_models
from common.training.targets import choices
from compression.evaluation.packed import load_packed

PACKED_SUFFIX = ".fwt"
Texts = Sequence[tuple[str, ...]]
"""One sentence each, or two, normalised."""


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A loaded model.

    labels: empty for a regression; pair: whether a text is two sentences; tokens: whether every word has an answer;
    probabilities: texts -> float32 [n, labels]; of a regression scores in the task's range, float32 [n, 1]; of tokens
    [n, words, labels], NaN past a text's last word.
    """

    name: str
    task: str
    labels: tuple[str, ...]
    pair: bool
    tokens: bool
    probabilities: Callable[[Texts], np.ndarray]


def load_classifier(paths: Workspace, model: str, task: str | None, cpu: bool) -> Classifier:
    """Load a model: a packed file, a model's folder, or a model's name in the workspace (of `task`, where several have
    it). Raises UserError when it is missing or damaged.
    """
    if model.endswith(PACKED_SUFFIX) or Path(model).is_file():
        return _packed(Path(model), task)
    return _saved(paths, find_folder(paths, model, task), task, cpu)


def find_folder(paths: Workspace, model: str, task: str | None) -> Path:
    """Return the folder of a model given by path or by name. Raises UserError for a name in no task, or in several."""
    if "/" in model:
        return Path(model)
    if task is not None:
        return model_folder(paths, load_task(task), model)
    there = [folder for of_task in sorted((paths.root / "models").glob("*")) for folder in saved_models(of_task)]
    found = [folder for folder in there if folder.name == model]
    if len(found) > 1:
        tasks = ", ".join(folder.parent.name for folder in found)
        raise UserError(f"models of {tasks} are named {model!r}; choose one with --task")
    if not found:
        hint = nearest(model, {folder.name for folder in there}) if there else "; none has been trained yet"
        raise UserError(f"no model {model!r} in {paths.root}{hint}")
    return found[0]


def _packed(path: Path, task: str | None) -> Classifier:
    model = load_packed(path)

    def logits(texts: Texts) -> np.ndarray:
        return model.logits(texts if model.pair else [text for (text,) in texts])

    probabilities = _activation(model, logits, task or model.task)
    return Classifier(model.name, model.task, model.labels, model.pair, model.tokens, probabilities)


def _saved(paths: Workspace, folder: Path, task: str | None, cpu: bool) -> Classifier:
    from common.data.split import Split, read_report
    from compression.evaluation.scoring import load_predictor

    config = read_config(folder)
    predict = load_predictor(folder, config, cpu)

    def logits(texts: Texts) -> np.ndarray:
        first, *second = (list(sentences) for sentences in zip(*texts, strict=True))
        # The shape of the labels says whether words or texts are classified.
        labels = np.zeros((len(texts), 1) if config.tokens else len(texts), np.int64)
        return predict(Split(first, second[0] if second else None, labels, np.arange(len(texts))))

    task = task or read_report(paths, config.task).get("task_file") or config.task
    probabilities = _activation(config, logits, task)
    return Classifier(config.name, config.task, config.labels, config.pair, config.tokens, probabilities)


def _activation(model: Any, logits: Callable[[Texts], np.ndarray], task: str) -> Callable[[Texts], np.ndarray]:
    """Return `logits` followed by softmax, or by the scores' range. task: a shipped one, or the YAML file of another.

    Raises UserError for a regression of a task whose YAML file, which has the range, is not known.
    """
    if model.labels:
        return lambda texts: softmax(logits(texts))
    if task not in known_tasks() and not task.endswith((".yaml", ".yml")):
        raise UserError(f"{model.name} predicts scores of {task}: give --task the YAML file with their range")
    scored = load_task(task)
    return lambda texts: choices(scored, logits(texts))[:, None]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of the same shape. logits: float32 [..., outputs]."""
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)
