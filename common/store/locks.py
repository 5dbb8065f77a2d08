"""One command at a time: a lock on what is being made, which goes with the process that holds it, even a killed one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from common import stopping
from common.errors import UserError
from common.progress import say

_SECONDS_BETWEEN_TRIES = 0.2


@contextlib.contextmanager
def only_one(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock on `path`, which need not exist; the lock is a hidden file beside it, and stays there.

    Where another process holds it: raises UserError naming `what`, or with `wait` waits for it, unless asked to stop.
    What has to be true while the lock is held, such as that the work is not done yet, is to be looked up inside.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if not wait:
            raise UserError(f"another command is at work on {what}; wait for it, or stop it") from None
        say(f"another command is at work on {what}; waiting for it")
        _wait_for(lock)
    try:
        yield
    finally:
        lock.release()


def _wait_for(lock: FileLock) -> None:
    try:
        lock.acquire(poll_interval=_SECONDS_BETWEEN_TRIES, cancel_check=stopping.asked)
    except Timeout:
        raise KeyboardInterrupt from None  # asked to stop: there is no other limit
