"""The scores and predictions kept in a model's folder: where they are, and whether they are still true."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from common.data.tasks import Task
from common.errors import UserError
from common.store.workspace import Workspace, read_json
from common.training.models import ModelConfig, read_config, saved_models

_NEEDED = {"config_hash", "data", "metrics", "model", "split", "task"} | {
    "parts",
    "settings",
    "validation",
    "validation_data",
}
"""Fields that are read; rows of earlier versions lack the later four."""


def result_file(folder: Path, config: ModelConfig, task: Task) -> Path:
    """Where a model's scores are kept: result.json, or result-ax.json for those on another task than its own."""
    return folder / ("result.json" if task.name == config.task else f"result-{task.name}.json")


def saved_rows(paths: Workspace, task: Task, folder: Path, config: ModelConfig) -> list[dict[str, Any]]:
    """A model's saved rows over the task's test splits, where all of them and its predictions are up to date; or none.

    Raises UserError when the file of rows is damaged.
    """
    from common.training.metrics import AGREEMENTS
    from compression.evaluation.predictions import read_predictions

    saved = result_file(folder, config, task)
    if not saved.exists():
        return []
    rows = read_json(saved)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() >= _NEEDED for row in rows):
        return []
    validation = validation_fingerprint(paths, task, config)
    now = [(config.fingerprint, data_fingerprint(paths, task, split), validation) for split in task.test_splits]
    # Rows without labels have no score, or agreement alone.
    known = (list(task.all_metrics), [], *([name] for name in AGREEMENTS))
    if [(row["config_hash"], row["data"], row["validation_data"]) for row in rows] != now:
        return []
    if not all(list(scores or {}) in known for row in rows for scores in (row["metrics"], row["validation"])):
        return []
    try:
        for row in rows:
            read_predictions(folder, row)
    except UserError:
        return []
    return rows


def data_fingerprint(paths: Workspace, task: Task, split: str) -> str | None:
    """Fingerprint of a split's texts and labels as they are now."""
    from common.data.split import read_metadata

    return read_metadata(paths.split(task.name, split)).get("fingerprint")


def validation_fingerprint(paths: Workspace, task: Task, config: ModelConfig) -> str | None:
    """Fingerprint of the validation split, or None for a model that is not scored over it."""
    return data_fingerprint(paths, task, "validation") if has_validation(task, config) else None


def has_validation(task: Task, config: ModelConfig) -> bool:
    """Whether a model is scored over validation: a student is, where the task has one."""
    return config.kind == "student" and "validation" in task.splits


def readable_models(folder: Path) -> list[ModelConfig]:
    """Configs of the models in a task's folder, by name; what this version cannot read is passed over."""
    found = []
    for path in saved_models(folder):
        with contextlib.suppress(UserError):
            found.append(read_config(path))
    return found
