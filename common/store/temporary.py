"""Temporary files and folders, named after the process that writes them, and removal of those left by killed processes.

A temporary name is `.<name>.<machine>-<process>-<start>-<random>.partial`, in the folder of the final path. Process and
start time tell whether a process of this machine is alive. A process of another machine, which may share the disk,
cannot be looked up: its file counts as left behind once it is DAYS_ELSEWHERE old.
"""

import contextlib
import os
import random
import re
import shutil
import time
import uuid
from pathlib import Path

from common.store.processes import Process

DAYS_ELSEWHERE = 30
"""Days after which a temporary file of another machine counts as left behind."""
SECONDS = 0.02
"""Time limit of a search for leftovers, per level of folders; if there are too many, each search takes others."""
_OLD = ".old"
_NAME = re.compile(r"\.(.+)\.([0-9a-f]{8})-(\d+)-(\d+)-[0-9a-f]{8}\.partial(\.old)?", re.DOTALL)
_PUBLISHED = re.compile(r"[0-9a-f]{16}(\.[0-9a-f]{8})?")
"""Names of folders of artifacts and of tokens, which are written whole, so that nothing temporary is in them."""
_WITH_PUBLISHED = ("store", "tokens")
"""Names of the parent folders of such folders."""


def temporary(path: Path) -> Path:
    """Return a new temporary name for a file, folder or link that will become `path`."""
    owner = "-".join(map(str, Process.current()))
    return path.with_name(f".{path.name}.{owner}-{uuid.uuid4().hex[:8]}.partial")


def set_aside(path: Path, partial: Path) -> Path:
    """Rename the file or folder that `partial` will replace, so that it can be restored. Returns its new path."""
    return path.rename(partial.with_name(partial.name + _OLD))


def put_away(folder: Path) -> Path:
    """Rename a folder, if it exists, to a temporary name. Returns the new path, for removal."""
    away = temporary(folder)
    with contextlib.suppress(OSError):
        folder.rename(away)
    return away


def discard(folder: Path) -> None:
    """Remove a folder, if it exists. If killed, it leaves the whole folder, or the rest under a temporary name."""
    shutil.rmtree(put_away(folder), ignore_errors=True)


def remove_leftovers_of(path: Path) -> None:
    """Remove the temporary files of dead processes that were to become `path`."""
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(f".{path.name}.")]:
            _remove_leftover(Path(entry.path))


def remove_leftovers(root: Path, seconds: float = SECONDS) -> None:
    """Remove the temporary files of dead processes from a workspace: level by level of folders, as time allows."""
    level = [str(root)]
    while level:
        random.SystemRandom().shuffle(level)  # so that each search takes different folders if there are too many
        deadline, below = time.monotonic() + seconds, []
        for folder in level:
            below += _search(folder)
            if time.monotonic() > deadline:
                break
        level = below


def _search(folder: str) -> list[str]:
    """Remove the leftovers in one folder. Returns the folders in it, except links and published artifacts."""
    below, published = [], Path(folder).name in _WITH_PUBLISHED
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.name.endswith((".partial", _OLD)):
                _remove_leftover(Path(entry.path))
            elif entry.is_dir(follow_symlinks=False) and not (published and _PUBLISHED.fullmatch(entry.name)):
                below.append(entry.path)
    return below


def _remove_leftover(path: Path) -> None:
    """Remove a temporary file or folder of a dead process; a file set aside gets its name back if that is free."""
    match = _NAME.fullmatch(path.name)
    if match is None or _is_alive(path, Process(match[2], int(match[3]), int(match[4]))):
        return
    with contextlib.suppress(OSError):
        if match[5] and not os.path.lexists(path.with_name(match[1])):
            path.rename(path.with_name(match[1]))
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _is_alive(path: Path, process: Process) -> bool:
    """Return whether the process that a temporary file belongs to may still be running."""
    alive = process.is_alive()
    if alive is not None:
        return alive
    with contextlib.suppress(OSError):
        return time.time() - path.lstat().st_mtime < DAYS_ELSEWHERE * 86_400
    return False
