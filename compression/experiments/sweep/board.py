"""Progress board of a running sweep: numbers of finished, running and failed runs, their last log lines, time left.

The board reads the runs' files, so it works with every launcher.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from compression.experiments.sweep.runs import Estimator, duration
from compression.experiments.sweep.work import RunTask

POLL_SECONDS = 1.0
_SHOWN_RUNS = 12
_ENDED = ("finished", "failed")


class Board:
    """Context manager around a sweep's runs: shows a live table on a terminal, else prints a line as each run ends."""

    def __init__(self, name: str, runs: Sequence[RunTask], workers: int, shown: bool) -> None:
        """runs: at least one run."""
        self._name, self._runs, self._workers = name, runs, workers
        self._statuses = {run.id: run.folder.status() for run in runs}
        self._estimator = self._estimates()
        self._screen = sys.stderr  # a run in this process redirects sys.stderr to its log
        console, every = Console(file=self._screen), 1 / POLL_SECONDS
        live = Live(get_renderable=self._table, console=console, refresh_per_second=every, vertical_overflow="crop")
        self._live = live if shown and self._screen.isatty() else None
        self._lines = shown and not self._live

    def __enter__(self) -> Self:
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self.look()
        if self._live:
            self._live.stop()

    def _estimates(self) -> Estimator:
        return Estimator(self._runs[0].folder.paths, (run.record for run in self._runs))

    def look(self, rows: int = 0) -> None:
        """Read the status of every run that has not ended; print a line for those that have ended since."""
        for run in self._left():
            status = self._statuses[run.id] = run.folder.status()
            if status not in _ENDED:
                continue
            self._estimator = self._estimates()
            if self._lines and (record := run.folder.record()):
                ended, left = len(self._runs) - len(self._left()), self._seconds_left()
                result = f"failed: {record.error}" if status == "failed" else f"done in {duration(record.seconds)}"
                more = "" if left is None else f"; about {duration(left)} left"
                print(f"[{ended}/{len(self._runs)}] {run.name} {result}{more}", file=self._screen, flush=True)

    def _left(self) -> list[RunTask]:
        return [run for run in self._runs if self._statuses[run.id] not in _ENDED]

    def _seconds_left(self) -> float | None:
        """Return the estimated seconds of all unfinished runs, or None while no similar run has finished."""
        left = [(run, self._estimator.seconds([run.record])) for run in self._left()]
        if None in [seconds for _, seconds in left]:
            return None
        return sum(max(0.0, seconds - self._elapsed(run)) for run, seconds in left) / self._workers

    def _elapsed(self, run: RunTask) -> float:
        return run.folder.elapsed() if self._statuses[run.id] == "running" else 0.0

    def _table(self) -> Group:
        self.look()
        counts, total, left = Counter(self._statuses.values()), len(self._runs), self._seconds_left()
        head = Text.assemble(
            (self._name, "bold"),
            f"  {counts['finished']}/{total} done, {counts['running']} running, ",
            (f"{counts['failed']} failed", "bold red" if counts["failed"] else ""),
            ", time left is known after the first run" if left is None else f", about {duration(left)} left",
        )
        # The bar is placed in a table because by itself it does not end its line.
        progress = Table.grid()
        progress.add_row(ProgressBar(total=total, completed=counts["finished"] + counts["failed"], width=60))
        rows = Table.grid(padding=(0, 2))
        running = [run for run in self._runs if self._statuses[run.id] == "running"]
        for run in running[:_SHOWN_RUNS]:
            line = run.folder.last_line().removeprefix(run.name).lstrip(": ")
            text = Text(line, style="dim", overflow="ellipsis", no_wrap=True)
            rows.add_row(run.name, duration(self._elapsed(run)), text)
        return Group(head, progress, rows)
