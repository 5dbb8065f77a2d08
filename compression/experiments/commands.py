"""Commands that try an experiment's best packed student, shown at its end."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from common.data.split import load_split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from compression.experiments.report.results import Row

_WORDS = range(4, 21)
"""Lengths of a text that is easily read in a command line."""


def commands_to_try(paths: Workspace, task: str, rows: Sequence[Row]) -> list[str]:
    """Return three commands for the packed student that is best on validation, ready to be pasted; none without one.

    task: as --task takes it. rows: of its results.json. The example is a row of the task's validation split.
    """
    about = load_task(task)
    found = [(row, paths.packed(about.models_task, row["model"])) for row in rows if row["task"] == about.name]
    found = [(row, file) for row, file in found if row.get("validation") and file.exists()]
    if not found:
        return []
    _, best = max(found, key=lambda each: (next(iter(each[0]["validation"].values())), -each[0]["bytes_packed"]))
    file, python = _from_here(best), _from_here(_python())
    columns = load_split(paths, about, "validation").sentences()
    texts = [shlex.quote(text) for text in _example(list(zip(*columns, strict=True)))]
    line = r"printf '%s\t%s\n'" if about.pair else "echo"
    explain = "" if about.tokens else " --explain"
    return [
        f"{python} -m compression.runtime {file} {' '.join(texts)}",
        f"{line} {' '.join(texts)} | {python} predict.py --model {file}{explain}",
        f"{python} predict.py --model {file}",
    ]


def _example(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return next((row for row in rows if all(len(text.split()) in _WORDS for text in row)), rows[0])


def _python() -> Path:
    """This interpreter; `python` in an active virtual environment."""
    return Path("python") if os.environ.get("VIRTUAL_ENV") else Path(sys.executable)


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
