"""Workers of the Ray cluster that RAY_ADDRESS names, or of one started on this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.devices import cpu_cores
from common.errors import UserError
from common.installed import install
from common.launch.dispatch import POLL_SECONDS, JobFunction, JobT, WorkerDied, import_path, run_in_folder
from common.launch.launcher import Launcher


class RayTasks:
    """Ray tasks, as an Executor. Each has `threads` CPU cores, and a GPU if there is one and `cpu` allows it."""

    def __init__(self, function: JobFunction[JobT], jobs: int, asked: Launcher) -> None:
        """Raises UserError when Ray is not installed."""
        try:
            import ray
        except ImportError:
            raise UserError(f"--launcher ray needs Ray; run: {install('ray')}") from None
        self._ray = ray
        threads = asked.threads or 1
        _connect(ray, asked.workers, threads)
        self.at_once = asked.workers or jobs
        self._function = function
        gpus = 1 if not asked.cpu and ray.cluster_resources().get("GPU") else 0
        # No retries: the dispatch loop starts jobs of dead workers again, as for every kind of worker.
        self._remote = ray.remote(run_in_folder).options(max_retries=0, num_cpus=threads, num_gpus=gpus)

    def start(self, jobs: list[JobT]) -> list[Any]:
        return [self._remote.remote(self._function, Path.cwd(), job) for job in jobs]

    def ended(self, running: list[Any]) -> Iterable[Any]:
        return self._ray.wait(running, timeout=POLL_SECONDS)[0]

    def result(self, handle: Any) -> None:
        try:
            self._ray.get(handle)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise WorkerDied(f"Ray: {type(error).__name__}") from None

    def ask_to_stop(self, running: list[Any]) -> None:
        """Cancel jobs: waiting jobs do not start, running jobs are interrupted."""
        for reference in running:
            self._ray.cancel(reference)

    def close(self, running: list[Any]) -> None:
        """Kill what is still running; the cluster stays for later work."""
        for reference in running:
            self._ray.cancel(reference, force=True)


def _connect(ray: Any, workers: int, threads: int) -> None:
    """Join the cluster that RAY_ADDRESS names, or start one on this machine that ends with this process."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send reports to its developers
    kept = ("MKL_CBWR", "MKL_DYNAMIC", "HF_HUB_OFFLINE")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables["PYTHONPATH"] = import_path()
    local: dict[str, Any] = {}
    if "RAY_ADDRESS" not in os.environ:
        cores = workers * threads if workers else max(cpu_cores(), threads)
        local = {"num_cpus": cores, "include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(log_to_driver=False, runtime_env={"env_vars": variables}, **local)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)  # Ray's own handler ends this process at once
