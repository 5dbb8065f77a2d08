"""Identity of a process, stored with what it writes, and whether a process of this machine still exists."""

import functools
import hashlib
import os
import platform
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process.

    machine: 8 hex digits that identify the host and the process namespace, of which every container has its own; pid;
    start: its start time in the system's clock ticks, because a pid is used again, 0 if unknown.
    """

    machine: str
    pid: int
    start: int

    @classmethod
    def current(cls) -> "Process":
        """Return the process that calls this."""
        return cls(_machine(), os.getpid(), _start_of(os.getpid()) or 0)

    def is_alive(self) -> bool | None:
        """Return whether the process still exists; None for a process of another machine, which cannot be looked up."""
        if self.machine != _machine():
            return None
        start = _start_of(self.pid)
        return start is not None and start in (self.start, 0)


@functools.cache
def _machine() -> str:
    try:
        processes = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        processes = ""
    return hashlib.sha256(f"{platform.node()} {processes}".encode()).hexdigest()[:8]


def _start_of(pid: int) -> int | None:
    """Return a process's start time, 0 if unknown; None if the process does not exist or is dead."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:
        pass  # the process is another user's
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return None if state in "ZX" else int(fields[18])
