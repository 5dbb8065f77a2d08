"""Faults on purpose: killed commands, full disks, two commands at once, damaged files, malformed data.

    python benchmarks/faults.py                     # all trials, about 40 minutes on two cores
    python benchmarks/faults.py --minutes 2         # as many as fit
    python benchmarks/faults.py --only kills --kills 10 --seed 5

Each trial runs real commands on a small pipeline (fault_stages.py) and compares the workspace with that of
uninterrupted commands, byte for byte except for times. A deviation from docs/reliability.md is a finding (exit code 1).
Full disks need permission to mount a tmpfs.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL
from typing import BinaryIO

from fault_stages import ROOT, Stage, build, bytes_of, differences, run, snapshot, write_task
from malformed import SECONDS, malformed_tasks
from mutations import mutate_packed

from common.store.files import file_sha256
from common.store.store import Store

CORES = len(os.sched_getaffinity(0))
REFUSED = 2
"""Exit code of a command that ends with a UserError."""


@dataclasses.dataclass
class Row:
    """A line of the table."""

    fault: str
    trials: int
    findings: list[str]
    note: str = ""


def main() -> None:
    """Run the trials and print the table. Exits with code 1 if there are findings."""
    args = _parser().parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        parts = args.only or list(PARTS)
        trials = Trials(args, Path(name), build(Path(name) / "pipeline") if {*parts} & NEED_STAGES else [])
        end = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
        for number, part in enumerate(parts):
            left = (end - time.monotonic()) / (len(parts) - number)
            rows.append(PARTS[part](trials, time.monotonic() + left))
            print(f"{rows[-1].fault}: {rows[-1].trials:,} trials, {len(rows[-1].findings)} findings", flush=True)
    print(json.dumps(list(map(dataclasses.asdict, rows)), indent=2) if args.json else table(rows))
    raise SystemExit(any(row.findings for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, help="start no trial after this time, not counting preparation (default: all)"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these faults")
    parser.add_argument("--kills", type=int, default=50, help="commands killed (default: %(default)s)")
    parser.add_argument("--disks", type=int, default=10, help="commands on a full disk (default: %(default)s)")
    parser.add_argument("--twice", type=int, default=20, help="pairs of commands at once (default: %(default)s)")
    parser.add_argument("--files", type=int, default=1_000_000, help="damaged packed files (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of moments and damages (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table, followed by every finding."""
    lines = ["| fault | trials | findings | |", "|---|---:|---:|---|"]
    lines += [f"| {row.fault} | {row.trials:,} | {len(row.findings)} | {row.note} |" for row in rows]
    return "\n".join([*lines, *(f"{row.fault}: {finding}" for row in rows for finding in row.findings)])


