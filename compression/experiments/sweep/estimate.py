"""Estimates of how long runs take, from similar runs that have finished."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from common.store.store import Store
from compression.experiments.sweep.runs import RunFolder
from compression.experiments.sweep.work import RunTask

_Kind = tuple[object, ...]
_SPEED = (
    *("student_arch", "pair_encoder", "embedding_type", "embedding_dim", "encoder_hidden_dim", "layers", "iterations"),
    *("intermediate_dim", "heads", "kernel_width", "max_tokens", "batch_size", "precision"),
    *("only_original_data", "augmented", "align_hidden", "align_attention", "align_embedding", "align_last", "chains"),
)
"""Settings that the time per row depends on."""


class Estimator:
    """Estimates from the seconds per row and epoch of finished runs of the same kind, else of the same sweep.

    A kind is a task, a number of threads, and the settings that the time per row depends on.
    """

    def __init__(self, paths: Store, sweep: Iterable[RunTask] = ()) -> None:
        """sweep: all runs of the sweep to estimate."""
        own = {run.id for run in sweep}
        self._rates: dict[_Kind, list[float]] = defaultdict(list)
        self._own: list[float] = []
        for file in paths.run("").glob("*/run.json"):
            record = RunFolder(paths, file.parent.name).record()
            if record and record.status == "finished" and record.work:
                rate = record.seconds / record.work
                self._rates[_kind(record.task, record.threads, record.settings)].append(rate)
                if record.id in own:
                    self._own.append(rate)

    def seconds(self, runs: Iterable[RunTask]) -> float | None:
        """Return the seconds that the runs take one after the other, or None if no similar run has finished."""
        total = 0.0
        for run in runs:
            rates = self._rates.get(_kind(run.task, run.threads, run.settings), self._own)
            if not rates:
                return None
            total += statistics.median(rates) * run.rows
        return total


def _kind(task: str, threads: int, settings: dict[str, object]) -> _Kind:
    return (task, threads, *(str(settings.get(name)) for name in _SPEED))
