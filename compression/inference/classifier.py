"""Any saved model as one function from texts to probabilities: a teacher, a student, or a packed file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from common.config import nearest
from common.data.tasks import known_tasks, load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import ModelConfig, model_folder, saved_models
from common.training.targets import choices
from compression.evaluation.packed import load_packed
from compression.runtime import Model

PACKED_SUFFIX = ".fwt"
Texts = Sequence[tuple[str, ...]]
"""One sentence each, or two, normalised."""
Function = Callable[[Texts], np.ndarray]


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
    probabilities: Function


def load_classifier(paths: Workspace, model: str, task: str | None, cpu: bool) -> Classifier:
    """Load a model: a packed file, a model's folder, or a model's name in the workspace (of `task`, where several have
    it). Raises UserError when it is missing or damaged.
    """
    if not model.endswith(PACKED_SUFFIX) and not Path(model).is_file():
        from compression.inference.saved import load_saved  # PyTorch and pyarrow, which packed files do not need

        return load_saved(paths, find_folder(paths, model, task), task, cpu)
    packed = load_packed(Path(model))

    def logits(texts: Texts) -> np.ndarray:
        return packed.logits(texts if packed.pair else [text for (text,) in texts])

    return classifier_of(packed, logits, task or packed.task)


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


def classifier_of(model: ModelConfig | Model, logits: Function, task: str) -> Classifier:
    """Return a model's logits with softmax, or in the scores' range. task: a shipped one, or the YAML file of another.

    Raises UserError for a regression of a task whose YAML file, which has the range, is not known.
    """
    if not model.labels and task not in known_tasks() and not task.endswith((".yaml", ".yml")):
        raise UserError(f"{model.name} predicts scores of {task}: give --task the YAML file with their range")
    scored = None if model.labels else load_task(task)

    def probabilities(texts: Texts) -> np.ndarray:
        values = logits(texts)
        return softmax(values) if scored is None else choices(scored, values)[:, None]

    return Classifier(model.name, model.task, model.labels, model.pair, model.tokens, probabilities)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of the same shape. logits: float32 [..., outputs]."""
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)
