"""Who does the parts of long work: this process, several processes, or a Ray cluster.

A worker that dies (killed, out of memory, its machine gone) costs the part it had; that part is given out again.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from common.errors import UserError
from common.progress import Advance, nothing, say

ATTEMPTS = 4
"""Times a part is given out, at most."""
_ROOT = Path(__file__).parent.parent


class HasRows(Protocol):
    """A part of some work: whatever its function needs, and how much it is."""

    @property
    def rows(self) -> int:
        """Rows in it."""
        ...


PartT = TypeVar("PartT", bound=HasRows)
PartDoer = Callable[[PartT, Advance], None]
"""Does a part and tells of rows done on the way. A module's own function, and one that bears doing a part twice."""


@dataclasses.dataclass(frozen=True)
class Launcher:
    """Where parts run. workers: how many at once, 0 for one a CPU core (ray: as many as the cluster has room for)."""

    kind: Literal["local", "processes", "ray"] = "local"
    workers: int = 0

    def run(self, function: PartDoer[PartT], parts: Sequence[PartT], advance: Advance) -> None:
        """Call `function` on every part, in any order; `advance` hears, in this process, of rows done.

        Raises what `function` raises, and UserError when workers keep dying.
        """
        if self.kind == "local":
            for part in parts:
                function(part, advance)
        elif parts:
            how = _run_processes if self.kind == "processes" else _run_ray
            how(self.workers, function, list(parts), lambda part: advance(part.rows))


def _run_processes(
    workers: int, function: PartDoer[PartT], parts: list[PartT], finished: Callable[[PartT], None]
) -> None:
    cores = os.cpu_count() or 1
    workers = min(workers or cores, len(parts))
    waiting, deaths = parts, 0
    while waiting:
        before = len(waiting)
        waiting = _through_a_pool(workers, max(1, cores // workers), function, waiting, finished)
        deaths = deaths + 1 if len(waiting) == before else 1
        if waiting and deaths >= ATTEMPTS:
            raise UserError(f"{ATTEMPTS} workers died in a row (out of memory?); try fewer --workers")
        if waiting:
            say(f"a worker died; {len(waiting)} parts are given out again")


def _through_a_pool(
    workers: int, threads: int, function: PartDoer[PartT], parts: list[PartT], finished: Callable[[PartT], None]
) -> list[PartT]:
    """Give parts to a pool of processes until all are done or one process dies. Returns the parts not done."""
    left = dict(enumerate(parts))
    # spawn: a forked process must not use the threads and GPUs of its parent.
    with futures.ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (threads,)) as pool:
        running = {pool.submit(function, part, nothing): number for number, part in left.items()}
        try:
            for future in futures.as_completed(running):
                future.result()
                finished(left.pop(running[future]))
        except BrokenProcessPool:
            return list(left.values())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return []


def _start_worker(threads: int) -> None:
    # Before PyTorch loads: workers with a thread a core each would slow each other many times.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _run_ray(workers: int, function: PartDoer[PartT], parts: list[PartT], finished: Callable[[PartT], None]) -> None:
    ray = _ray()
    _connect(ray, workers)
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    remote = ray.remote(_do_in_folder).options(max_retries=ATTEMPTS - 1, num_gpus=gpus)
    waiting, running = parts[::-1], {}
    try:
        while waiting or running:
            while waiting and len(running) < (workers or len(parts)):
                part = waiting.pop()
                running[remote.remote(function, Path.cwd(), part)] = part
            for reference in ray.wait(list(running))[0]:
                ray.get(reference)
                finished(running.pop(reference))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise UserError(f"Ray: workers keep dying ({type(error).__name__})") from error
    finally:
        for reference in running:
            ray.cancel(reference)


def _do_in_folder(function: PartDoer[PartT], folder: Path, part: PartT) -> None:
    os.chdir(folder)  # parts may hold relative paths
    function(part, nothing)


def _connect(ray, workers: int) -> None:  # noqa: ANN001 - a module
    """Join the cluster that RAY_ADDRESS names, or start one on this machine that ends with this process."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
    kept = ("MKL_CBWR", "MKL_DYNAMIC", "HF_HUB_OFFLINE")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    local = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": workers or None, "include_dashboard": False}
    ray.init(log_to_driver=False, runtime_env={"env_vars": variables}, **local)


def _ray():  # noqa: ANN202 - a module
    try:
        import ray
    except ImportError:
        raise UserError("--launcher ray needs Ray; run: pip install -r requirements-ray.txt") from None
    return ray
