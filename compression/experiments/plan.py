"""Plans: what an experiment does, from a file of jobs, a file of a grid, or jobs on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from common.data.tasks import load_task
from common.store.store import Store
from compression.experiments.jobs import Job, recorded_settings
from compression.experiments.report.record import ExperimentRecord, RecordedRun
from compression.shrinking.settings import Action


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run: one cell of a grid with one seed. flags: its settings, without defaults; chains: see GridFile."""

    labels: dict[str, str]
    seed: int
    flags: dict[str, Any]
    chains: tuple[tuple[Action, ...], ...]

    @property
    def jobs(self) -> list[Job]:
        """The run's compress jobs, one per chain."""
        chains = [{"compression_actions": chain} for chain in self.chains] or [{}]
        return [Job("compress", {**self.flags, **chain}) for chain in chains]

    def as_record(self, identity: str | None = None, teacher: str | None = None) -> RecordedRun:
        """Return the run in the form of experiment.json. identity: None before its inputs exist."""
        settings = recorded_settings(self.with_teacher(teacher))
        settings.pop("model_name", None)  # derived from the other settings
        return RecordedRun(id=identity, cell=self.labels, seed=self.seed, settings=settings)

    def with_teacher(self, teacher: str | None) -> dict[str, Any]:
        """Return the settings with a teacher, unless they name one."""
        return {**({"teacher": teacher} if teacher else {}), **self.flags}


@dataclasses.dataclass(frozen=True)
class Plan:
    """An experiment ready to run: jobs, and then the runs of a grid; a chain has only jobs.

    record: its description before anything has run. shared: task -> jobs to run before the task's runs; a chain's jobs
    are in one list. augmented: names of the augmented rows. timing: settings of evaluate for timing the runs' models;
    empty if they are not timed. threads: of a run.
    """

    record: ExperimentRecord
    workspace: Store
    shared: dict[str, list[Job]]
    augmented: tuple[str, ...]
    cells: tuple[Cell, ...] = ()
    timing: dict[str, Any] = dataclasses.field(default_factory=dict)
    observers: Sequence[str] = ()
    threads: int = 1
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.workspace.experiment(self.name)  # raises UserError for a name that is not one word

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.record.name

    @property
    def jobs(self) -> list[Job]:
        """The jobs that come first."""
        return [job for jobs in self.shared.values() for job in jobs]

    @property
    def tasks(self) -> list[str]:
        """The tasks, as settings name them."""
        return list(dict.fromkeys(part.flags["task"] for part in (*self.jobs, *self.cells)))

    def __str__(self) -> str:
        """Return the tasks and the jobs, one per line."""
        tasks = dict.fromkeys(load_task(task).name for task in self.tasks)
        return "\n".join([f"{self.name}, {', '.join(tasks)}", *map(str, self.jobs)])
