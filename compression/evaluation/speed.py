"""How fast a model answers."""

import timeit
from collections.abc import Callable

import numpy as np

from common.data.split import Split
from common.progress import show_bars

TIMED_PASSES = 3

Predictor = Callable[[Split], np.ndarray]
"""From a split to logits, as in common.training.metrics.score."""


def speed(predict: Predictor, split: Split) -> dict[str, float]:
    """Return speeds, tokenizing included. The best of a few passes counts: a busy machine disturbs it least."""
    show_bars(False)

    def seconds(rows: Split) -> float:
        return min(timeit.repeat(lambda: predict(rows), number=1, repeat=TIMED_PASSES))

    return {
        "sentences_per_second": round(len(split) / seconds(split), 1),
        "milliseconds_for_one": round(1000 * seconds(split.take(np.arange(1))), 3),
    }
