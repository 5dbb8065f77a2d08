"""What a fit saves for a resumed run: its decisions, and the time used by all attempts."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from pydantic_core import to_jsonable_python

from common.errors import UserError
from common.store.files import read_json, write_json

FIT_FILE, CLOCK_FILE = "fit.json", "clock.json"
OPENING = "opening"
"""Name of the first decision."""
LINEAR, FROZEN, FINE_TUNED, ANSWERS, MEAN, UNSURE = "linear", "frozen", "fine-tuned", "answers", "mean", "unsure"
TEACHERS = LINEAR, FROZEN, FINE_TUNED, ANSWERS, MEAN, UNSURE
"""Names of teachers in the workspace."""
VARIANTS = "edits"
"""Name of the rows with variants of train's texts, and the method that writes them."""
TRAINED, PACKED = "trained", "packed"
"""First words of the decisions about a student; the second word is its name in the workspace."""
_WRITE_SECONDS = 3.0
"""Seconds between two updates of the clock's file."""
T = TypeVar("T")


class State:
    """Decisions taken so far; a resumed fit decides the same and finds the models already built."""

    def __init__(self, folder: Path, identity: str) -> None:
        """Read the decisions in the experiment's folder. identity: fingerprint of the user's files.

        Raises UserError if the decisions belong to a different user file.
        """
        self.file = folder / FIT_FILE
        self.values: dict[str, Any] = read_json(self.file) if self.file.exists() else {"identity": identity}
        if not isinstance(self.values, dict) or self.values.get("identity") != identity:
            advice = "start over with --force, or give another --name"
            raise UserError(f"experiment {folder.name}: the file has changed since the experiment started; {advice}")

    def get(self, name: str, cls: type[T]) -> T | None:
        """Return a decision, or None if it has not been taken yet. Raises UserError if it is damaged."""
        if name not in self.values:
            return None
        try:
            return pydantic.TypeAdapter(cls).validate_python(self.values[name])
        except pydantic.ValidationError as error:
            raise UserError(f"{self.file}: {name!r} is damaged; start over with --force") from error

    def decide(self, name: str, cls: type[T], choose: Callable[[], T]) -> T:
        """Return the saved decision, or take it with `choose` and save it."""
        if name not in self.values:
            self.save(name, choose())
        return self.get(name, cls)

    def save(self, name: str, value: Any) -> None:
        """Save a value, in place of the one saved before."""
        self.values[name] = to_jsonable_python(value)
        write_json(self.file, self.values)


class Clock:
    """Seconds used and left. A file is updated every few seconds, so that little is lost if the process is killed."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """folder: the experiment's folder; seconds: time limit of the whole fit."""
        self.file, self.seconds = folder / CLOCK_FILE, seconds
        self._started, self._cpu_started = time.monotonic(), time.process_time()
        try:
            self.before = float(read_json(self.file))
        except (UserError, OSError, TypeError, ValueError):  # missing or damaged
            self.before = 0.0

    @property
    def used(self) -> float:
        """Seconds used so far, including stopped attempts."""
        return self.before + time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds left; negative when the time is over."""
        return self.seconds - self.used

    @property
    def slowdown(self) -> float:
        """How much longer work takes than on an idle machine: seconds per second of CPU time, from 1 to 4."""
        cpu = max(time.process_time() - self._cpu_started, 0.1)
        return min(max((time.monotonic() - self._started) / cpu, 1.0), 4.0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Write the time used every few seconds while the block runs."""
        over = threading.Event()

        def write() -> None:
            while not over.wait(_WRITE_SECONDS):
                with contextlib.suppress(OSError):  # of a full disk, on which the fit itself ends in one line
                    write_json(self.file, round(self.used, 1))

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            write_json(self.file, round(self.used, 1))
