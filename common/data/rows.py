"""Rows by the names that --generate-loss and --augmented give them: train, augmented rows, validation, test splits."""

from common.data.split import Split, find_splits, read_split
from common.data.tasks import Task
from common.errors import UserError
from common.store.artifact import Artifact, find, folder_of, read_manifest
from common.store.workspace import Workspace

PROCESSED = "processed"
"""The thesis's name for the rows of train."""


def is_augmented(task: Task, name: str) -> bool:
    """Return whether a name is that of augmented rows."""
    return name != PROCESSED and name not in task.splits


def find_rows(paths: Workspace, task: Task, name: str) -> Artifact:
    """Return the artifact that holds some rows, its path that of their file.

    Raises UserError, with the command, when they are missing, or augmented from other splits than there are now.
    """
    splits = find_splits(paths, task)
    if not is_augmented(task, name):
        return Artifact(splits.key, paths.split(task.name, "train" if name == PROCESSED else name))
    file = paths.augmented(task.name, name)
    rows = find(file, how_to_build(task, name))
    if read_manifest(folder_of(file)).inputs["splits"] != splits.key:
        raise UserError(f"{file}: augmented from other splits than there are now; {how_to_build(task, name)}")
    return rows


def load_rows(paths: Workspace, task: Task, name: str) -> Split:
    """Return some rows. Raises UserError with the command that builds them."""
    return read_split(find_rows(paths, task, name).path, how_to_build(task, name))


def how_to_build(task: Task, name: str) -> str:
    """Return the command that builds some rows, for messages."""
    command = f"run: {task.prepare_command}"
    if not is_augmented(task, name):
        return command
    return f"{command} --augment tinybert" + (f" --augmented {name}" if name != "tinybert" else "")
