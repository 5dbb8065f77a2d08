"""One way of classifying text, in a separate process: way_NAME.py MODEL TEXTS CLOCK PASSES

way_packed.py reads a .fwt file, way_pytorch.py a student's folder, way_fasttext.py fastText's .bin; TEXTS has one
sentence per line. The first printed line, the CPU seconds so far, appears as soon as the first sentence's label is
known. Unless PASSES is 0, a line of JSON follows: seconds by CLOCK (wall or cpu) of the best pass over all sentences
and of the median sentence alone, peak memory in bytes, and all labels.

benchmarks/runtime.py starts the three scripts and times them. Each script imports only what it needs, because
fastText's Python does not have the project's packages.
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
"""Number of sentences classified one by one."""
CHUNK = 1024
"""Number of sentences classified at a time, as in predict.py."""

Classify = Callable[[list[str]], list[str]]
"""Function from sentences to their labels."""


def measure(classify: Classify, texts: list[str], clock: Callable[[], float], passes: int) -> dict[str, Any]:
    """Return the best time of a pass, the median time of one text alone, the peak memory after both, and all labels."""
    labels = in_chunks(classify, texts)  # warm up
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
    """Return the labels of all texts."""
    return [label for start in range(0, len(texts), CHUNK) for label in classify(texts[start : start + CHUNK])]


def peak_memory() -> int:
    """Return the peak memory of this process in bytes. In a child, ru_maxrss includes its parent before exec."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run(load: Callable[[str], Classify]) -> None:
    """Load a model, answer the first text, and measure if requested."""
    model, path, clock, passes = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    texts = Path(path).read_text(encoding="utf-8").split("\n")
    classify = load(model)
    classify(texts[:1])
    print(time.process_time(), flush=True)
    if int(passes):
        chosen = {"wall": time.perf_counter, "cpu": time.process_time}[clock]
        print(json.dumps(measure(classify, texts, chosen, int(passes))))
