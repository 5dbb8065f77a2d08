"""Checks of the use of a task: no training without training rows, no scores over rows that a model was trained on."""

import contextlib
from collections.abc import Sequence

from common.data.tasks import Task, known_tasks, load_task
from common.errors import UserError
from common.store.artifact import read_manifest
from common.store.workspace import Workspace


def check_trains(task: Task) -> None:
    """Refuse to train on, or to compress for, a task that only scores another one's models. Raises UserError."""
    if task.models_of:
        raise UserError(
            f"{task.name} has no training rows, it scores models of {task.models_of}: "
            f"use --task {task.models_of} here, then evaluate with --task {task.name}"
        )


def check_no_overlap(trained_on: Sequence[str], scored_on: Task, paths: Workspace) -> None:
    """Refuse to score (or teach) on a task whose sentences the model may have been trained on.

    Raises UserError when any task in `trained_on` is another task that overlaps `scored_on` by the YAML file of one of
    the two. The file of a task of the user's own is the one that the workspace's data were prepared from.
    """
    for name in trained_on:
        if name != scored_on.name and (name in scored_on.overlaps or scored_on.name in _overlaps(name, paths)):
            raise UserError(
                f"refused: the model was trained on {name}, whose sentences overlap those of {scored_on.name}; "
                "its score would be over sentences it has seen"
            )


def _overlaps(name: str, paths: Workspace) -> tuple[str, ...]:
    """Return the tasks that the named task overlaps, by its YAML file as it is now and as it was at preparation."""
    if name in known_tasks():
        return load_task(name).overlaps
    try:
        facts = read_manifest(paths.splits(name)).facts
    except UserError:
        return ()  # prepared in another workspace
    with contextlib.suppress(UserError):  # the file may be gone
        return (*facts.get("overlaps", ()), *load_task(facts["task_file"]).overlaps)
    return tuple(facts.get("overlaps", ()))
