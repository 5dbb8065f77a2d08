"""One way of classifying text, in a process of its own: ways.py WAY MODEL TEXTS CLOCK PASSES

WAY is packed, pytorch or fasttext; MODEL a .fwt file, a student's folder or fastText's .bin; TEXTS one sentence a line.
The first line printed comes as soon as the first sentence's label is known: CPU seconds so far. After it, unless PASSES
is 0, comes a line of JSON: seconds by CLOCK (wall or cpu) of the best pass over all sentences and of the median
sentence alone, the most bytes held, and all labels.

benchmarks/runtime.py starts it and times it. It imports nothing that its way does not need: fastText's Python has other
packages than the project's.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALONE = 300
"""Sentences that are asked one by one."""
CHUNK = 1024
"""Sentences handed over at a time, as predict.py does."""

Classify = Callable[[list[str]], list[str]]
"""Labels of sentences."""


def packed(model: str) -> Classify:
    """A packed file through the runtime that needs NumPy alone."""
    from compression.runtime import load

    loaded = load(model)
    return lambda texts: [loaded.labels[i] for i in loaded.logits(texts).argmax(1)]


def pytorch(model: str) -> Classify:
    """The same student through PyTorch, as evaluate.py scores it."""
    import torch

    from common.progress import show_bars
    from compression.students.batch import EncodedRows
    from compression.students.saved import load_student
    from compression.students.scoring import student_logits

    torch.set_num_threads(1)
    show_bars(False)
    device = torch.device("cpu")
    student, tokenizer, config = load_student(Path(model), device)

    def classify(texts: list[str]) -> list[str]:
        return [
            config.labels[i] for i in student_logits(student, EncodedRows(tokenizer.encode(texts)), device).argmax(1)
        ]

    return classify


def fasttext(model: str) -> Classify:
    """fastText's own Python package."""
    import fasttext as library

    library.FastText.eprint = lambda *words: None  # a warning at every load
    loaded = library.load_model(model)
    return lambda texts: [labels[0].removeprefix("__label__") for labels in loaded.predict(texts)[0]]


def measure(classify: Classify, texts: list[str], clock: Callable[[], float], passes: int) -> dict[str, Any]:
    """Best pass over all texts, median of one alone, the memory after that, and what the texts' labels are."""
    labels = in_chunks(classify, texts)  # warms up
    seconds = []
    for _ in range(passes):
        started = clock()
        in_chunks(classify, texts)
        seconds.append(clock() - started)
    alone = []
    for text in texts[:ALONE] * passes:
        started = clock()
        classify([text])
        alone.append(clock() - started)
    middle = sorted(alone)[len(alone) // 2]
    return {"pass": min(seconds), "one": middle, "memory": peak_memory(), "labels": labels}


def in_chunks(classify: Classify, texts: list[str]) -> list[str]:
    """Labels of all texts."""
    return [label for start in range(0, len(texts), CHUNK) for label in classify(texts[start : start + CHUNK])]


def peak_memory() -> int:
    """Most bytes this process has held. Of a child, Linux's ru_maxrss counts its parent from before the exec too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Load, answer the first text, and measure if asked to."""
    way, model, path, clock, passes = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    texts = Path(path).read_text(encoding="utf-8").split("\n")
    classify = {"packed": packed, "pytorch": pytorch, "fasttext": fasttext}[way](model)
    classify(texts[:1])
    print(time.process_time(), flush=True)
    if int(passes):
        chosen = {"wall": time.perf_counter, "cpu": time.process_time}[clock]
        print(json.dumps(measure(classify, texts, chosen, int(passes))))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main()
