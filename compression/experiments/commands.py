"""Commands that try an experiment's packed student, shown at its end."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from common.data.split import load_split
from common.data.tasks import Task, known_tasks, load_task
from common.installed import FROM_WHEEL, typed
from common.store.workspace import Workspace
from common.tables import shortened
from compression.experiments.report.results import Row

_WORDS = range(4, 21)
"""Range of lengths of a text that is easy to read in a command line."""
_CHARACTERS = 120


def commands_to_try(paths: Workspace, task: str, rows: Sequence[Row]) -> list[str]:
    """Return commands for the packed student that is best on validation; an empty list if there is none.

    task: the value of --task. rows: rows of the experiment's results.json.
    """
    loaded = load_task(task)
    scored = [row for row in rows if row["task"] == loaded.name and row.get("validation")]
    files = [(row, paths.packed(loaded.models_task, row["model"])) for row in scored]
    packed = [(row, file) for row, file in files if file.exists()]
    if not packed:
        return []
    _, best = max(packed, key=lambda pair: (next(iter(pair[0]["validation"].values())), -pair[0]["bytes_packed"]))
    # The YAML file of a user's own regression task holds the range of the scores.
    scores_of = None if loaded.labels or loaded.name in known_tasks() else Path(task)
    return packed_commands(best, example(paths, loaded), not loaded.kind.by_word, (), scores_of)


def packed_commands(
    path: Path, texts: Sequence[str], explains: bool, columns: Sequence[str], scores_of: Path | None
) -> list[str]:
    """Return three commands for a packed file, ready to paste, and with `columns` one that classifies a table.

    texts: an example, one text or both texts of a pair; explains: whether --explain applies; columns: text columns of
    the user's table; scores_of: the YAML file of a regression task.
    """
    # `python` if a virtual environment is active, else this interpreter.
    python = "python" if os.environ.get("VIRTUAL_ENV") else _from_here(Path(sys.executable))
    predict = typed("predict", python)
    classify = "featherweight classify" if FROM_WHEEL else f"{python} -m compression.runtime"
    file, quoted = _from_here(path), " ".join(map(shlex.quote, texts))
    line = r"printf '%s\t%s\n'" if len(texts) == 2 else "echo"
    model = f"{file} --task {_from_here(scores_of)}" if scores_of else file
    table = f" --input new.csv --columns {' '.join(map(shlex.quote, columns))} --output classified.csv"
    return [
        f"{classify} {file} {quoted}",
        f"{line} {quoted} | {predict} --model {model}{' --explain' if explains else ''}",
        f"{predict} --model {model}",
        *([f"{predict} --model {model}{table}"] if columns else []),
    ]


def example(paths: Workspace, task: Task) -> tuple[str, ...]:
    """Return a short row of a task's validation split, one or two texts; for questions, one with a short context."""
    rows = list(zip(*load_split(paths, task, "validation").sentences(), strict=True))
    if task.kind.always_pairs:
        return min(rows, key=lambda row: len(row[1]))
    row = next((row for row in rows if all(len(text.split()) in _WORDS for text in row)), rows[0])
    return tuple(shortened(text, _CHARACTERS) for text in row)


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
