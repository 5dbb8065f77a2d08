"""How much CPU time a model takes to answer. As a program: how much a packed file takes, and the memory that it needs.

    python -m compression.evaluation.timing FILE.fwt [LIBRARY] < texts.jsonl

LIBRARY is that of the C runtime; without it NumPy reads the file.

The process imports the runtime alone, so that its memory is what a program with a packed file takes.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PASSES = 3
"""Times that everything is measured, of which the median counts."""
_STATUS = Path("/proc/self/status")


def times(answer: Callable[[Sequence[Any]], object], texts: Sequence[Any], alone: Sequence[Any]) -> dict[str, float]:
    """Return sentences a second over all texts, and the milliseconds that the median of `alone` takes by itself.

    Both are of CPU time: with one thread it equals wall-clock time, and other processes disturb it far less.
    """

    def seconds(some: Sequence[Any]) -> float:
        started = time.process_time()
        answer(some)
        return time.process_time() - started

    answer(alone)  # the first answers are slower: memory is allocated, words are cached
    together = statistics.median(seconds(texts) for _ in range(PASSES))
    one = statistics.median(seconds([text]) for _ in range(PASSES) for text in alone)
    return {
        "sentences_per_second": round(len(texts) / together, 1),
        "milliseconds_for_one": round(1000 * one, 4),
    }


def _resident(field: str) -> int | None:
    """Return a field of Linux's /proc/self/status in bytes, None elsewhere."""
    if not _STATUS.exists():
        return None
    # Not getrusage's ru_maxrss: of a child it counts the parent's memory too.
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def main() -> None:
    """Print the times of a packed file's answers, and its peak memory, as JSON.

    stdin: a line with the texts that are answered one by one, and one with those answered together, as JSON.
    """
    path, *library = sys.argv[1:]
    alone = json.loads(sys.stdin.readline())
    if library:
        from compression.runtime import native

        (native.LIBRARY,) = library
        load = native.load_native
    else:
        from compression.runtime import load
    before = _resident("VmRSS")
    model = load(path)
    for text in alone:
        model.logits([text])
    memory = None if before is None else _resident("VmHWM") - before
    texts = json.loads(sys.stdin.readline())  # not before: the model would take memory that these have freed
    print(json.dumps({**times(model.logits, texts, alone), "peak_memory": memory}))


if __name__ == "__main__":
    main()
