"""Progress bars with time left: on stderr, or as widgets in a notebook if ipywidgets is installed."""

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

from common.stopping import check

T = TypeVar("T")
Advance = Callable[[int], None]
"""Called with the number of rows done since the last call."""
_shown = True
_quiet = False
# tqdm's default lock is a named semaphore, needed only if several processes show bars on one screen, which never
# happens here. A worker ended by a signal would not remove it.
tqdm.set_lock(threading.RLock())


def nothing(done: int) -> None:
    """An Advance that does nothing."""


def in_proportion(advance: Advance, rows: int, units: int) -> Advance:
    """Return an Advance for work counted in `units`; it advances `advance` by `rows` in the same proportion."""
    done = 0

    def advance_units(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        advance(rows * done // units - rows * before // units)

    return advance_units


@contextlib.contextmanager
def side_task(what: str) -> Iterator[None]:
    """Print the error of a block instead of raising it, because what matters is finished and saved before the block."""
    try:
        yield
    except Exception as error:
        say(f"{what} could not be made: {type(error).__name__}: {error}")


def show_bars(shown: bool) -> None:
    """Switch bars on or off for this process (`--loadbar` / `--no-loadbar`)."""
    global _shown
    _shown = shown


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Hide bars within the block."""
    before = _shown
    show_bars(False)
    try:
        yield
    finally:
        show_bars(before)


def bar(items: Iterable[T], label: str, total: int | None = None, initial: int = 0, stops: bool = True) -> Iterator[T]:
    """Yield the items, showing a progress bar. In a log (neither terminal nor notebook) it is printed every 20 seconds.

    stops: raise KeyboardInterrupt between two items after a request to stop; False if work must be saved first.
    """
    for item in _tqdm(label, iterable=items, total=total, initial=initial):
        if stops:
            check()
        yield item


@contextlib.contextmanager
def counter(label: str, total: int, initial: int = 0, unit: str = "rows") -> Iterator[Advance]:
    """Show a progress bar with rate and time left for work that counts its rows itself; yields its Advance."""
    with _tqdm(label, total=total, initial=initial, unit=unit, unit_scale=True) as progress:
        yield progress.update


def _tqdm(label: str, **settings: Any) -> tqdm:
    notebook = "ipykernel" in sys.modules
    watched = notebook or sys.stderr.isatty()
    interval = 0.1 if watched else 20.0
    return (_notebook_class() if notebook else tqdm)(
        desc=label,
        disable=not _shown,
        file=sys.stderr,
        mininterval=interval,
        delay=0.0 if watched else interval,  # a log has no bars of short work
        maxinterval=max(interval, 10.0),
        dynamic_ncols=True,
        leave=watched,
        **settings,
    )


def _notebook_class() -> type[tqdm]:
    """Return tqdm's widget class, or its text class if the notebook has no ipywidgets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if ipywidgets is missing
        from tqdm.auto import tqdm as chosen
    return chosen


def say(message: str) -> None:
    """Print a line to stderr without breaking a bar, except in a block of `quietly`."""
    if not _quiet:
        tqdm.write(message, file=sys.stderr)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Print no lines within the block."""
    global _quiet
    before, _quiet = _quiet, True
    try:
        yield
    finally:
        _quiet = before
