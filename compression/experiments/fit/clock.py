"""Time used by all attempts of a fit, in a file that is updated every few seconds, so that little is lost if killed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError
from common.store.files import read_json, write_json

FILE = "clock.json"
_SECONDS = 3.0


class Clock:
    """Seconds used and left."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """folder: the experiment's folder; seconds: time limit of the whole fit."""
        self.file, self.seconds = folder / FILE, seconds
        self.before = _read(self.file)
        self._started = time.monotonic()

    @property
    def used(self) -> float:
        """Seconds used so far, including stopped attempts."""
        return self.before + time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds left; negative when the time is over."""
        return self.seconds - self.used

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Write the time used every few seconds while the block runs."""
        over = threading.Event()

        def write() -> None:
            while not over.wait(_SECONDS):
                write_json(self.file, round(self.used, 1))

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            write_json(self.file, round(self.used, 1))


def _read(file: Path) -> float:
    try:
        return float(read_json(file))
    except (UserError, OSError, TypeError, ValueError):
        return 0.0
