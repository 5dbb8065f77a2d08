"""A run's files. A run is finished if its record has that status and the models it saved exist.

runs/<id>/run.json        written atomically when the run ends: finished, or failed with the reason
runs/<id>/running.json    exists while the run is in progress; ignored if its process was killed
runs/<id>/result.json     rows of its models
runs/<id>/log.txt         its output
"""

from __future__ import annotations

import time
from typing import Any, Literal

from common.config import Settings, build
from common.errors import UserError
from common.store.artifact import points_to
from common.store.files import read_json
from common.store.processes import Process
from common.store.store import Store
from compression.experiments.report.results import read_results

Status = Literal["waiting", "running", "finished", "failed"]


class RunRecord(Settings):
    """Contents of a run's run.json."""

    id: str
    status: Literal["finished", "failed"] = "failed"
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
    threads: int


class RunFolder:
    """A run's folder in a workspace."""

    def __init__(self, paths: Store, identity: str) -> None:
        self.paths = paths
        self.folder = paths.run(identity)
        self.file = self.folder / "run.json"
        self.running = self.folder / "running.json"
        self.results = self.folder / "result.json"
        self.log = self.folder / "log.txt"

    def record(self) -> RunRecord | None:
        """Return the record of a run that has ended, else None; also None if it is damaged, so the run is repeated."""
        try:
            return build(RunRecord, read_json(self.file))
        except UserError:
            return None

    def status(self) -> Status:
        """Return the run's status, from its files and the store: a finished run without its rows or models is waiting.

        A process of another machine is assumed to be alive.
        """
        record = self.record()
        try:
            if record is None:
                return "running" if Process(**read_json(self.running)).is_alive() is not False else "waiting"
            if record.status == "failed":
                return "failed"
            read_results(self.results)
        except (UserError, OSError, TypeError):  # missing, damaged, or changed by hand
            return "waiting"
        models = [(self.paths.model(record.task, name), key) for name, key in record.models.items()]
        return "finished" if all(points_to(path, key) and self.paths.get(key) for path, key in models) else "waiting"

    def elapsed(self) -> float:
        """Return the seconds since a process began to execute the run; 0 if it has ended."""
        try:
            return max(0.0, time.time() - self.running.stat().st_mtime)
        except OSError:
            return 0.0

    def last_line(self) -> str:
        """Return the last non-empty line of the log, or an empty string."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def duration(seconds: float) -> str:
    """Return '42 s', '12 min', '3 h 5 min' or '2 d 4 h'."""
    minutes = round(seconds / 60)
    hours = minutes // 60
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
