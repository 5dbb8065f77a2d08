"""How long runs will take, from runs that have finished."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from common.store.store import Store
from compression.experiments.sweep.runs import RunFolder
from compression.experiments.sweep.work import RunTask

_Kind = tuple[object, ...]


class Estimator:
    """Seconds per row and epoch of finished runs, by kinds of run from strict (task, student, embedding) to any."""

    def __init__(self, paths: Store) -> None:
        self._rates: dict[_Kind, list[float]] = defaultdict(list)
        for file in paths.run("").glob("*/run.json"):
            record = RunFolder(paths, file.parent.name).record()
            if record and record.status == "finished" and record.work:
                for kind in _kinds(record.task, record.settings):
                    self._rates[kind].append(record.seconds / record.work)

    def seconds(self, runs: Iterable[RunTask]) -> float | None:
        """Return the seconds that runs take one after the other, or None where no run of their kinds has finished."""
        total = 0.0
        for run in runs:
            rates = next((self._rates[kind] for kind in _kinds(run.task, run.settings) if kind in self._rates), None)
            if rates is None:
                return None
            total += statistics.median(rates) * run.rows
        return total


def _kinds(task: str, settings: dict[str, object]) -> list[_Kind]:
    """Kinds that a run belongs to, from strict to loose; the first one with finished runs is the best guess."""
    arch, embedding, width = (settings.get(name) for name in ("student_arch", "embedding_type", "embedding_dim"))
    return [(task, arch, embedding, width), (task, arch, embedding), (task, arch), (arch, embedding), (arch,), ()]
