"""Where the jobs of long work run: this process, several processes, a Ray cluster, or a Slurm cluster.

The job of a worker that dies (killed, out of memory, its machine gone) is started again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.choices import Choice
from common.devices import cpu_cores, gpu_count
from common.launch.dispatch import JobFunction, JobT, dispatch
from common.progress import Advance
from common.stopping import check


@dataclasses.dataclass(frozen=True)
class Place(Choice):
    """A place where jobs run. Its class: function of a job, number of jobs, launcher -> Executor."""

    here: bool = True
    """Whether workers are processes of this machine, not of a cluster."""


LAUNCHERS = {
    "local": Place("this process", ""),
    "processes": Place("processes of this machine", "common.launch.processes:Processes", settings=("workers",)),
    "ray": Place(
        "a Ray cluster (RAY_ADDRESS, or one started here)", "common.launch.ray:RayTasks", False, settings=("workers",)
    ),
    "slurm": Place("a Slurm cluster", "common.launch.slurm:SlurmJobs", False, settings=("workers", "slurm")),
}


@dataclasses.dataclass(frozen=True)
class Launcher:
    """Runs jobs: where, and with how many workers."""

    kind: str = "local"
    """A key of LAUNCHERS."""
    workers: int = 0
    """Workers at a time; 0: one per GPU, without GPUs as many as the CPU cores allow, or as many as the cluster has
    room for."""
    threads: int = 0
    """CPU threads of each worker; 0 for its share of this machine's cores (processes), or one (clusters)."""
    options: Mapping[str, Any] | tuple[tuple[str, Any], ...] = ()
    """For Slurm: partition, timeout_min, gpus_per_node and others, named as in submitit or sbatch; folder, for
    submitit's files, on a disk that all machines share; cluster=local, which needs no Slurm."""
    cpu: bool = False
    """Whether to use no GPUs: workers are given none, and their number depends on the cores."""

    def fitting(self, gpus: int) -> int:
        """Return the number of workers for a machine with this number of GPUs and the cores of this one."""
        return self.workers or gpus or max(1, cpu_cores() // (self.threads or 1))

    def at_once(self) -> int:
        """Return the number of workers on this machine; for a cluster, the number that this machine has room for."""
        place = LAUNCHERS[self.kind]
        gpus = gpu_count(self.cpu) if place.here and not self.workers else 0
        return self.fitting(gpus) if place.path else 1

    def run(
        self,
        function: JobFunction[JobT],
        jobs: Sequence[JobT],
        advance: Advance,
        lost: Callable[[JobT], None] | None = None,
    ) -> None:
        """Call `function` on every job, in any order; `advance` is called, in this process, with the rows done.

        lost: called here with each job whose worker died ATTEMPTS times; without it, that raises UserError. Raises
        what `function` raises, and KeyboardInterrupt on a request to stop (common.stopping).
        """
        place = LAUNCHERS[self.kind]
        if not place.path:
            for job in jobs:
                check()
                function(job, advance)
        elif jobs:
            dispatch(place.function(function, len(jobs), self), jobs, lambda job: advance(job.rows), lost)
