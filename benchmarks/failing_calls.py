"""Every write, rename and fsync of the commands fails in turn, and `fit` is killed in a workspace that then moves.

    python benchmarks/failing_calls.py                      # about an hour on one core
    python benchmarks/failing_calls.py --only pack store    # these stages only

A command is run once to count its calls that change files, then once for each call and error: an I/O error, an
interruption, and a disk that is full from there on. It must end with one line, or do all its work; names must point to
whole files; and the command, run again, must end with the bytes of an undisturbed one. If there are more than --most
calls, only the first, a middle and the last one of each function and kind of file fail, with one of the errors each.
A deviation is a finding (exit code 1). Processes are forked from this one; failing_calls.c is preloaded (Linux, gcc).
"""

import argparse
import collections
import contextlib
import ctypes
import dataclasses
import errno
import importlib
import itertools
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import fault_stages
from fault_stages import Stage, build, differences, snapshot
from faults import REFUSED, Row, damaged, table, unclear
from processes import run_script
from tiny import sentences, write_encoder

from common.store.files import file_sha256
from compression.runtime import load

ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR)
SECONDS = 120
"""Longest time of a command."""
FIT_MINUTES = 0.03


def main() -> None:
    """Run the trials and print the table. Exits with code 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="only these stages of fault_stages.py, or: store, fit, kills")
    parser.add_argument("--most", type=int, default=120, help="calls that all fail in turn (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60, help="for each stage (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=50, help="kills of fit (default: %(default)s)")
    args = parser.parse_args()
    fault_stages.ROWS = 150
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="failing-") as name:
        folder = Path(name)
        for stage in stages(folder):
            if stage.name in (args.only or [stage.name]):
                rows.append(in_turn(folder, stage, args.most, time.monotonic() + 60 * args.minutes))
                print(table(rows[-1:]), flush=True)
            if stage.name == "fit" and "kills" in (args.only or ["kills"]):
                rows.append(kills(folder, stage, args.kills, time.monotonic() + 60 * args.minutes))
    print(table(rows))
    raise SystemExit(any(row.findings for row in rows))


def stages(folder: Path) -> Iterator[Stage]:
    """Yield the stages of fault_stages.py, the cleaning of a store, and a fit."""
    pickled = folder / "stages.pickle"

    def make() -> None:
        pickled.write_bytes(pickle.dumps((build(folder / "pipeline"), list(sys.modules))))

    forked(make, folder / "output", 10 * SECONDS)  # in another process, so that this one has nothing in caches
    built, modules = pickle.loads(pickled.read_bytes())
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)  # once, for all processes that are forked
    unused = shutil.copytree(folder / "pipeline" / "workspace", folder / "unused", symlinks=True)
    for path in (unused / "packed").rglob("*.fwt"):
        path.unlink()
    built.append(Stage("store", ("experiment.py", "clean", "--yes"), unused, {}, 0, 0))
    file, empty, encoder = folder / "reviews.csv", folder / "empty", str(write_encoder(folder / "encoder"))
    file.write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in sentences(fault_stages.ROWS)))
    empty.mkdir()
    words = ["fit", str(file), "--max-bytes", "4000", "--minutes", str(FIT_MINUTES), "--encoder", encoder]
    built.append(Stage("fit", ("experiment.py", *words, "--cpu", "--no-loadbar"), empty, {}, 0, 0))
    for stage in built:
        workspace, started = stage.workspace(folder / "undisturbed"), time.monotonic()
        done = command(stage, workspace)
        if done.returncode:
            raise SystemExit(f"{stage.name} ends with {done.returncode}: {done.stderr}")
        yield dataclasses.replace(stage, after=snapshot(workspace), seconds=time.monotonic() - started)
        shutil.rmtree(workspace)


def in_turn(folder: Path, stage: Stage, most: int, end: float) -> Row:
    """Let the calls of a stage's command fail, in random order, and run it again after each."""
    log, workspace = folder / "calls", stage.workspace(folder / "trial")
    command(stage, workspace, log)
    shutil.rmtree(workspace)
    calls = log.read_text().replace(f"{workspace}/", "").splitlines()
    trials = list(itertools.product(range(1, len(calls) + 1), ERRORS))
    if len(calls) > most:
        kinds = collections.defaultdict(list)
        for number, call in enumerate(calls, 1):
            function, _, path = re.sub(r"\.[-0-9a-f]+\.partial", "", call).partition(" ")
            kinds[function, path.partition("/")[0], Path(path).suffix].append(number)
        some = sorted({of_kind[at] for of_kind in kinds.values() for at in (0, len(of_kind) // 2, -1)})
        trials = list(zip(some, itertools.cycle(ERRORS)))
    random.Random(1).shuffle(trials)
    findings, ended, tried = [], 0, 0
    for number, error in trials:
        if time.monotonic() > end:
            break
        tried += 1
        stage.workspace(workspace)
        names = links(workspace) if stage.name != "store" else set()
        done = command(stage, workspace, log, number, error)
        ended += done.returncode == 0
        problems = unclear(done, (0, 1, REFUSED) if stage.name == "sweep" else (0, REFUSED)) + unfinished(workspace)
        if not done.returncode and "could not be made" not in done.stderr:  # a picture or a report, which is not lost
            problems += [line for line in deviations(stage, workspace) if not line.startswith("left behind")]
        problems += [f"{name} is lost" for name in names - links(workspace)]
        problems += goes_on(stage, workspace)
        call = (log.read_text().splitlines()[number - 1 :] or ["which another run does not make"])[0]
        findings += [f"{errno.errorcode[error]} at call {number}, {call}: {line}" for line in problems]
        print("".join(f"{line}\n" for line in findings[len(findings) - len(problems) :]), end="", flush=True)
        shutil.rmtree(workspace)
    note = f"{len({number for number, _ in trials[:tried]})} of {len(calls)} calls; {ended} times with exit code 0"
    return Row(stage.name, tried, findings, note)


def kills(folder: Path, stage: Stage, count: int, end: float) -> Row:
    """Kill a fit at random moments, rename its workspace, and run it again."""
    findings, ended, tried = [], 0, 0
    while tried < count and time.monotonic() < end:
        workspace, moment = stage.workspace(folder / "killed"), random.Random(tried).uniform(0, stage.seconds)
        ended += command(stage, workspace, seconds=moment).returncode == 0
        problems = unfinished(workspace)
        moved = workspace.rename(folder / f"moved-{tried}")
        findings += [f"killed after {moment:.2f} s: {line}" for line in [*problems, *goes_on(stage, moved)]]
        shutil.rmtree(moved)
        tried += 1
    return Row("fit killed, then moved", tried, findings, f"{ended} had ended before the kill")


def goes_on(stage: Stage, workspace: Path) -> list[str]:
    """Run a stage's command again, undisturbed, and the failed runs of a sweep once more. Returns the deviations."""
    done = command(stage, workspace)
    if stage.name == "sweep" and done.returncode == 1:
        done = command(stage, workspace, None, 0, 0, "--retry-failed")
    problems = deviations(stage, workspace) if not done.returncode else [f"{done.returncode}: {done.stderr[-300:]!r}"]
    return [f"run again: {line}" for line in problems]


def deviations(stage: Stage, workspace: Path) -> list[str]:
    """Return the differences from the undisturbed workspace; of a fit, whose students depend on time, what lacks."""
    if stage.name != "fit":
        return differences(snapshot(workspace), stage.after)
    (file,) = workspace.glob("experiments/*/fit.json")
    (size,) = json.loads(file.read_text())["result"]["sizes"]
    packed = workspace / size["packed"]
    if file_sha256(packed) != size["sha256"] or len(load(packed).predict(["a film", ""])) != 2:
        return ["its packed file is not the one of its result"]
    expected = ("experiments/*/report.html", "experiments/*/results.json", "scores/*/*/*/result.json")
    published = {path.resolve() for path in workspace.glob("store/*") if path.is_symlink()}
    left = {path.resolve() for path in workspace.glob("store/*") if path.is_dir()} - published
    left |= set(workspace.rglob("*.partial*"))
    problems = [f"missing: {name}" for name in expected if not any(workspace.glob(name))]
    return [*problems, *(f"left behind: {path.name}" for path in left)]


def links(workspace: Path) -> set[Path]:
    """Return the names that point to artifacts."""
    names = (path for path in workspace.rglob("*") if path.is_symlink() and path.suffix != ".partial")
    return {path.relative_to(workspace) for path in names}


def unfinished(workspace: Path) -> list[str]:
    """Return the names that point to incomplete artifacts, and the files of JSON that are not whole."""
    problems = damaged(workspace)
    for path in workspace.rglob("*.json"):
        if not re.search(r"\.partial|\.work|sacred", str(path)):
            try:
                json.loads(path.read_bytes())
            except ValueError:
                problems.append(f"{path.relative_to(workspace)} is not whole")
    return problems


def command(
    stage: Stage,
    workspace: Path,
    log: Path | None = None,
    call: int = 0,
    error: int = 0,
    *more: str,
    seconds: float = SECONDS,
) -> subprocess.CompletedProcess:
    """Run a stage's command in a process that is forked, and killed after some seconds.

    log: file that the calls are written to. call: number, from 1, of the one that fails with `error`.
    """

    def run() -> int:
        if log:
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            ctypes.CDLL(None).fail_call(bytes(workspace), ctypes.c_long(call), error, error == errno.ENOSPC, file)
        local = ["--launcher", "local"] if stage.name == "sweep" else []
        return run_script(*stage.words, *local, "--workspace", workspace, *more)

    return forked(run, workspace.with_name("output"), seconds)


def forked(function: Callable[[], int | None], output: Path, seconds: float = SECONDS) -> subprocess.CompletedProcess:
    """Call a function in a process of its own. Returns its exit code, and what it wrote to `output` as stderr."""
    process = os.fork()
    if not process:
        code = 1
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        try:
            code = function() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    timer = threading.Timer(seconds, os.kill, (process, signal.SIGKILL))
    timer.start()
    _, status = os.waitpid(process, 0)
    timer.cancel()
    code, text = os.waitstatus_to_exitcode(status), output.read_text(errors="replace")
    return subprocess.CompletedProcess([], code, "", text)


if __name__ == "__main__":
    if "LD_PRELOAD" in os.environ:
        main()
    with tempfile.TemporaryDirectory() as name:
        library, source = Path(name) / "failing_calls.so", Path(__file__).with_suffix(".c")
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        preloaded = os.environ | {"LD_PRELOAD": str(library)}
        raise SystemExit(subprocess.run([sys.executable, *sys.argv], env=preloaded).returncode)
