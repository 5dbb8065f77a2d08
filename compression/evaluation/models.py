"""Models of a task that can be scored, and the data they are scored on."""

import contextlib
from pathlib import Path
from typing import Any

from common.data.split import read_metadata
from common.data.tasks import Task
from common.errors import UserError
from common.store.artifact import MANIFEST, read_manifest
from common.store.workspace import Workspace
from common.training.models import ModelConfig, read_config, saved_models

F1_AT_THRESHOLD = "f1_at_threshold"
"""Metric: f1 if the second label is predicted from the threshold chosen on validation instead of 0.5."""


def data_fingerprint(paths: Workspace, task: Task, split: str) -> str | None:
    """Return the fingerprint of a split's current texts and labels."""
    return read_metadata(paths.split(task.name, split)).get("fingerprint")


def has_validation(task: Task, config: ModelConfig) -> bool:
    """Return whether a model is scored on validation: a student that has not learned from it, if the task has one."""
    return config.kind == "student" and not config.learned_validation and "validation" in task.splits


def split_names(task: Task, split: str) -> tuple[str, ...]:
    """Return the splits selected by --split; for test, every test split. Raises UserError if the task lacks it."""
    if split == "test":
        return task.test_splits
    if split not in task.splits:
        raise UserError(f"{task.name} has no {split} rows (it has: {', '.join(task.splits)})")
    return (split,)


def readable_models(folder: Path) -> list[ModelConfig]:
    """Return the configs of the models in a task's folder, sorted by name, without unreadable ones."""
    configs = []
    for path in saved_models(folder):
        with contextlib.suppress(UserError):
            configs.append(read_config(path))
    return configs


def identity(task: Task, split: str | None, config: ModelConfig, folder: Path) -> dict[str, Any]:
    """Return the fields of a row of results.json other than sizes and scores."""
    return {
        "task": task.name,
        "split": split,
        "model": config.name,
        "stage": config.stage,
        "student_arch": config.arch if config.kind == "student" else None,
        **{name: config.student.get(name) for name in ("embedding_type", "embedding_dim", "vocab_size")},
        "alpha": config.alpha,
        "augmented": config.augmented,
        "seed": config.seed,
        "teacher": config.teacher,
        "select_on": config.select_on,
        "run": "/".join(folder.parts[-3:]),
        "config_hash": config.key,
        "actions": [action.kind for action in config.actions],
        "made_from": ancestors(folder),
    }


def ancestors(folder: Path) -> list[str]:
    """Return the keys of the models that a model was built from, its parent's first.

    The keys are read from manifests; for a parent that is no longer in the store, only its own key is known.
    """
    keys: list[str] = []
    store, manifest = folder.resolve().parent, read_manifest(folder)
    while parent := manifest.inputs.get("parent"):
        keys.append(parent)
        if not (store / parent / MANIFEST).exists():
            break
        manifest = read_manifest(store / parent)
    return keys
