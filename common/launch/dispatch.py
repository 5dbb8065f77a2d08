"""Dispatch jobs to workers of any kind: one loop, which restarts the jobs of workers that die and stops cleanly."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from common.errors import UserError
from common.progress import Advance, nothing, say
from common.stopping import asked, graceful

ATTEMPTS = 4
"""Maximum number of times a job is started."""
POLL_SECONDS = 0.2
"""How long an executor waits for a job to end before the loop checks whether to stop."""
ROOT = Path(__file__).parent.parent.parent
"""Folder that workers import this project from."""


class Job(Protocol):
    """A share of some work: the arguments of its function, and its number of rows."""

    @property
    def rows(self) -> int:
        """Number of rows."""


JobT = TypeVar("JobT", bound=Job)
JobFunction = Callable[[JobT, Advance], None]
"""Runs a job and reports rows done on the way. A module-level function that may be run twice on the same job."""


class WorkerDied(Exception):
    """A worker ended before its job did. The message says which one and how."""


class Executor(Protocol):
    """Workers of one kind. A handle stands for one job that was started."""

    at_once: int
    """Number of jobs it accepts at a time."""

    def start(self, jobs: list[Any]) -> Sequence[Hashable]:
        """Start jobs. Returns a handle for each."""

    def ended(self, running: list[Any]) -> Iterable[Any]:
        """Return the handles of jobs that have ended. If none has, waits a moment and returns none."""

    def result(self, handle: Any) -> None:
        """Return if the job succeeded. Raises what its function raised, or WorkerDied."""

    def ask_to_stop(self, running: list[Any]) -> None:
        """Make `asked` true in the workers, so that running jobs end where they can resume."""

    def close(self, running: list[Any]) -> None:
        """Kill what is still running and end the workers."""


def dispatch(
    executor: Executor, jobs: Sequence[JobT], finished: Callable[[JobT], None], lost: Callable[[JobT], None] | None
) -> None:
    """Run every job, in any order. `finished` is called with each, `lost` with each whose worker died ATTEMPTS times.

    Raises the exception of a job's function, KeyboardInterrupt on a request to stop, and, without `lost`, UserError if
    workers keep dying; in each case after the running jobs have been asked to stop and have ended.
    """
    waiting = deque((job, 1) for job in jobs)  # job, attempt
    running: dict[Hashable, tuple[JobT, int]] = {}
    failure: BaseException | None = None
    try:
        while True:
            if asked() and not failure:
                failure = KeyboardInterrupt()
                executor.ask_to_stop(list(running))
            if not failure:
                starting = [waiting.popleft() for _ in range(min(len(waiting), executor.at_once - len(running)))]
                if starting:
                    running.update(zip(executor.start([job for job, _ in starting]), starting, strict=True))
            if not running:
                break
            for handle in executor.ended(list(running)):
                job, attempt = running.pop(handle)
                if failure:
                    continue
                try:
                    executor.result(handle)
                except WorkerDied as death:
                    if attempt < ATTEMPTS:
                        say(f"a worker died ({death}); restarting its job")
                        waiting.append((job, attempt + 1))
                    elif lost:
                        say(f"a worker died ({death}); giving up its job after {ATTEMPTS} attempts")
                        lost(job)
                    else:
                        failure = UserError(
                            f"{ATTEMPTS} workers died on the same job, the last one by {death} "
                            "(out of memory? try fewer --workers)"
                        )
                except BaseException as error:
                    # A request to stop may be the cause of any other exception.
                    failure = KeyboardInterrupt() if asked() else error
                else:
                    finished(job)
                if failure:
                    executor.ask_to_stop(list(running))
    finally:
        executor.close(list(running))
    if failure:
        raise failure


def run_in_folder(function: JobFunction[JobT], folder: Path, job: JobT) -> None:
    """Run a job in the launcher's working folder, and stop at a cluster's signals."""
    os.chdir(folder)
    with graceful():
        function(job, nothing)


def import_path() -> str:
    """Return the PYTHONPATH for workers that do not start in this project's folder."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
