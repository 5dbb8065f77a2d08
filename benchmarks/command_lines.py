"""Command lines that read lines of text and write a label for each: the C runtime's fwt, and fastText's own.

Their time is that of a whole process with a file of many texts, less that of one with a single text: reading texts and
writing labels count. benchmarks/runtime.py shows them next to the ways of ways.py.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from fasttext_side import PLAIN, write_training

from common.data.split import Split
from common.data.tasks import Task
from common.errors import UserError
from common.progress import say
from compression.evaluation.packed import load_packed
from compression.runtime import Model, PackedError
from compression.runtime.native import FOLDER
from compression.runtime.zoo import packed_file

FWT = Path(FOLDER) / "fwt"
SECONDS = 1.0
"""How long a process with all texts should take at least: the texts are repeated as often as that needs."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command whose last word is a file of texts. labels: what it calls the task's labels, in their order."""

    name: str
    words: tuple[str, ...]
    model: Path
    labels: tuple[str, ...]


def built_fwt() -> Path | None:
    """Return the C runtime's command line. Returns None, and prints why, where it is not built."""
    if FWT.exists():
        return FWT
    say(f"left out: the C runtime is not built; run: make -C {FOLDER}")
    return None


def packed_student(name: str) -> tuple[Path, Model]:
    """Return the path of a packed file, given by it or by a name of the zoo, and its model.

    Raises UserError for one that cannot be read, or that does not choose a label for a sentence.
    """
    try:
        path = Path(packed_file(name))
    except PackedError as error:
        raise UserError(str(error)) from None
    model = load_packed(path)
    if model.pair or model.tokens or model.multilabel or not model.labels:
        raise UserError(f"{path}: this benchmark is of single sentences with labels")
    return path, model


def student_of(task: Task, name: str) -> Path:
    """Return the path of a packed file as `packed_student` does. Raises UserError for one with other labels."""
    path, model = packed_student(name)
    if model.labels != task.labels:
        raise UserError(f"{path}: its labels are {', '.join(model.labels)}; {task.name} has {', '.join(task.labels)}")
    return path


def train_by_command(split: Split, folder: Path) -> Path | None:
    """Train fastText's model of the labelled rows with its command line. Returns None, and prints why, without one."""
    if not shutil.which("fasttext"):
        say("left out: fastText's command line, fasttext, is not found")
        return None
    source = write_training(folder / "command-train.txt", split.sentence1, split.labels, 1)
    settings = [word for name, value in PLAIN.items() for word in (f"-{name}", str(value))]
    command = ["fasttext", "supervised", "-input", str(source), "-output", str(folder / "command"), *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"fastText failed: {(done.stderr.strip().splitlines() or ['without a message'])[-1]}")
    return folder / "command.bin"


def measure_command(
    command: Command, split: Split, folder: Path, clock: str, starts: int, passes: int
) -> dict[str, Any]:
    """Return what runtime.py's `measure` returns, without `one` and `memory`, which cannot be seen from outside."""
    one, many = folder / "one.txt", folder / "many.txt"
    texts = "".join(f"{' '.join(text.split())}\n" for text in split.sentence1)
    one.write_text(texts[: texts.index("\n") + 1], encoding="utf-8")
    start = statistics.median(_run(command, one)[clock] for _ in range(starts))
    repeated, seconds = 1, 0.0
    while seconds < SECONDS:
        repeated *= 4
        many.write_text(texts * repeated, encoding="utf-8")
        found = _run(command, many)
        seconds = found[clock]
    seconds = min([seconds, *(_run(command, many)[clock] for _ in range(passes - 1))])
    guesses = found["output"].splitlines()[: len(split)]
    pairs = zip(split.labels, guesses, strict=True)
    right = [command.labels[label] == guess for label, guess in pairs if label >= 0]
    return {
        "way": command.name,
        "start": start,
        "rate": repeated * len(split) / (seconds - start),
        "one": None,
        "memory": None,
        "accuracy": sum(right) / max(1, len(right)),
        "bytes": command.model.stat().st_size,
    }


def _run(command: Command, texts: Path) -> dict[str, Any]:
    """Run a command on one core. Returns its seconds by both clocks, and its output."""
    output = texts.with_suffix(".out")
    words = [*command.words, str(texts)]
    core = {max(os.sched_getaffinity(0))} if hasattr(os, "sched_setaffinity") else None
    with output.open("wb") as file:
        started = time.perf_counter()
        pid = os.posix_spawnp(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), 1)])
        if core:
            os.sched_setaffinity(pid, core)
        _, status, used = os.wait4(pid, 0)
        seconds = time.perf_counter() - started
    if status:
        raise UserError(f"{command.name} failed, see above")
    cpu = used.ru_utime + used.ru_stime
    return {"wall": seconds, "cpu": cpu, "output": output.read_text(encoding="utf-8")}
