"""Locks between processes. A lock ends with the process that holds it, however that process ends."""

import contextlib
import contextvars
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from common import stopping
from common.errors import UserError
from common.progress import say

_SECONDS_BETWEEN_TRIES = 0.2
_waiting: contextvars.ContextVar[bool] = contextvars.ContextVar("waiting", default=False)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Make every `only_one` in this block wait for its lock, because no user is there to try again."""
    before = _waiting.set(True)
    try:
        yield
    finally:
        _waiting.reset(before)


@contextlib.contextmanager
def only_one(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock on `path`, which need not exist. The lock is a hidden file in the same folder and stays there.

    If another process holds it, raises UserError naming `what`; with `wait`, or in a block of `waiting`, waits for it
    instead, and a request to stop raises KeyboardInterrupt. Callers should check whether there is still work to do only
    after they hold the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        if not (wait or _waiting.get()):
            raise UserError(f"another command is using {what}; wait for it to finish, or stop it") from None
        say(f"another command is using {what}; waiting for it")
        try:
            held = lock.acquire(poll_interval=_SECONDS_BETWEEN_TRIES, cancel_check=stopping.asked)
        except Timeout:
            raise KeyboardInterrupt from None  # the wait has no time limit: only a request to stop ends it
    with held:
        yield


@contextlib.contextmanager
def if_free(path: Path) -> Iterator[bool]:
    """Hold the lock on `path` if no other process does; never waits. Yields whether it is held."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    with held:
        yield True
