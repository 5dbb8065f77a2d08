"""Workers that are processes of this machine, in a pool that replaces those that die."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_bool
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from common import stopping
from common.devices import cpu_cores, gpu_count
from common.errors import UserError
from common.launch.dispatch import POLL_SECONDS, JobFunction, JobT, WorkerDied
from common.launch.launcher import Launcher
from common.progress import nothing


class Processes:
    """A process pool of pebble, as an Executor: a worker that dies is replaced, and other jobs are not affected."""

    def __init__(self, function: JobFunction[JobT], jobs: int, asked: Launcher) -> None:
        """GPUs are divided among the workers."""
        gpus = gpu_count(asked.cpu)
        self.at_once = min(asked.fitting(gpus), jobs)
        self._function = function
        devices = _devices(self.at_once, gpus)
        self._places = TemporaryDirectory(prefix="featherweight-") if devices else None
        # spawn: a forked process cannot use the threads and GPUs of its parent.
        context = get_context("spawn")
        # Has no lock, unlike an Event: a worker killed while holding the lock would block all others.
        self._stop = context.RawValue(c_bool, False)
        threads = asked.threads or max(1, cpu_cores() // self.at_once)
        start = (threads, self._stop, Path(self._places.name) if self._places else None, devices)
        self._pool = ProcessPool(self.at_once, initializer=_start_worker, initargs=start, context=context)

    def start(self, jobs: list[JobT]) -> list[ProcessFuture]:
        return [self._pool.schedule(self._function, (job, nothing)) for job in jobs]

    def ended(self, running: list[ProcessFuture]) -> Iterable[ProcessFuture]:
        return futures.wait(running, POLL_SECONDS, futures.FIRST_COMPLETED).done

    def result(self, handle: ProcessFuture) -> None:
        try:
            handle.result()
        except ProcessExpired as error:
            raise WorkerDied(f"exit code {error.exitcode}") from None
        except BrokenProcessPool:
            raise UserError("workers die before they start a job (out of memory?); try fewer --workers") from None

    def ask_to_stop(self, running: list[ProcessFuture]) -> None:
        self._stop.value = True

    def close(self, running: list[ProcessFuture]) -> None:
        self._pool.stop()
        self._pool.join()
        if self._places:
            self._places.cleanup()


def _devices(workers: int, gpus: int) -> list[str]:
    """Return the GPU of each worker, as named in CUDA_VISIBLE_DEVICES; empty if all workers see the same GPUs.

    With more workers than GPUs, several workers share one.
    """
    if gpus < 2:
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",")[:gpus] if visible else list(map(str, range(gpus)))
    return [names[number % len(names)] for number in range(workers)]


def _start_worker(threads: int, stop: c_bool, places: Path | None, devices: list[str]) -> None:
    """Prepare a worker. Pebble makes it ignore SIGINT, which a terminal sends to every process of a command."""
    # Set before PyTorch loads; otherwise all workers use all cores, which slows them down, and see all GPUs.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if places:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[_place(places, len(devices))]
    stopping.listen(lambda: bool(stop.value))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _place(folder: Path, places: int) -> int:
    """Return the lowest number that no other worker has; it selects the GPU, and is locked until this worker ends."""
    for place in range(places):
        with contextlib.suppress(Timeout):
            lock = FileLock(folder / str(place))
            lock.acquire(blocking=False)
            _held.append(lock)
            return place
    return 0


_held: list[FileLock] = []
"""The lock on this worker's number."""


def _end_with_parent() -> None:
    """End this process when its parent does: a worker whose parent was killed would wait for ever."""
    parent_process().join()
    os._exit(1)
