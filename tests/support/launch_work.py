"""Work for test_launch.py and test_stopping.py, in a module of its own so that workers can import it."""

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from common.errors import UserError
from common.launch.launcher import Launcher
from common.progress import nothing
from common.stopping import asked


@dataclasses.dataclass(frozen=True)
class Deed:
    """A part that leaves traces: began-NUMBER-PID-TIME, then done-NUMBER with what it saw."""

    folder: Path
    number: int
    trouble: str = ""
    """killed once, killed, refused, fails, waits (until asked to stop, then saved-NUMBER), or deaf (to such asking)."""
    rows: int = 2


def do(deed: Deed, advance=nothing) -> None:
    """Do a deed."""
    (deed.folder / f"began-{deed.number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    if deed.trouble == "refused":
        raise UserError(f"{deed.number}: no good")
    if deed.trouble == "fails":
        raise ZeroDivisionError(f"{deed.number} over nothing")
    died = deed.folder / f"died-{deed.number}"
    if deed.trouble == "killed" or (deed.trouble == "killed once" and not died.exists()):
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while deed.trouble in ("waits", "deaf"):
        time.sleep(0.02)
        if deed.trouble == "waits" and asked():
            (deed.folder / f"saved-{deed.number}").touch()
            raise KeyboardInterrupt
    (deed.folder / f"done-{deed.number}").write_text(f"{os.environ.get('OMP_NUM_THREADS')} {Path.cwd()}")
    advance(deed.rows)


def began(folder: Path) -> list[int]:
    """Numbers of the deeds begun, once for each time."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("began-*"))


def numbers(folder: Path, kind: str) -> list[int]:
    """Numbers of the deeds that left a trace of a kind: done, saved."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob(f"{kind}-*"))


def pids(folder: Path) -> set[int]:
    """Processes that began a deed."""
    return {int(path.name.split("-")[2]) for path in folder.glob("began-*")}


if __name__ == "__main__":  # FOLDER TROUBLE: four such deeds on two processes, as a script does it
    from common.cli import run_script

    deeds = [Deed(Path(sys.argv[1]), number, sys.argv[2]) for number in range(4)]
    run_script(lambda: Launcher("processes", 2).run(do, deeds, nothing))
