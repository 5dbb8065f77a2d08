"""The models of a task that can be scored, and the data they are scored on."""

from __future__ import annotations

import contextlib
from pathlib import Path

from common.data.tasks import Task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import ModelConfig, read_config, saved_models


def data_fingerprint(paths: Workspace, task: Task, split: str) -> str | None:
    """Return the fingerprint of a split's texts and labels as they are now."""
    from common.data.split import read_metadata

    return read_metadata(paths.split(task.name, split)).get("fingerprint")


def validation_fingerprint(paths: Workspace, task: Task, config: ModelConfig) -> str | None:
    """Return the fingerprint of the validation split, or None for a model that is not scored on it."""
    return data_fingerprint(paths, task, "validation") if has_validation(task, config) else None


def has_validation(task: Task, config: ModelConfig) -> bool:
    """Return whether a model is scored on validation: a student is, where the task has one."""
    return config.kind == "student" and "validation" in task.splits


def readable_models(folder: Path) -> list[ModelConfig]:
    """Return the configs of the models in a task's folder, by name, without those that cannot be read."""
    found = []
    for path in saved_models(folder):
        with contextlib.suppress(UserError):
            found.append(read_config(path))
    return found
