"""The board of a running sweep: how many runs are done, running and failed, what each is at, and the time left.

It reads the runs' own files, so that it shows the same whoever does them: processes, Ray or Slurm.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from compression.experiments.sweep.estimate import Estimator
from compression.experiments.sweep.runs import Status
from compression.experiments.sweep.work import Assignment

if TYPE_CHECKING:
    from rich.console import Group

SECONDS_BETWEEN_LOOKS = 1.0
_SHOWN_RUNS = 12


class Board:
    """A context manager around the work. stands: where each run stands at the start, by identity."""

    def __init__(
        self, name: str, works: Sequence[Assignment], stands: dict[str, Status], workers: int, shown: bool
    ) -> None:
        self._name, self._works, self._workers, self._shown = name, list(works), max(1, workers), shown
        self._stands = dict(stands)
        self._since: dict[str, float] = {}
        self._estimator = Estimator(works[0].folder.paths) if works else None
        self._screen = sys.stderr  # a run in this process sends its own words to its log
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Board:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def counts(self) -> Counter[Status]:
        """Number of runs by where they stand."""
        return Counter(self._stands.values())

    def _watch(self) -> None:
        if not (self._shown and self._screen.isatty()):
            while not self._over.wait(SECONDS_BETWEEN_LOOKS):
                self._look()
            self._look()
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(file=self._screen), auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                over = self._over.wait(SECONDS_BETWEEN_LOOKS)
                self._look()
                live.update(self._drawn(), refresh=True)
                if over:
                    return

    def _look(self) -> None:
        """See which runs have started and ended since the last look."""
        for work in self._works:
            before = self._stands[work.id]
            if before in ("finished", "failed"):
                continue
            now = self._stands[work.id] = work.folder.status()
            if now == "running" and before != "running":
                self._since[work.id] = time.monotonic()
            if now in ("finished", "failed"):
                self._ended(work, now)

    def _ended(self, work: Assignment, now: Status) -> None:
        if self._estimator:
            self._estimator.learn(work.id)
        record = work.folder.record()
        if self._shown and not self._screen.isatty() and record:
            counts = self.counts()
            how = f"failed: {record.error}" if now == "failed" else f"done in {spoken(record.seconds)}"
            place = f"[{counts['finished'] + counts['failed']}/{len(self._works)}]"
            print(f"{place} {work.name} {how}{self._left_in_words()}", file=self._screen, flush=True)

    def _left_in_words(self) -> str:
        left = self.seconds_left()
        return "" if left is None else f"; about {spoken(left)} left"

    def seconds_left(self) -> float | None:
        """Estimate for all runs that have not ended, or None while none like them has."""
        if not self._estimator:
            return None
        total = 0.0
        for work in self._works:
            if self._stands[work.id] in ("finished", "failed"):
                continue
            seconds = self._estimator.seconds([work])
            if seconds is None:
                return None
            elapsed = time.monotonic() - self._since[work.id] if work.id in self._since else 0.0
            total += max(0.0, seconds - elapsed)
        return total / self._workers

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        counts, total, left = self.counts(), len(self._works), self.seconds_left()
        head = Text.assemble(
            (self._name, "bold"),
            f"  {counts['finished']}/{total} done, {counts['running']} running, ",
            (f"{counts['failed']} failed", "bold red" if counts["failed"] else ""),
            ", time left is known after the first run" if left is None else f", about {spoken(left)} left",
        )
        progress = ProgressBar(total=total, completed=counts["finished"] + counts["failed"], width=60)
        rows = Table.grid(padding=(0, 2))
        running = [work for work in self._works if self._stands[work.id] == "running"]
        for work in running[:_SHOWN_RUNS]:
            elapsed = spoken(time.monotonic() - self._since.get(work.id, time.monotonic()))
            rows.add_row(
                work.name,
                elapsed,
                Text(_without(work.name, work.folder.last_words()), style="dim", overflow="ellipsis", no_wrap=True),
            )
        return Group(head, progress, rows)


def _without(name: str, line: str) -> str:
    """A line of a run's log without the run's own name, which stands beside it."""
    return line.removeprefix(name).lstrip(": ")


def spoken(seconds: float) -> str:
    """'42 s', '12 min', '3 h 5 min', '2 d 4 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
