"""Any saved model as one function from texts to probabilities: a teacher, a student, or a packed file.

Only the way of the model asked for is imported: a packed file needs NumPy, neither PyTorch nor a workspace.
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

PACKED_SUFFIX = ".fwt"
Texts = Sequence[tuple[str, ...]]
"""One sentence each, or two, normalised."""


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A model ready to be asked. labels: empty for a regression; pair: whether a text is two sentences; tokens: whether
    every word has an answer.

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
    it). Raises UserError when there is none such, or it is damaged.
    """
    if model.endswith(PACKED_SUFFIX) or Path(model).is_file():
        return _packed(Path(model), task)
    return _saved(paths, find_folder(paths, model, task), task, cpu)


def find_folder(paths: Workspace, model: str, task: str | None) -> Path:
    """The folder of a model given by path or by name. Raises UserError for a name that none or several tasks have."""
    if "/" in model:
        return Path(model)
    if task is not None:
        return model_folder(paths, load_task(task), model)
    there = [folder for of_task in sorted((paths.root / "models").glob("*")) for folder in saved_models(of_task)]
    found = [folder for folder in there if folder.name == model]
    if len(found) > 1:
        tasks = ", ".join(folder.parent.name for folder in found)
        raise UserError(f"models of {tasks} are named {model!r}; say by --task which one")
    if not found:
        hint = nearest(model, {folder.name for folder in there}) if there else "; none has been trained yet"
        raise UserError(f"no model {model!r} in {paths.root}{hint}")
    return found[0]


def load_packed(path: Path) -> Any:
    """A packed file's compression.runtime.Model. Raises UserError when it is missing or damaged."""
    from compression.runtime import PackedError, load

    try:
        return load(path)
    except PackedError as error:
        raise UserError(str(error)) from error


def _packed(path: Path, task: str | None) -> Classifier:
    model = load_packed(path)

    def logits(texts: Texts) -> np.ndarray:
        return model.logits(texts if model.pair else [text for (text,) in texts])

    meant = _meant(model, logits, task or model.task)
    return Classifier(model.name, model.task, model.labels, model.pair, model.tokens, meant)


def _saved(paths: Workspace, folder: Path, task: str | None, cpu: bool) -> Classifier:
    from common.data.split import Split, read_report
    from compression.evaluation.evaluate import load_predictor

    config = read_config(folder)
    predict = load_predictor(folder, config, cpu)

    def logits(texts: Texts) -> np.ndarray:
        first, *second = (list(sentences) for sentences in zip(*texts, strict=True))
        # Labels tell whether words are asked about.
        nothing = np.zeros((len(texts), 1) if config.tokens else len(texts), np.int64)
        return predict(Split(first, second[0] if second else None, nothing, np.arange(len(texts))))

    task = task or read_report(paths, config.task).get("task_file") or config.task
    meant = _meant(config, logits, task)
    return Classifier(config.name, config.task, config.labels, config.pair, config.tokens, meant)


def _meant(model: Any, logits: Callable[[Texts], np.ndarray], task: str) -> Callable[[Texts], np.ndarray]:
    """What a model's logits mean. model: has a name and labels; task: a shipped one, or the YAML file of another.

    Raises UserError for a regression of a task whose YAML file is not known: it says in which range scores are.
    """
    if model.labels:
        return lambda texts: softmax(logits(texts))
    if task not in known_tasks() and not task.endswith((".yaml", ".yml")):
        raise UserError(f"{model.name} gives scores of {task}: name by --task the YAML file that has their range")
    scored = load_task(task)
    return lambda texts: choices(scored, logits(texts))[:, None]


def softmax(logits: np.ndarray) -> np.ndarray:
    """float32 [..., outputs] -> probabilities of the same shape."""
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)
