"""Where the jobs of long work run: this process, several processes, a Ray cluster, or a Slurm cluster.

The job of a worker that dies (killed, out of memory, its machine gone) is started again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from common.choices import Choice
from common.devices import gpu_count
from common.launch.dispatch import JobFunction, JobT, Workers, dispatch
from common.progress import Advance
from common.stopping import check


@dataclasses.dataclass(frozen=True)
class Place(Choice):
    """A place where jobs run: function, number of jobs, and the workers asked for -> their Executor."""

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


class Launcher(Workers):
    """Runs jobs."""

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