class Trials:
    """The trials, and the folder in which they run."""

    def __init__(self, args: argparse.Namespace, folder: Path, stages: list[Stage]) -> None:
        self.args, self.folder, self.stages = args, folder, stages

    def kills(self, end: float) -> Row:
        """Kill commands at random times during their work, run them again, and compare."""
        stages = self.stages
        ended: list[int] = []

        def trial(number: int, draw: random.Random) -> list[str]:
            stage = stages[(number + self.args.seed) % len(stages)]
            workspace = stage.workspace(self.folder / f"kill-{number}")
            moment = draw.uniform(0, 1.2 * stage.seconds)
            command = stage.command(workspace)
            process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=DEVNULL, stderr=DEVNULL)
            wait_for_work(process, workspace)
            try:
                process.wait(moment)
                ended.append(number)
            except subprocess.TimeoutExpired:
                # In half of the trials, the workers of a sweep are killed too.
                (os.kill if draw.random() < 0.5 else os.killpg)(process.pid, signal.SIGKILL)
                process.wait()
            problems = [*damaged(workspace), *goes_on(stage, workspace)]
            return [f"{stage.name} killed after {moment:.2f} s of work: {line}" for line in problems]

        row = self._in_turns("killed commands", self.args.kills, end, trial)
        row.note = f"{min(row.trials, len(stages))} stages; {len(ended)} had ended before the kill"
        return row

    def disks(self, end: float) -> Row:
        """Run commands in workspaces on full disks, then again with free space, and compare."""
        if not can_mount(self.folder / "mount"):
            return Row("full disks", 0, [], "not run: mounting a tmpfs is not allowed here")
        growing = [stage for stage in self.stages if stage.growth]

        def trial(number: int, draw: random.Random) -> list[str]:
            stage = growing[(number + self.args.seed) % len(growing)]
            share = draw.uniform(0.05, 0.9)
            room = bytes_of(stage.before) + round(share * stage.growth)
            with small_disk(self.folder / f"disk-{number}", room) as disk:
                workspace = stage.workspace(disk / "workspace")
                done = run(stage.command(workspace))
                problems = unclear(done, expected=(0, 1, REFUSED) if stage.name == "sweep" else (0, REFUSED))
                problems += damaged(workspace)
                subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
                problems += goes_on(stage, workspace)
            return [f"{stage.name} with {share:.0%} of the room that it needs: {line}" for line in problems]

        return self._in_turns("full disks", self.args.disks, end, trial)

    def twice(self, end: float) -> Row:
        """Start the same command twice at once: for a model, for data, for a download."""
        model, data = (next(stage for stage in self.stages if stage.name == name) for name in ("distil", "preprocess"))
        with slow_server(self.folder / "server") as address:
            stages = (model, data, self._download(address))

            def trial(number: int, draw: random.Random) -> list[str]:
                stage = stages[number % len(stages)]
                workspace = stage.workspace(self.folder / f"twice-{number}")
                with ThreadPoolExecutor(2) as pool:
                    first = pool.submit(run, stage.command(workspace))
                    time.sleep(draw.uniform(0, 1))
                    second = pool.submit(run, stage.command(workspace))
                    done = [first.result(), second.result()]
                problems = [line for command in done for line in unclear(command, (0, REFUSED))]
                problems += [] if 0 in [command.returncode for command in done] else ["neither command did its work"]
                problems += [*damaged(workspace), *differences(snapshot(workspace), stage.after)]
                return [f"{stage.name} twice: {line}" for line in problems]

            return self._in_turns("two commands at once", self.args.twice, end, trial)

    def malformed(self, end: float) -> Row:
        """Read malformed data sets, each of which must be refused in one line."""
        tasks = list(malformed_tasks(self.folder / "malformed"))

        def trial(number: int, draw: random.Random) -> list[str]:
            name, task = tasks[number]
            workspace = self.folder / f"malformed-{number}"
            words = [sys.executable, "preprocess.py", "--task", task, "--workspace", workspace, "--no-loadbar"]
            return [f"{name}: {line}" for line in unclear(run(list(map(str, words)), 3 * SECONDS), (REFUSED,))]

        return self._in_turns("malformed data sets", len(tasks), end, trial)

    def files(self, end: float) -> Row:
        """Open damaged packed files with the runtime and classify texts."""
        seconds = None if end == float("inf") else max(end - time.monotonic(), 1)
        done = mutate_packed(self.args.files, seconds, self.args.seed, folder=ROOT / "findings")
        answering = done.outcomes.get("a model", 0)
        note = f"{answering:,} gave predictions, all others were refused; at most {done.peak_bytes / 1e6:.0f} MB"
        return Row("damaged packed files", done.files, list(done.findings), note)

    def _download(self, address: str) -> Stage:
        """Return the stage that downloads and prepares a task."""
        served = self.folder / "server"
        archive = served / "reviews.zip"
        source = {"kind": "glue", "folder": "reviews", "files": {"all": "reviews.csv"}}
        write_task(served)
        with zipfile.ZipFile(archive, "w") as file:
            file.write(served / "reviews.csv", "reviews/reviews.csv")
        source |= {"url": f"{address}/reviews.zip", "sha256": file_sha256(archive)}
        task = write_task(self.folder / "download", source)
        before, workspace = self.folder / "download" / "before", self.folder / "download" / "workspace"
        before.mkdir()
        words = ("preprocess.py", "--task", str(task), "--no-loadbar")
        done = run([sys.executable, *words, "--workspace", str(workspace)])
        if done.returncode:
            raise SystemExit(f"the download failed: {done.stderr}")
        return Stage("download", words, before, snapshot(workspace), 1.0, 0)

    def _in_turns(self, fault: str, count: int, end: float, trial: Callable[[int, random.Random], list[str]]) -> Row:
        """Run trials, one per core at a time, until all are done or the time is over."""

        def one(number: int) -> list[str] | None:
            if number >= CORES and time.monotonic() > end:
                return None  # at least one trial per core is always run
            try:
                return trial(number, random.Random(f"{self.args.seed} {fault} {number}"))
            except subprocess.TimeoutExpired as error:
                return [f"trial {number}: no end after {error.timeout:.0f} s: {' '.join(map(str, error.cmd))}"]
            finally:
                for folder in self.folder.glob(f"*-{number}"):
                    shutil.rmtree(folder, ignore_errors=True)

        with ThreadPoolExecutor(CORES) as pool:
            done = [problems for problems in pool.map(one, range(count)) if problems is not None]
        return Row(fault, len(done), [line for problems in done for line in problems])


