"""Commands that try an experiment's packed student, shown at its end."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from common.data.split import load_split
from common.data.tasks import Task, known_tasks, load_task
from common.store.workspace import Workspace
from compression.experiments.report.results import Row

_WORDS = range(4, 21)
"""Range of lengths of a text that is easy to read in a command line."""


def commands_to_try(paths: Workspace, task: str, rows: Sequence[Row]) -> list[str]:
    """Return commands for the packed student that is best on validation; an empty list if there is none.

    task: the value of --task. rows: rows of the experiment's results.json.
    """
    about = load_task(task)
    found = [(row, paths.packed(about.models_task, row["model"])) for row in rows if row["task"] == about.name]
    found = [(row, file) for row, file in found if row.get("validation") and file.exists()]
    if not found:
        return []
    _, best = max(found, key=lambda each: (next(iter(each[0]["validation"].values())), -each[0]["bytes_packed"]))
    return packed_commands(best, example(paths, about), not about.kind.by_word, scores_of=scores_file(about, task))


def packed_commands(
    path: Path, texts: Sequence[str], explains: bool = True, columns: Sequence[str] = (), scores_of: Path | None = None
) -> list[str]:
    """Return three commands for a packed file, ready to paste, and one that classifies the user's own table.

    texts: an example, one text or both texts of a pair; explains: whether --explain applies; columns: the table's
    text columns; scores_of: result of `scores_file`.
    """
    file, python, quoted = _from_here(path), _from_here(_python()), " ".join(map(shlex.quote, texts))
    line = r"printf '%s\t%s\n'" if len(texts) == 2 else "echo"
    model = f"{file} --task {_from_here(scores_of)}" if scores_of else file
    table = f" --input new.csv --columns {' '.join(map(shlex.quote, columns))} --output classified.csv"
    return [
        f"{python} -m compression.runtime {file} {quoted}",
        f"{line} {quoted} | {python} predict.py --model {model}{' --explain' if explains else ''}",
        f"{python} predict.py --model {model}",
        *([f"{python} predict.py --model {model}{table}"] if columns else []),
    ]


def scores_file(task: Task, given: str) -> Path | None:
    """Return the YAML file of a user's own regression task, which holds the range of the scores; None for other tasks.

    given: the value of --task.
    """
    return None if task.labels or task.name in known_tasks() else Path(given)


def example(paths: Workspace, task: Task) -> tuple[str, ...]:
    """Return a short row of a task's validation split, one or two texts; for questions, one with a short context."""
    rows = list(zip(*load_split(paths, task, "validation").sentences(), strict=True))
    if task.kind.always_pairs:
        return min(rows, key=lambda row: len(row[1]))
    return next((row for row in rows if all(len(text.split()) in _WORDS for text in row)), rows[0])


def _python() -> Path:
    """Return the path of this interpreter; `python` if a virtual environment is active."""
    return Path("python") if os.environ.get("VIRTUAL_ENV") else Path(sys.executable)


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
