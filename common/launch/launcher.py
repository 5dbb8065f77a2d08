"""Where the jobs of long work run: this process, several processes, a Ray cluster, or a Slurm cluster.

The job of a worker that dies (killed, out of memory, its machine gone) is started again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

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
    """Workers at a time; 0 for as many as this machine has CPU cores for, or the cluster has room for."""
    threads: int = 0
    """CPU threads of each worker; 0 for its share of this machine's cores (processes), or one (clusters)."""
    options: Mapping[str, Any] | tuple[tuple[str, Any], ...] = ()
    """For Slurm: partition, timeout_min, gpus_per_node and others, named as in submitit or sbatch; folder, for
    submitit's files, on a disk that all machines share; cluster=local, which needs no Slurm."""

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
        kind = Processes if self.kind == "processes" else RayTasks
        return kind(function, self.workers, self.threads, jobs)
