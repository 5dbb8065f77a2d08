"""Work for test_launch.py, in a module that workers can import."""

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from common.errors import UserError
from common.launch.launcher import Launcher
from common.progress import bar, nothing
from common.stopping import asked


@dataclasses.dataclass(frozen=True)
class TracedJob:
    """A job that leaves files: started-NUMBER-PID-TIME, then done-NUMBER with its threads, folder and GPUs."""

    folder: Path
    number: int
    trouble: str = ""
    """killed once, killed, refused, fails, waits (for a request to stop, then saved-NUMBER), deaf (to requests), or
    meets N (waits until N processes have jobs)."""
    rows: int = 2


def run_job(job: TracedJob, advance=nothing) -> None:
    """Run a job."""
    (job.folder / f"started-{job.number}-{os.getpid()}-{time.monotonic_ns()}").touch()
    list(bar([job.number], "job", stops=False))
    if job.trouble == "refused":
        raise UserError(f"{job.number}: no good")
    if job.trouble == "fails":
        raise ZeroDivisionError(f"{job.number} over nothing")
    died = job.folder / f"died-{job.number}"
    if job.trouble == "killed" or (job.trouble == "killed once" and not died.exists()):
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while job.trouble in ("waits", "deaf"):
        time.sleep(0.02)
        if job.trouble == "waits" and asked():
            (job.folder / f"saved-{job.number}").touch()
            raise KeyboardInterrupt
    while job.trouble.startswith("meets") and len(pids(job.folder)) < int(job.trouble.split()[1]):
        time.sleep(0.02)
    seen = os.environ.get("OMP_NUM_THREADS"), Path.cwd(), os.environ.get("CUDA_VISIBLE_DEVICES")
    (job.folder / f"done-{job.number}").write_text("\n".join(map(str, seen)))
    advance(job.rows)


def numbers(folder: Path, kind: str) -> list[int]:
    """Numbers of the jobs that left a file of a kind: started (once for each start), done, saved."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob(f"{kind}-*"))


def pids(folder: Path) -> set[int]:
    """Processes that started a job."""
    return {int(path.name.split("-")[2]) for path in folder.glob("started-*")}


if __name__ == "__main__":  # FOLDER TROUBLE: four such jobs on two processes, as a script runs them
    from common.cli import run_script

    jobs = [TracedJob(Path(sys.argv[1]), number, sys.argv[2]) for number in range(4)]
    run_script(lambda: Launcher("processes", 2).run(run_job, jobs, nothing))
