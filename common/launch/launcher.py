"""Who does the parts of long work: this process, several processes, a Ray cluster, or jobs of a Slurm cluster.

A worker that dies (killed, out of memory, its machine gone) costs the part it had; that part is given out again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from common.launch.dispatch import ATTEMPTS, Crew, give_out
from common.launch.dispatch import HasRows, PartDoer, PartT
from common.progress import Advance
from common.stopping import check

__all__ = ["ATTEMPTS", "HasRows", "Launcher", "PartDoer", "PartT"]


@dataclasses.dataclass(frozen=True)
class Launcher:
    """Where parts run."""

    kind: Literal["local", "processes", "ray", "slurm"] = "local"
    """This process, several processes of this machine, a Ray cluster, or a Slurm cluster."""
    workers: int = 0
    """How many at once; 0 for as many as this machine has CPU cores for, or the cluster has room for."""
    threads: int = 0
    """CPU threads of each; 0 for its share of this machine's cores (processes), or one (clusters)."""
    options: Mapping[str, Any] | tuple[tuple[str, Any], ...] = ()
    """For Slurm: partition, timeout_min, gpus_per_node, ... as submitit or sbatch calls them; folder, for submitit's
    files, on a disk that all machines share; cluster=local, which needs no Slurm."""

    def run(
        self,
        function: PartDoer[PartT],
        parts: Sequence[PartT],
        advance: Advance,
        lost: Callable[[PartT], None] | None = None,
    ) -> None:
        """Call `function` on every part, in any order; `advance` hears, in this process, of rows done.

        lost: called here with each part whose worker died ATTEMPTS times; without it, that raises UserError. Raises
        what `function` raises, and KeyboardInterrupt when a stop was asked for (common.stopping).
        """
        if self.kind == "local":
            for part in parts:
                check()
                function(part, advance)
        elif parts:
            give_out(self._crew(function, len(parts)), parts, lambda part: advance(part.rows), lost)

    def _crew(self, function: PartDoer[PartT], parts: int) -> Crew:
        """Workers, imported only when asked for: not all of their libraries need be installed."""
        if self.kind == "processes":
            from common.launch.processes import Processes

            return Processes(function, self.workers, self.threads, parts)
        if self.kind == "ray":
            from common.launch.ray import RayTasks

            return RayTasks(function, self.workers, self.threads, parts)
        from common.launch.slurm import SlurmJobs

        return SlurmJobs(function, self.workers, self.threads, parts, dict(self.options))
