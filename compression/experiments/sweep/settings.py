"""Settings of `experiment.py sweep`."""

from typing import Any, Literal

import pydantic

from common.choices import described, used_by
from common.config import Uses, pairs
from common.launch.launcher import LAUNCHERS, Launcher
from common.store.settings import QuerySettings


class SweepSettings(QuerySettings):
    """Sweep: how a grid is run; its file has the cells."""

    name: str | None = None
    """Name of the experiment; unset: the file's."""
    set_: tuple[str, ...] = ()
    """KEY=VALUE: fixes a setting, or replaces the values of an axis or of `seeds` (embedding_dim=[25,100]). May
    be repeated."""
    cpu: bool = False
    """Run on the CPU even if there is a GPU."""
    launcher: Literal[tuple(LAUNCHERS)] = pydantic.Field(
        "processes", description=described("Where runs go.", LAUNCHERS)
    )
    workers: int = pydantic.Field(0, ge=0)
    """Runs at a time; 0: one per GPU, without GPUs one per CPU core, on a cluster as many as it can take."""
    threads: int = pydantic.Field(1, gt=0)
    """CPU threads of each run. One is best for students, and results do not depend on the number of workers."""
    slurm: tuple[str, ...] = ()
    """KEY=VALUE for submitit, such as partition=gpu timeout_min=120 gpus_per_node=1. May be repeated."""
    observer: tuple[str, ...] = ()
    """Where runs are recorded in addition to files: sqlite:///runs.db, or mongodb://HOST/DATABASE. May be repeated."""
    dry_run: bool = False
    """Print the plan and its estimated time, and run nothing."""
    retry_failed: bool = False
    """Run again only the runs that failed."""
    loadbar: bool = True
    """Show the progress board, with time left, and the progress bars of shared jobs."""

    def _uses(self) -> Uses:
        yield from used_by("launcher", self.launcher, LAUNCHERS)

    @property
    def flags(self) -> dict[str, Any]:
        """Flags that apply to every job and run."""
        on_cpu = {"cpu": True} if self.cpu else {}
        return {"workspace": str(self.workspace), "loadbar": self.loadbar, **on_cpu}

    def launch(self) -> Launcher:
        """Return the launcher of the runs. Raises UserError if --slurm is malformed."""
        return Launcher(self.launcher, self.workers, self.threads, pairs("--slurm", self.slurm), self.cpu)
