"""Settings that the commands share: the workspace, the task, and how a stage runs."""

import functools
from pathlib import Path

import pydantic

from common.config import Settings
from common.installed import FROM_WHEEL
from common.progress import say
from common.seeds import DEFAULT_SEED
from common.store.step import Context
from common.store.store import Store
from common.store.workspace import default_root


@functools.cache
def _open(root: Path) -> Store:
    if FROM_WHEEL and not root.exists():  # in a clone, it is where one expects it
        say(f"workspace: {root.resolve()} (data, models and reports; --workspace sets another folder)")
    store = Store(root)
    store.remove_leftovers()
    return store


class WorkspaceSettings(Settings):
    """Common settings: the workspace."""

    workspace: Path = default_root()
    """Folder for data, models and experiments; FEATHERWEIGHT_HOME sets the default."""

    @pydantic.field_validator("workspace")
    @classmethod
    def _check_workspace(cls, workspace: Path) -> Path:
        if workspace.exists() and not workspace.is_dir():
            raise ValueError("a file, not a folder")
        return workspace

    @property
    def paths(self) -> Store:
        """The workspace: its paths and artifacts. Leftovers of killed commands in it are removed on first use."""
        return _open(self.workspace)


class QuerySettings(WorkspaceSettings):
    """Common settings: text or JSON."""

    json_: bool = False
    """Print JSON to stdout instead of text."""


class StageSettings(WorkspaceSettings):
    """Common settings: those of every stage."""

    task: str
    """Task: a name in configs/tasks (sst-2, qqp, mnli, rotten-tomatoes, ...), or the YAML file of one of your own."""
    cpu: bool = False
    """Run on the CPU even if there is a GPU."""
    loadbar: bool = True
    """Show progress bars with time left."""
    seed: int = DEFAULT_SEED
    """Seed of every random choice."""
    force: bool = False
    """Do the work again even if its result exists, and replace it."""

    def context(self, name: str) -> Context:
        """Return the context of a step of this command. name: the artifact's name in messages."""
        return Context(self.cpu, self.force, name=name)
