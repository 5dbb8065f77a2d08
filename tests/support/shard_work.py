"""Work for test_shards.py, in a module that workers can import."""

import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np

from common.data.split import Split, split_table
from common.progress import nothing


@dataclasses.dataclass(frozen=True)
class Shout:
    """Write every row in capitals, repeated (number modulo 3) times, and a file for every call."""

    trace: Path
    trouble: str = ""
    """For the part that begins with row 20: killed or interrupted."""
    suffix: str = "!"

    def open(self):
        (self.trace / f"opened-{os.getpid()}-{time.monotonic_ns()}").touch()

        def shout(rows: Split, first_row: int, advance=nothing):
            (self.trace / f"part-{first_row}-{time.monotonic_ns()}").touch()
            if first_row == 20:
                self._trouble()
            often = np.repeat(np.arange(len(rows)), (np.arange(len(rows)) + first_row) % 3)
            texts = [rows.sentence1[i].upper() + self.suffix for i in often]
            advance(len(rows))
            return split_table(Split(texts, None, rows.labels[often], often + first_row))

        return shout

    def _trouble(self) -> None:
        if self.trouble == "interrupted":
            raise KeyboardInterrupt
        marker = self.trace / "died"
        if self.trouble == "killed" and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def parts_done(self) -> list[int]:
        """First rows of the parts that were computed, sorted."""
        return sorted(int(path.name.split("-")[1]) for path in self.trace.glob("part-*"))
