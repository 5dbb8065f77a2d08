"""Settings of `experiment.py sweep`."""

from typing import Any, Literal

import pydantic

from common.config import pairs
from common.errors import UserError
from common.launch.launcher import Launcher
from common.store.settings import QuerySettings


class SweepSettings(QuerySettings):
    """How a grid is run. What it holds is in its file."""

    name: str | None = None
    """Name of the experiment; unset means the file's."""
    set_: tuple[str, ...] = ()
    """KEY=VALUE: fixes a setting, or gives an axis or `seeds` other values (embedding_dim=[25,100]). Repeatable."""
    cpu: bool = False
    """Run on the CPU even where there is a GPU."""
    launcher: Literal["processes", "ray", "slurm", "local"] = "processes"
    """Who does the runs: processes on this machine, a Ray cluster, Slurm (array jobs), or this process alone."""
    workers: int = pydantic.Field(0, ge=0)
    """Runs at a time; 0 means one a CPU core (with a GPU: one), on a cluster as many as it has room for."""
    threads: int = pydantic.Field(1, gt=0)
    """CPU threads of each run. One is best for students, and results do not depend on the number of workers."""
    slurm: tuple[str, ...] = ()
    """KEY=VALUE for submitit, such as partition=gpu timeout_min=120 gpus_per_node=1. Repeatable."""
    observer: tuple[str, ...] = ()
    """Where runs are recorded beside files: sqlite:///runs.db, or mongodb://HOST/DATABASE. Repeatable."""
    dry_run: bool = False
    """Print what would be done, and how long it would take, and do nothing."""
    retry_failed: bool = False
    """Do just the runs that failed again."""
    loadbar: bool = True
    """Show the board."""

    @property
    def flags(self) -> dict[str, Any]:
        """What every job and run is told."""
        return {"workspace": str(self.workspace), **({"cpu": True} if self.cpu else {})}

    def launch(self) -> Launcher:
        """Where runs go. Raises UserError for a --slurm that is malformed, or goes nowhere."""
        if self.slurm and self.launcher != "slurm":
            raise UserError("--slurm is for --launcher slurm")
        return Launcher(self.launcher, self._workers(), self.threads, pairs("--slurm", self.slurm))

    def _workers(self) -> int:
        if self.workers or self.launcher != "processes" or self.cpu:
            return self.workers
        from common.devices import pick_device

        return 1 if pick_device(False).type == "cuda" else 0
