"""CPU time that a model takes to answer. As a program: CPU time and memory of a packed file.

    python -m compression.evaluation.timing FILE.fwt [LIBRARY] < texts.jsonl

LIBRARY is the library of the C runtime; without it, the NumPy runtime reads the file.

The process imports only the runtime and a counter of energy, so that its memory is that of a program which uses a
packed file.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.energy import EnergyMeter

PASSES = 3
"""Number of measurements, of which the median is taken."""
_STATUS = Path("/proc/self/status")


def times(answer: Callable[[Sequence[Any]], object], texts: Sequence[Any], alone: Sequence[Any]) -> dict[str, Any]:
    """Return sentences per second and the joules of one over all texts, and the median milliseconds of one of `alone`.

    The joules are None if the machine does not count them. Times are CPU time, which equals wall-clock
    time with one thread and is disturbed far less by other processes.
    """

    def seconds(some: Sequence[Any]) -> float:
        started = time.process_time()
        answer(some)
        return time.process_time() - started

    answer(alone)  # warm up: the first answers allocate memory and fill caches
    energy = EnergyMeter()
    together = statistics.median(seconds(texts) for _ in range(PASSES))
    joules = energy.joules()
    one = statistics.median(seconds([text]) for _ in range(PASSES) for text in alone)
    return {
        "sentences_per_second": round(len(texts) / together, 1),
        "milliseconds_for_one": round(1000 * one, 4),
        "joules_for_one": None if joules is None else joules / (PASSES * len(texts)),
    }


def _resident(field: str) -> int | None:
    """Return a field of Linux's /proc/self/status in bytes; None on other systems."""
    if not _STATUS.exists():
        return None
    # getrusage's ru_maxrss is not used, because in a child process it includes the parent's memory.
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def main() -> None:
    """Print the times of a packed file's answers, and its peak memory, as JSON.

    stdin: two lines of JSON, the texts to answer one by one, and the texts to answer together.
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
    texts = json.loads(sys.stdin.readline())  # not read earlier: the model would reuse memory freed by parsing
    print(json.dumps({**times(model.logits, texts, alone), "peak_memory": memory}))


if __name__ == "__main__":
    main()
