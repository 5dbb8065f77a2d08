"""Workers that are jobs of a Slurm cluster, submitted as arrays by submitit, whose folder is on a shared disk.

submitit requeues a job that is pre-empted or at its time limit; one that dies for another reason is started again here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic
from unittest import mock

from common.devices import cpu_cores
from common.errors import UserError, first_line
from common.installed import install
from common.launch.dispatch import POLL_SECONDS, JobFunction, JobT, WorkerDied, import_path, run_in_folder
from common.launch.launcher import Launcher

DEFAULT_FOLDER = Path(".submitit")
_MINUTES = 240
_LARGEST_ARRAY = 1000  # Slurm's own default
_SHARED_OPTIONS = {"name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node"}
"""Options that submitit has for every cluster; options of sbatch get the prefix `slurm_`."""


class SlurmJobs:
    """Jobs of Slurm, as an Executor. cluster=local runs them on this machine, for tests."""

    def __init__(self, function: JobFunction[JobT], jobs: int, asked: Launcher) -> None:
        """Raises UserError if submitit or Slurm is not installed, and for an unknown option."""
        options = {"cluster": "slurm", "folder": DEFAULT_FOLDER, **dict(asked.options)}
        cluster = options.pop("cluster")
        if cluster not in ("slurm", "local"):
            raise UserError(f"--launcher slurm: unknown cluster {cluster!r}; choose slurm or local")
        if cluster == "slurm" and not all(map(shutil.which, ("sbatch", "srun", "sacct", "scancel"))):
            raise UserError("--launcher slurm: Slurm's sbatch, srun, sacct and scancel are not on this machine")
        self._local = cluster == "local"
        self._folder = Path(options.pop("folder")) / uuid.uuid4().hex[:8]
        self._task = _Task(function, Path.cwd())
        if not str(options.get("cpus_per_task", 1)).isdecimal():
            raise UserError(f"--slurm cpus_per_task={options['cpus_per_task']}: not a number")
        self._threads = asked.threads or int(options.get("cpus_per_task", 1))
        self._died = self._stopping = False
        most = (asked.workers or cpu_cores()) if self._local else _LARGEST_ARRAY
        self.at_once = min(jobs, most)
        options = {"timeout_min": _MINUTES, "name": "featherweight", "cpus_per_task": self._threads, **options}
        if asked.workers:
            options.setdefault("array_parallelism", asked.workers)
        try:
            self._executor = _executor(cluster, self._folder, options)
        except UserError:
            self.close([])
            raise

    def start(self, jobs: list[JobT]) -> list[Any]:
        """Submit jobs as one array."""
        # Jobs inherit the variables. PyTorch reads the threads when it loads; jobs start in another folder.
        variables = {"OMP_NUM_THREADS": str(self._threads), "PYTHONPATH": import_path()}
        with mock.patch.dict(os.environ, variables), _one_line("Slurm refuses the jobs"):
            return self._executor.map_array(self._task, jobs)

    def ended(self, running: list[Any]) -> Iterable[Any]:
        """Return the jobs that are done, whether or not they left a result."""
        if self._stopping:
            running[0].done(force_check=True)  # one query updates the states of all
        done = [job for job in running if job.done()]
        if not done:
            time.sleep(POLL_SECONDS if self._local else 1.0)
        return done

    def result(self, handle: Any) -> None:
        from submitit.core.utils import UncompletedJobError

        try:
            error = handle.result()
        except UncompletedJobError:
            self._died = True
            raise WorkerDied(f"job {handle.job_id}, {handle.state}; its log is {handle.paths.stderr}") from None
        if error is not None:
            raise error

    def ask_to_stop(self, running: list[Any]) -> None:
        """Cancel the jobs: Slurm sends a signal first, and kills them after a grace time."""
        self._stopping = True
        for job in reversed(running):  # waiting jobs first, or they would start when others end
            job.cancel(check=False)

    def close(self, running: list[Any]) -> None:
        """Cancel what is still running, and remove the folder unless it holds logs of jobs that died."""
        for job in running:
            job.cancel(check=False)
        if not self._died and not running:
            shutil.rmtree(self._folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._folder.parent.rmdir()  # rmdir refuses where other runs still use it


@dataclasses.dataclass(frozen=True)
class _Task(Generic[JobT]):
    """The callable that a job runs. It returns the function's exception: submitit would pass on only its text."""

    function: JobFunction[JobT]
    folder: Path

    def __call__(self, job: JobT) -> Exception | None:
        from submitit.core.utils import UncompletedJobError

        try:
            run_in_folder(self.function, self.folder, job)
        except UncompletedJobError:  # raised by submitit at the last of several time limits
            raise
        except Exception as error:
            return error
        return None

    def checkpoint(self, job: JobT) -> Any:
        """Return what submitit requeues: the same job, which resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job)


def _executor(cluster: str, folder: Path, options: Mapping[str, Any]) -> Any:
    try:
        import submitit
    except ImportError:
        raise UserError(f"--launcher slurm needs submitit; run: {install('slurm')}") from None
    named = {
        name if name in _SHARED_OPTIONS or name.startswith("slurm_") else f"slurm_{name}": _typed(value)
        for name, value in options.items()
    }
    folder.mkdir(mode=0o700, parents=True)  # nobody else may write what jobs unpickle
    with _one_line("--launcher slurm"):
        executor = submitit.AutoExecutor(folder, cluster=cluster)
        executor.update_parameters(**named)
    return executor


def _typed(value: Any) -> Any:
    """Return an option as a number or a boolean if it is one: submitit rejects text for these."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return {"true": True, "false": False}.get(value.lower(), value)


@contextlib.contextmanager
def _one_line(what: str) -> Iterator[None]:
    """Turn errors of submitit and sbatch, of several types and lines, into one-line UserErrors."""
    try:
        yield
    except (AssertionError, NameError, RuntimeError, ValueError) as error:
        raise UserError(f"{what}: {first_line(error)}") from error
