"""Finding and loading packed files for the project's commands; errors are UserErrors. Needs NumPy but not PyTorch."""

from pathlib import Path
from typing import Literal

from common.data.tasks import Task
from common.errors import UserError
from common.reading import regular_file
from common.store.workspace import Workspace
from common.training.models import missing_model, model_folder
from compression.runtime import PACKED_SUFFIX, Model, PackedError, load, zoo_file, zoo_hint

Runtime = Literal["numpy", "c"]
"""Runtime that reads a packed file."""


def load_packed(path: Path, runtime: Runtime = "numpy") -> Model:
    """Return a packed file's model.

    Raises UserError if the file is missing or damaged, or if the C runtime is not built or cannot read it.
    """
    try:
        if runtime == "numpy":
            return load(regular_file(path))
        from compression.runtime.native import load_native  # imports ctypes, which the NumPy runtime does not need

        return load_native(regular_file(path))
    except PackedError as error:
        raise UserError(str(error)) from error


def is_packed_file(model: str) -> bool:
    """Return whether the value of a flag that takes a model is the path of a packed file."""
    return model.endswith(PACKED_SUFFIX) or Path(model).is_file()


def file_of(model: str) -> Path | None:
    """Return the packed file of a path, or of a name of the zoo; None for anything else."""
    path = model if is_packed_file(model) else zoo_file(model)
    return Path(path) if path else None


def find_packed(paths: Workspace, task: Task, model: str) -> Path | None:
    """Return a packed file, given by its path or its name in the zoo; None for a model in the workspace.

    Names in the workspace take precedence. Raises UserError for a name that is in neither.
    """
    folder = model_folder(paths, task.models_task, model)
    if not is_packed_file(model) and folder.exists():
        return None
    if path := file_of(model):
        return path
    raise UserError(f"{missing_model(folder)}; it is not in the zoo either{zoo_hint(model)}")