def wait_for_work(process: subprocess.Popen, workspace: Path) -> None:
    """Wait until a command has loaded its libraries and writes to its workspace, or ends."""
    before = set(workspace.rglob("*"))
    while process.poll() is None and set(workspace.rglob("*")) == before:
        time.sleep(0.02)


def goes_on(stage: Stage, workspace: Path) -> list[str]:
    """Run a stage's command again, undisturbed, and the failed runs of a sweep once more. Returns the differences from
    a workspace that was never disturbed."""
    done = run(stage.command(workspace))
    if stage.name == "sweep" and done.returncode == 1:
        done = run(stage.command(workspace, "--retry-failed"))
    if done.returncode:
        return [f"run again, it ends with {done.returncode}: {done.stderr[-300:]!r}"]
    return differences(snapshot(workspace), stage.after)


def damaged(workspace: Path) -> list[str]:
    """Return the names that point to an incomplete artifact.

    A link with a temporary name is no name yet: a command killed before it renames the link leaves it behind, and the
    next command removes it.
    """
    store, problems = Store(workspace), []
    for path in workspace.rglob("*"):
        if not path.is_symlink() or path.suffix == ".partial":
            continue
        target = path.resolve()
        key = target.relative_to((workspace / "store").resolve()).parts[0].split(".")[0]
        if not (target.exists() and store.get(key)):
            problems.append(f"{path.relative_to(workspace)} points to what is not whole")
    return problems


def unclear(done: subprocess.CompletedProcess, expected: tuple[int, ...]) -> list[str]:
    """Return the problems with how a command ended: another exit code, a traceback, an error of several lines."""
    if done.returncode not in expected:
        return [f"exit code {done.returncode}: {done.stderr[-300:]!r}"]
    if "Traceback" in done.stderr:
        return [f"a traceback: {done.stderr[-300:]!r}"]
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return [f"not one error line: {done.stderr[-300:]!r}"] if done.returncode == REFUSED and len(errors) != 1 else []


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Yield a folder on a disk of `size` bytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def can_mount(folder: Path) -> bool:
    """Return whether this process may mount a disk."""
    try:
        with small_disk(folder, 1 << 20):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextlib.contextmanager
def slow_server(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, taking about a second per file. Yields the address."""
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:
            data = source.read()
            for start in range(0, len(data), len(data) // 10 + 1):
                outputfile.write(data[start : start + len(data) // 10 + 1])
                time.sleep(0.1)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


PARTS: dict[str, Callable[[Trials, float], Row]] = {
    "malformed": Trials.malformed,
    "files": Trials.files,
    "disks": Trials.disks,
    "twice": Trials.twice,
    "kills": Trials.kills,
}
"""Name on the command line -> trials, in the order in which they run."""
NEED_STAGES = {"disks", "twice", "kills"}

if __name__ == "__main__":
    main()
