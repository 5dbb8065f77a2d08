"""A Slurm in small: sbatch, srun, sacct and scancel that keep the states of job arrays as files and run them here.

As a script, under one of these names, it is that command. `run` is what sbatch leaves behind to run an array.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMMANDS = ("sbatch", "srun", "sacct", "scancel")
HERE = Path(__file__)


def install(folder: Path) -> Path:
    """Put the commands in a new folder, to go on PATH. Below it: state-ID, pid-ID, script-ID."""
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE} {name} {folder} "$@"\n')
        path.chmod(0o755)
    return folder


def sbatch(folder: Path, script: str) -> None:
    number = 100 + len(list(folder.glob("script-*")))
    text = Path(script).read_text()
    (folder / f"script-{number}").write_text(text)
    array = re.search(r"--array='?0-(\d+)%(\d+)", text)
    ids = [f"{number}_{i}" for i in range(int(array[1]) + 1)] if array else [str(number)]
    for name in ids:
        (folder / f"state-{name}").write_text("PENDING")
    words = [sys.executable, str(HERE), "run", str(folder), str(number), array[2] if array else "1", *ids]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(words, start_new_session=True, **quiet)
    print(f"Submitted batch job {number}")


def run(folder: Path, number: str, at_once: str, *ids: str) -> None:
    def one(name: str) -> None:
        state = folder / f"state-{name}"
        if state.read_text() != "PENDING":
            return
        variables = {"SLURM_JOB_ID": number}
        if "_" in name:
            variables |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": name.split("_")[1]}
        script = ["bash", folder / f"script-{number}"]
        job = subprocess.Popen(script, env={**os.environ, **variables}, start_new_session=True)
        (folder / f"pid-{name}").write_text(str(job.pid))
        state.write_text("RUNNING")
        state.write_text("FAILED" if job.wait() else "COMPLETED")

    with ThreadPoolExecutor(int(at_once)) as pool:
        list(pool.map(one, ids))


def srun(folder: Path, *words: str) -> None:
    first = next(i for i, word in enumerate(words) if word == "-u") - 1  # python -u -m submitit...
    os.execvp(words[first], words[first:])


def sacct(folder: Path, *words: str) -> None:
    print("JobID|State|NodeList")
    for path in folder.glob("state-*"):
        print(f"{path.name.removeprefix('state-')}|{path.read_text()}|here")


def scancel(folder: Path, name: str) -> None:
    state, pid = folder / f"state-{name}", folder / f"pid-{name}"
    if pid.exists():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(pid.read_text()), signal.SIGTERM)
    else:
        state.write_text("CANCELLED")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
