"""Where the jobs of long work run: this process, several processes, a Ray cluster, or a Slurm cluster.

The job of a worker that dies (killed, out of memory, its machine gone) is started again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from common.devices import cpu_cores, gpu_count
from common.launch.dispatch import Executor, JobFunction, JobT, dispatch
from common.launch.processes import Processes
from common.launch.ray import RayTasks
from common.launch.slurm import SlurmJobs
from common.progress import Advance
from common.stopping import check


@dataclasses.dataclass(frozen=True)
class Launcher:
    """Where jobs run."""

    kind: Literal["local", "processes", "ray", "slurm"] = "local"
    """This process, several processes of this machine, a Ray cluster, or a Slurm cluster."""
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

    def at_once(self) -> int:
        """Return the number of workers on this machine; for a cluster, the number that this machine has room for."""
        if self.kind == "local":
            return 1
        gpus = 0 if self.workers or self.kind != "processes" else gpu_count(self.cpu)
        return self.workers or gpus or max(1, cpu_cores() // (self.threads or 1))

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
        if self.kind == "local":
            for job in jobs:
                check()
                function(job, advance)
        elif jobs:
            dispatch(self._executor(function, len(jobs)), jobs, lambda job: advance(job.rows), lost)

    def _executor(self, function: JobFunction[JobT], jobs: int) -> Executor:
        if self.kind == "slurm":
            return SlurmJobs(function, self.workers, self.threads, jobs, dict(self.options))
        if self.kind == "ray":
            return RayTasks(function, self.workers, self.threads, jobs, self.cpu)
        return Processes(function, min(self.at_once(), jobs), self.threads, gpu_count(self.cpu))
