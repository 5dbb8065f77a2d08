"""Timing of command lines that read texts and write a label for each: the C runtime's fwt, and fastText's.

The time is that of a process with a file of many texts minus that of a process with a single text, so reading texts
and writing labels are included. benchmarks/runtime.py shows the results next to those of ways.py.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fasttext_side import PLAIN, write_training
from shared import run_command

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
"""Minimum seconds of a process with all texts; the texts are repeated as often as needed."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command whose last word is a file of texts. labels: the command's names of the task's labels, in order."""

    name: str
    words: tuple[str, ...]
    model: Path
    labels: tuple[str, ...]


def built_fwt() -> Path | None:
    """Return the path of the C runtime's command line. If it is not built, prints this and returns None."""
    if FWT.exists():
        return FWT
    say(f"left out: the C runtime is not built; run: make -C {FOLDER}")
    return None


def packed_student(name: str) -> tuple[Path, Model]:
    """Return the path and the model of a packed file, given by its path or its name in the zoo.

    Raises UserError if the file cannot be read, or if the model does not predict a label for a sentence.
    """
    try:
        path = Path(packed_file(name))
    except PackedError as error:
        raise UserError(str(error)) from None
    model = load_packed(path)
    if model.pair or model.kind != "labels":
        raise UserError(f"{path}: this benchmark is of single sentences with labels")
    return path, model


def student_of(task: Task, name: str) -> Path:
    """Return the path of a packed file; see `packed_student`. Raises UserError if its labels are not the task's."""
    path, model = packed_student(name)
    if model.labels != task.labels:
        raise UserError(f"{path}: its labels are {', '.join(model.labels)}; {task.name} has {', '.join(task.labels)}")
    return path


def train_by_command(split: Split, folder: Path) -> Path | None:
    """Train a fastText model on the labelled rows with its command line; without one, prints this and returns None."""
    if not shutil.which("fasttext"):
        say("left out: fastText's command line, fasttext, is not found")
        return None
    source = write_training(folder / "command-train.txt", split.sentence1, split.labels, 1)
    settings = [word for name, value in PLAIN.items() for word in (f"-{name}", value)]
    run_command("fastText", ["fasttext", "supervised", "-input", source, "-output", folder / "command", *settings])
    return folder / "command.bin"


def measure_command(
    command: Command, split: Split, folder: Path, clock: str, starts: int, passes: int
) -> dict[str, Any]:
    """Return the fields of runtime.py's `measure` except `one` and `memory`, which cannot be measured from outside."""
    one, many = folder / "one.txt", folder / "many.txt"
    texts = "".join(f"{' '.join(text.split())}\n" for text in split.sentence1)
    one.write_text(texts[: texts.index("\n") + 1], encoding="utf-8")
    start = statistics.median(_run(command, one)[clock] for _ in range(starts))
    repeated, seconds = 1, 0.0
    while seconds < SECONDS:
        repeated *= 4
        many.write_text(texts * repeated, encoding="utf-8")
        measured = _run(command, many)
        seconds = measured[clock]
    seconds = min([seconds, *(_run(command, many)[clock] for _ in range(passes - 1))])
    guesses = measured["output"].splitlines()[: len(split)]
    return {
        "way": command.name,
        "start": start,
        "rate": repeated * len(split) / (seconds - start),
        "one": None,
        "memory": None,
        "accuracy": accuracy(split, command.labels, guesses),
        "bytes": command.model.stat().st_size,
    }


def accuracy(split: Split, labels: Sequence[str], guesses: Sequence[str]) -> float:
    """Return the share of the labelled rows that are guessed right. labels: names of the task's labels, in order."""
    right = [labels[label] == guess for label, guess in zip(split.labels, guesses, strict=True) if label >= 0]
    return sum(right) / max(1, len(right))


def _run(command: Command, texts: Path) -> dict[str, Any]:
    """Run a command on one core. Returns the seconds by both clocks, and the output."""
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
