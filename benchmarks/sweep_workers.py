"""Seconds that a grid takes with two workers, compared with one.

    python benchmarks/sweep_workers.py

Twelve students are trained on the labels of Rotten Tomatoes by the command line, each time in a fresh workspace, with
one and two workers in turn. A worker has one thread in both cases, the default of sweeps; --threads gives the single
worker more.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
GRID = {
    "name": "workers",
    "settings": {"task": "rotten-tomatoes", "only_original_data": True, "alpha": 1, "epochs": 2},
    "seeds": [1, 2, 3, 4],
    "shared": [{"preprocess": {}}],
    "axes": {
        "model": {
            "bilstm": {"student_arch": "bilstm", "embedding_type": "hash"},
            "rnn": {"student_arch": "rnn", "embedding_type": "hash"},
            "ffn": {"student_arch": "ffn", "epochs": 6},
        }
    },
}


def main() -> None:
    """Run the grid with one and with two workers, in turn, and print the ratio of the best times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="turns; the best time counts (default: 2)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the one worker (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(yaml.safe_dump(GRID, sort_keys=False))
        environment = {**os.environ, "FEATHERWEIGHT_HOME": str(folder / "first")}
        command = [sys.executable, "preprocess.py", "--task", "rotten-tomatoes", "--no-loadbar"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        turns = [[_seconds(folder, n, args.threads if n == 1 else 1) for n in (1, 2)] for _ in range(args.rounds)]
    one, two = (min(times) for times in zip(*turns, strict=True))
    result = {"one_worker": round(one, 1), "two_workers": round(two, 1), "ratio": round(two / one, 3)}
    cores = len(os.sched_getaffinity(0))
    text = f"one worker {one:.1f} s, two workers {two:.1f} s: {two / one:.2f} of the time ({cores} cores)"
    print(json.dumps(result) if args.json else text)


def _seconds(folder: Path, workers: int, threads: int) -> float:
    """Return the seconds of the whole command in a workspace that contains only the splits."""
    workspace = folder / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.copytree(folder / "first", workspace)
    flags = ["--workspace", workspace, "--workers", workers, "--threads", threads, "--no-loadbar", "--cpu", "--json"]
    command = [sys.executable, "experiment.py", "sweep", folder / "grid.yaml", *flags]
    started = time.perf_counter()
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
