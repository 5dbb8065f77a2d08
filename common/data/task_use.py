"""Checks of how tasks are used: no training without training rows, no scores on rows that a model was trained on."""

import contextlib
from collections.abc import Sequence

from common.data.tasks import Task, known_tasks, load_task
from common.errors import UserError
from common.store.artifact import read_manifest
from common.store.workspace import Workspace


def check_trains(task: Task) -> None:
    """Raise UserError if a task only scores another task's models: it cannot be trained on or compressed for."""
    if task.models_of:
        raise UserError(
            f"{task.name} has no training rows; it only scores models of {task.models_of}: "
            f"use --task {task.models_of} here, then evaluate with --task {task.name}"
        )


def check_no_overlap(trained_on: Sequence[str], scored_on: Task, paths: Workspace) -> None:
    """Check that a model does not score (or teach) a task whose sentences it may have been trained on.

    Raises UserError if a task in `trained_on` is not `scored_on` itself, and the YAML file of one of the two lists the
    other in `overlaps`. The file of a user's own task is the one that the workspace's data were prepared from.
    """
    for name in trained_on:
        if name != scored_on.name and (name in scored_on.overlaps or scored_on.name in _overlaps(name, paths)):
            raise UserError(
                f"refused: the model was trained on {name}, whose sentences overlap those of {scored_on.name}; "
                "it may have been trained on sentences that it would be scored on"
            )


def _overlaps(name: str, paths: Workspace) -> tuple[str, ...]:
    """Return the tasks that a task overlaps, according to its YAML file now and at preparation."""
    if name in known_tasks():
        return load_task(name).overlaps
    try:
        facts = read_manifest(paths.splits(name)).facts
    except UserError:
        return ()  # prepared in another workspace
    with contextlib.suppress(UserError):  # the file may be gone
        return (*facts.get("overlaps", ()), *load_task(str(paths.root / facts["task_file"])).overlaps)
    return tuple(facts.get("overlaps", ()))
