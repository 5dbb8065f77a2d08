"""Packed files as the project's commands read them: errors are UserErrors. Needs NumPy, not PyTorch."""

from pathlib import Path

from common.errors import UserError
from common.reading import regular_file
from compression.runtime import Model, PackedError, load


def load_packed(path: Path) -> Model:
    """Return a packed file's model. Raises UserError when the file is missing or damaged."""
    try:
        return load(regular_file(path))
    except PackedError as error:
        raise UserError(str(error)) from error
