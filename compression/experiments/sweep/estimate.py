"""How long runs will take, from runs that have finished."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from common.store.workspace import Workspace
from compression.experiments.sweep.runs import RunFolder
from compression.experiments.sweep.work import Assignment

_Kind = tuple[object, ...]


class Estimator:
    """Seconds a run takes a row and epoch, by how alike finished runs are: task, student and embedding, or less."""

    def __init__(self, paths: Workspace) -> None:
        self.paths = paths
        self._rates: dict[_Kind, list[float]] = defaultdict(list)
        self._seen: set[str] = set()
        for record in paths.run("").glob("*/run.json"):
            self.learn(record.parent.name)

    def learn(self, identity: str) -> None:
        """Count a run that has finished, once."""
        record = RunFolder(self.paths, identity).record()
        if record is None or record.status != "finished" or identity in self._seen or not record.work:
            return
        self._seen.add(identity)
        for kind in _kinds(record.task, record.settings):
            self._rates[kind].append(record.seconds / record.work)

    def seconds(self, works: Iterable[Assignment]) -> float | None:
        """Seconds that runs take one after the other, or None where none like them has finished yet."""
        total = 0.0
        for work in works:
            rates = next((self._rates[kind] for kind in _kinds(work.task, work.settings) if kind in self._rates), None)
            if rates is None:
                return None
            total += statistics.median(rates) * work.rows
        return total


def _kinds(task: str, settings: dict[str, object]) -> list[_Kind]:
    """Ever looser kinds that a run belongs to; the first one that has finished runs is the best guess."""
    arch, embedding, width = (settings.get(name) for name in ("student_arch", "embedding_type", "embedding_dim"))
    return [(task, arch, embedding, width), (task, arch, embedding), (task, arch), (arch, embedding), (arch,), ()]
