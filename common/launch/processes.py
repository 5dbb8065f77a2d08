"""Workers that are processes of this machine, in a pool that outlives those that die."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_bool
from multiprocessing import get_context, parent_process

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from common import stopping
from common.errors import UserError
from common.launch.dispatch import SECONDS_BETWEEN_LOOKS, WorkerDied
from common.launch.dispatch import PartDoer, PartT
from common.progress import nothing


class Processes:
    """A crew (see Crew) of pebble's: a worker that dies is replaced, and only the part it had hears of it."""

    def __init__(self, function: PartDoer[PartT], workers: int, threads: int, parts: int) -> None:
        """workers: 0 for as many as there are CPU cores for; threads: of each, 0 for its share of the cores."""
        cores = os.cpu_count() or 1
        self.at_once = min(workers or max(1, cores // (threads or 1)), parts)
        self._function = function
        # spawn: a forked process must not use the threads and GPUs of its parent.
        context = get_context("spawn")
        # Without a lock, unlike an Event: a worker killed while it held that would stop all others at their next look.
        self._stop = context.RawValue(c_bool, False)
        start = (threads or max(1, cores // self.at_once), self._stop)
        self._pool = ProcessPool(self.at_once, initializer=_start_worker, initargs=start, context=context)

    def start(self, parts: list[PartT]) -> list[ProcessFuture]:
        """Give out parts."""
        return [self._pool.schedule(self._function, (part, nothing)) for part in parts]

    def ended(self, running: list[ProcessFuture]) -> Iterable[ProcessFuture]:
        """Futures that are done."""
        return futures.wait(running, SECONDS_BETWEEN_LOOKS, futures.FIRST_COMPLETED).done

    def result(self, handle: ProcessFuture) -> None:
        """Raise what the part's function raised, or WorkerDied."""
        try:
            handle.result()
        except ProcessExpired as error:
            raise WorkerDied(f"exit code {error.exitcode}") from None
        except BrokenProcessPool:
            raise UserError("workers die before they have work (out of memory?); try fewer --workers") from None

    def ask_to_stop(self, running: list[ProcessFuture]) -> None:
        """Tell all workers."""
        self._stop.value = True

    def close(self, running: list[ProcessFuture]) -> None:
        """End all workers."""
        self._pool.stop()
        self._pool.join()


def _start_worker(threads: int, stop: c_bool) -> None:
    """Begin a worker. It ignores SIGINT, by pebble, since a terminal sends that to every process of the command."""
    # Before PyTorch loads: workers with a thread a core each would slow each other many times.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    stopping.listen(lambda: bool(stop.value))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent:
        parent.join()
        os._exit(1)
