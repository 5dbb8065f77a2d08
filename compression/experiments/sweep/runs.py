"""What is known of a run. It is finished when its record says so and what it made is there.

runs/<id>/run.json        written whole when it ends: finished, or failed and why
runs/<id>/running.json    written when it starts, gone when it ends; what a kill leaves behind means nothing
runs/<id>/result.json     rows of its models
runs/<id>/log.txt         what it printed
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any, Literal

from common.config import Settings, build
from common.errors import UserError
from common.store.artifact import points_to
from common.store.files import read_json, write_json
from common.store.store import Store
from common.store.workspace import Workspace
from compression.experiments.report.results import Row, read_results

Status = Literal["waiting", "running", "finished", "failed"]


class SavedModel(Settings):
    """A model that a run made."""

    name: str
    """Its name."""
    key: str
    """Its key in the store."""


class RunRecord(Settings):
    """Contents of a run's run.json."""

    id: str
    """Identity: the name of the run's folder."""
    status: Literal["finished", "failed"]
    """How it ended."""
    task: str
    """Its task."""
    settings: dict[str, Any]
    """Settings of all its steps."""
    inputs: dict[str, str]
    """Role -> key of what it read."""
    models: tuple[SavedModel, ...] = ()
    """Models it made: distilled, pruned, quantized."""
    error: str | None = None
    """Why it failed, in one line."""
    seconds: float
    """How long it took, from start to end."""
    work: int
    """Training rows times epochs, for estimates."""
    started: str
    """When, in UTC."""
    host: str
    """On which machine."""
    threads: int
    """With how many threads."""


class RunFolder:
    """A run's folder in a workspace."""

    def __init__(self, paths: Workspace, identity: str) -> None:
        self.paths = paths
        self.id = identity
        self.folder = paths.run(identity)

    @property
    def log(self) -> Path:
        """Everything the run printed."""
        return self.folder / "log.txt"

    @property
    def results(self) -> Path:
        """Rows of its models."""
        return self.folder / "result.json"

    @property
    def running(self) -> Path:
        """There while it runs."""
        return self.folder / "running.json"

    def record(self) -> RunRecord | None:
        """The run's record, if it has ended; a damaged one counts as none, since the run can be done again."""
        file = self.folder / "run.json"
        try:
            return build(RunRecord, read_json(file)) if file.exists() else None
        except UserError:
            return None

    def write(self, record: RunRecord) -> None:
        """Keep a record: the run has ended."""
        write_json(self.folder / "run.json", record.model_dump(mode="json"))
        self.running.unlink(missing_ok=True)

    def rows(self) -> list[Row]:
        """Its rows. Raises UserError when they are missing or were changed by hand."""
        return read_results(self.results)

    def status(self) -> Status:
        """Where it stands, by its files."""
        record = self.record()
        if record is None:
            return "running" if self._is_alive() else "waiting"
        return record.status if record.status == "failed" or self.is_whole(record) else "waiting"

    def _is_alive(self) -> bool:
        """Whether someone is at it. What a killed process left behind on this machine is seen through."""
        try:
            who = read_json(self.running)
        except UserError:
            return False
        if not isinstance(who, dict) or not isinstance(who.get("pid"), int):
            return False
        if who.get("host") != platform.node():
            return True
        try:
            os.kill(who["pid"], 0)
        except PermissionError:
            return True  # another user's
        except OSError:
            return False
        return True

    def is_whole(self, record: RunRecord) -> bool:
        """Whether all that a finished run made is still there: its rows as written, its models as made."""
        with contextlib.suppress(UserError):
            self.rows()
            return all(self._is_there(record.task, model) for model in record.models)
        return False

    def _is_there(self, task: str, model: SavedModel) -> bool:
        alias = self.paths.model(task, model.name)
        return points_to(alias, model.key) and Store(self.paths.root).get(model.key) is not None

    def last_words(self) -> str:
        """The last line of its log, empty where there is none."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
