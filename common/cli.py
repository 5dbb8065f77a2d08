"""What every script's main does around its work: errors in one line, exit codes, JSON on stdout."""

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.config import Settings
from common.errors import UserError
from common.progress import show_bars
from common.seeds import DEFAULT_SEED
from common.stopping import graceful
from common.store.workspace import Workspace, default_root


class WorkspaceSettings(Settings):
    """Settings of everything that works in a workspace."""

    workspace: Path = default_root()
    """Folder for data, models and experiments; FEATHERWEIGHT_HOME sets the default."""

    @property
    def paths(self) -> Workspace:
        """The workspace's paths."""
        return Workspace(self.workspace)


class QuerySettings(WorkspaceSettings):
    """Settings of commands that tell what there is."""

    json_: bool = False
    """Print JSON to stdout instead of text."""


class StageSettings(WorkspaceSettings):
    """Settings that every stage has."""

    task: str
    """Task: a name in configs/tasks (sst-2, qqp, mnli, rotten-tomatoes, ...), or the YAML file of one of your own."""
    cpu: bool = False
    """Run on the CPU even where there is a GPU."""
    loadbar: bool = True
    """Show progress bars with time left."""
    seed: int = DEFAULT_SEED
    """Seed of every random choice."""
    force: bool = False
    """Do the work again even where its result exists, replacing it."""


def run_script(main: Callable[[], Any]) -> None:
    """Run a script's main.

    Exit codes: 0 done, 1 some runs of a sweep failed, 2 the user's mistake or the system's refusal, 130 interrupted.
    """
    # Said outright, or tokenizers warns whenever a process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    # Matrix products that come out the same on every run, whatever else the machine does; read when PyTorch loads.
    os.environ.setdefault("MKL_CBWR", "AUTO")
    os.environ.setdefault("MKL_DYNAMIC", "FALSE")
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        with graceful():
            main()
    except UserError as error:
        _fail(str(error), 2)
    except OSError as error:
        # A full disk, a missing permission: the system's words are the clearest. Files already written stay whole.
        _fail(f"{error.filename or 'system'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        _fail("interrupted; the same command goes on from the last checkpoint", 130)


def _fail(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def start(settings: StageSettings) -> None:
    """Apply the settings that act on the whole process."""
    show_bars(settings.loadbar)


def print_json(value: Any) -> None:
    """The one thing `--json` prints to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
