"""What a launcher gives out, and how it is done on another machine."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from common.progress import Advance, nothing
from common.stopping import graceful

ROOT = Path(__file__).parent.parent.parent
"""Folder that workers import this project from."""


class HasRows(Protocol):
    """A part of some work: whatever its function needs, and how much it is."""

    @property
    def rows(self) -> int:
        """Rows in it."""
        ...


PartT = TypeVar("PartT", bound=HasRows)
PartDoer = Callable[[PartT, Advance], None]
"""Does a part and tells of rows done on the way. A module's own function, and one that bears doing a part twice."""


def do_in_folder(function: PartDoer[PartT], folder: Path, part: PartT) -> None:
    """Do a part where the launcher's relative paths mean the same; a cluster's signals to stop are heeded."""
    os.chdir(folder)
    with graceful():
        function(part, nothing)


def import_path() -> str:
    """PYTHONPATH for workers that do not start in this project's folder."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
