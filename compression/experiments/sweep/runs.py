"""A run's files, and how long runs take. A run is finished if its record says so and the models it saved exist.

runs/<id>/run.json        the run, and how it goes; `running` counts only while its process exists
runs/<id>/result.json     rows of its models
runs/<id>/log.txt         its output
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any, Literal

from common.config import Settings, build
from common.errors import UserError
from common.store.artifact import points_to
from common.store.files import read_json
from common.store.processes import Process
from common.store.store import Store
from compression.experiments.report.results import grouped, read_results

Status = Literal["waiting", "running", "finished", "failed"]
_SPEED = (
    *("student_arch", "pair_encoder", "embedding_type", "embedding_dim", "encoder_hidden_dim", "layers", "iterations"),
    *("intermediate_dim", "heads", "kernel_width", "max_tokens", "batch_size", "precision"),
    *("only_original_data", "augmented", "align_hidden", "align_attention", "align_embedding", "align_last", "chains"),
)
"""Settings that the time per row depends on."""


class RunRecord(Settings):
    """Contents of a run's run.json."""

    id: str
    status: Status = "waiting"
    family: str
    """8 hex digits shared by runs that distil the same student with different seeds."""
    task: str
    settings: dict[str, Any]
    """Settings of all its steps."""
    inputs: dict[str, str]
    """Role -> key of each input."""
    models: dict[str, str] = {}
    """Name -> key of the models it saved: distilled, pruned, quantized."""
    error: str | None = None
    seconds: float = 0.0
    work: int = 0
    """Training rows times epochs, for estimates; 0 if no student was trained, because it was finished before."""
    started: str = ""
    """In UTC."""
    host: str = ""
    process: Process | None = None
    """The process that does it, or did."""
    threads: int

    @property
    def speed(self) -> tuple[object, ...]:
        """What the seconds per row and epoch depend on."""
        return (self.task, self.threads, *(str(self.settings.get(name)) for name in _SPEED))


class RunFolder:
    """A run's folder in a workspace."""

    def __init__(self, paths: Store, identity: str) -> None:
        self.paths = paths
        self.folder = paths.run(identity)
        self.file = self.folder / "run.json"
        self.results = self.folder / "result.json"
        self.log = self.folder / "log.txt"

    def record(self) -> RunRecord | None:
        """Return the record of a run that has begun, else None; also None if it is damaged, so the run is repeated."""
        try:
            return build(RunRecord, read_json(self.file))
        except UserError:
            return None

    def status(self) -> Status:
        """Return the run's status, from its files and the store: a finished run without its rows or models is waiting.

        A process of another machine is assumed to be alive.
        """
        record = self.record()
        if record is None:
            return "waiting"
        if record.status == "running":
            return "running" if record.process and record.process.is_alive() is not False else "waiting"
        if record.status == "finished":
            try:
                read_results(self.results)
            except UserError:  # missing, damaged, or changed by hand
                return "waiting"
            models = [(self.paths.model(record.task, name), key) for name, key in record.models.items()]
            return (
                "finished" if all(points_to(path, key) and self.paths.get(key) for path, key in models) else "waiting"
            )
        return record.status

    def elapsed(self) -> float:
        """Return the seconds since a process began to execute the run."""
        return max(0.0, time.time() - self.file.stat().st_mtime) if self.file.exists() else 0.0

    def last_line(self) -> str:
        """Return the last non-empty line of the log, or an empty string."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Estimator:
    """Estimates from the seconds per row and epoch of finished runs of the same speed, else of the same sweep."""

    def __init__(self, paths: Store, sweep: Iterable[RunRecord] = ()) -> None:
        """sweep: all runs of the sweep to estimate."""
        records = [RunFolder(paths, file.parent.name).record() for file in paths.run("").glob("*/run.json")]
        ended = [record for record in records if record and record.status == "finished" and record.work]
        ids = {run.id for run in sweep}
        self._of_speed = grouped(ended, lambda record: record.speed)
        self._of_sweep = [record for record in ended if record.id in ids]

    def seconds(self, runs: Iterable[RunRecord]) -> float | None:
        """Return the seconds that the runs take one after the other, or None if no similar run has finished."""
        total = 0.0
        for run in runs:
            similar = self._of_speed.get(run.speed, self._of_sweep)
            if not similar:
                return None
            total += statistics.median(record.seconds / record.work for record in similar) * run.work
        return total


def duration(seconds: float) -> str:
    """Return '42 s', '12 min', '3 h 5 min' or '2 d 4 h'."""
    minutes = round(seconds / 60)
    hours = minutes // 60
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
