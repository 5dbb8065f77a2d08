"""Progress bars with time left, on stderr."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
_shown = True


def show_bars(shown: bool) -> None:
    """Switch bars on or off for this process (`--loadbar` / `--no-loadbar`)."""
    global _shown
    _shown = shown


def bar(items: Iterable[T], label: str, total: int | None = None, initial: int = 0) -> Iterator[T]:
    """Iterate with a progress bar. Where stderr is no terminal a line is printed now and then instead of redrawn."""
    interval = 0.1 if sys.stderr.isatty() else 20.0
    yield from tqdm(
        items,
        desc=label,
        total=total,
        initial=initial,
        disable=not _shown,
        file=sys.stderr,
        mininterval=interval,
        maxinterval=max(interval, 10.0),
        dynamic_ncols=True,
        leave=sys.stderr.isatty(),
    )


def say(message: str) -> None:
    """Print a line of news to stderr without tearing a bar."""
    tqdm.write(message, file=sys.stderr)
