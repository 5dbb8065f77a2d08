"""Stopping on request: after the first Ctrl-C or SIGTERM work stops where nothing is lost, after the second at once.

Long work tests `asked`, or calls `check`, where it can stop: after a training step, between two shards. Work that has
nothing to save, such as reading a file, runs in a block of `at_once`. `time_limit` requests a stop after some seconds.
"""

import contextlib
import functools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked = False
_at_once = False
_until = math.inf
"""When the innermost time limit ends, by time.monotonic."""
_listeners: list[Callable[[], bool]] = []


class OutOfTime(Exception):
    """Work was stopped by `time_limit`."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ask the work in this block to stop after a number of seconds; raises OutOfTime when it stops.

    Unfinished work can be resumed, as after a user's request.
    """
    global _until
    before, _until = _until, min(_until, time.monotonic() + seconds)
    try:
        yield
    except KeyboardInterrupt:
        if _requested() or not out_of_time():
            raise
        raise OutOfTime from None
    finally:
        _until = before


def out_of_time() -> bool:
    """Return whether a time limit has passed."""
    return time.monotonic() >= _until


def check_time() -> None:
    """Raise KeyboardInterrupt if a time limit has passed; for work that continues after a user's request."""
    if out_of_time():
        raise KeyboardInterrupt


@contextlib.contextmanager
def graceful() -> Iterator[None]:
    """Take the first SIGINT or SIGTERM as a request (see `asked`), and raise KeyboardInterrupt at the second.

    Changes nothing outside the main thread, inside another `graceful`, and for a signal that this process ignores.
    """
    global _asked
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    if threading.current_thread() is not threading.main_thread() or _on_signal in handlers.values():
        yield
        return
    _asked = False
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    unraisable = sys.unraisablehook
    sys.unraisablehook = functools.partial(_on_unraisable, unraisable)
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
        _asked = False


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Let the first request in this block raise KeyboardInterrupt at once, whatever the main thread is doing.

    In other threads and in workers, which get no signals, requests are only checked when the block begins.
    """
    global _at_once
    check()
    if _at_once or threading.current_thread() is not threading.main_thread():
        yield
        return
    _at_once = True
    try:
        yield
    finally:
        _at_once = False


def asked() -> bool:
    """Return whether this process, or its parent process, was asked to stop, or a time limit has passed."""
    return _requested() or out_of_time()


def _requested() -> bool:
    return _asked or any(elsewhere() for elsewhere in _listeners)


def check() -> None:
    """Raise KeyboardInterrupt when a stop was asked for."""
    if asked():
        raise KeyboardInterrupt


def listen(elsewhere: Callable[[], bool]) -> None:
    """Let `asked` call `elsewhere`, which returns whether the parent was asked to stop: workers get no signals."""
    _listeners[:] = [elsewhere]


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        raise KeyboardInterrupt(number)
    _asked = True
    if _at_once:
        raise KeyboardInterrupt(number)
    # Written without Python's buffers: the signal may interrupt a print, which is not reentrant.
    with contextlib.suppress(OSError):
        stderr = sys.__stderr__.fileno() if sys.__stderr__ else 2
        os.write(stderr, b"\nstopping; press Ctrl-C again to stop immediately\n")


def _on_unraisable(otherwise: Callable[["sys.UnraisableHookArgs"], object], error: "sys.UnraisableHookArgs") -> None:
    """Send a signal again if its KeyboardInterrupt was raised in a destructor or callback, where Python ignores it."""
    global _asked
    if not (isinstance(error.exc_value, KeyboardInterrupt) and error.exc_value.args):
        otherwise(error)
        return
    _asked = False
    again = threading.Timer(0.05, os.kill, (os.getpid(), error.exc_value.args[0]))
    again.daemon = True
    again.start()
