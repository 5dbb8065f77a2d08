"""Speed and memory of a model on one CPU thread, over rows spread evenly over a split."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common.data.split import Split
from common.launch.dispatch import import_path
from common.progress import without_bars
from compression.evaluation import timing
from compression.evaluation.packed import Runtime, load_packed
from compression.runtime import native

ROWS, ALONE = 1000, 100
"""Maximum number of rows answered together, and one by one."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

Predictor = Callable[[Split], np.ndarray]
"""Function from a split to logits, as in common.training.metrics.score."""


def spread(split: Split, most: int) -> np.ndarray:
    """Return the indices of at most `most` rows, spread evenly over a split, int64 [rows]."""
    return np.linspace(0, len(split) - 1, min(most, len(split))).astype(np.int64)


def speed(predict: Predictor, split: Split, watts: float | None = None) -> dict[str, Any]:
    """Return the speed of a PyTorch model, including tokenizing. The caller limits the number of threads to one.

    watts: power from which its energy is computed; None: the energy that the machine counts.
    """
    rows, alone = spread(split, ROWS), spread(split, ALONE)
    with without_bars():
        times = timing.times(lambda some: predict(split.take(np.array(some))), rows, alone)
    return {"runtime": "pytorch", **times, **_energy(times, watts)}


def packed_speed(path: Path, runtime: Runtime, split: Split, watts: float | None = None) -> dict[str, Any]:
    """Return speed and peak memory of a packed file, measured in a separate process.

    peak_memory: bytes that loading the file and answering texts one by one add to a process with the runtime; None if
    the system does not report it; watts: as in `speed`. Raises UserError for a file that the runtime cannot read.
    """
    load_packed(path, runtime)
    lines = [json.dumps(_texts(split.take(spread(split, most)))) for most in (ALONE, ROWS)]
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": import_path()}
    library = [native.LIBRARY] if runtime == "c" else []
    command = [sys.executable, "-m", timing.__name__, str(path.resolve()), *library]
    # A new session, so that Ctrl-C does not reach this process: it ends within seconds, before the requested stop.
    done = subprocess.run(
        command,
        input="\n".join(lines),
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        start_new_session=True,
    )
    times = json.loads(done.stdout)
    return {"runtime": runtime, **times, **_energy(times, watts)}


def _energy(times: dict[str, Any], watts: float | None) -> dict[str, float]:
    return {} if watts is None else {"joules_for_one": watts / times["sentences_per_second"]}


def _texts(split: Split) -> list[Any]:
    return split.sentence1 if split.sentence2 is None else list(zip(*split.sentences(), strict=True))
