"""Packed students compared with the same students in PyTorch, and with a fastText model trained on the same text.

    python benchmarks/runtime.py
    python benchmarks/runtime.py --task sst-2 --ffn NAME --bilstm NAME --fasttext-python ~/fasttext/bin/python
    python benchmarks/runtime.py --task sst-2 --only-c --files sst-2-12k sst-2-32k sst-2-100k

Every figure is measured in a fresh process on one core with one thread: seconds from its start to the first answer,
sentences per second on the test split, milliseconds for a single sentence, and peak memory over the test split.
The students are those named, or the smallest of each kind in the workspace (make quickstart builds some).
fastText is trained on the task's training rows and their labels.
The command lines of the C runtime (if built by make -C runtimes/c) and of fastText (if installed) read the same texts
from a file and write labels (command_lines.py).
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from command_lines import Command, accuracy, built_fwt, measure_command, student_of, train_by_command
from fasttext_side import fasttext_python, train_fasttext

from common.cli import print_json, run_script
from common.data.split import Split, load_split
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.kinds.registry import LABELS
from common.store.workspace import Workspace, default_root
from common.tables import text_table
from common.training.models import WEIGHTS_FILE, find_model, read_config, saved_models
from compression.packing import pack_student

HERE = Path(__file__).parent
FILES = (WEIGHTS_FILE, "bpe.model")
"""Files in a student's folder that a prediction needs, apart from a few settings."""
STARTS, PASSES = 7, 5
"""Number of processes started to measure the median start-up time; number of passes over the test split."""


@dataclasses.dataclass(frozen=True)
class Way:
    """One way of running one model. labels: the model's names of the task's labels, in order."""

    name: str
    python: str
    kind: str
    model: Path
    labels: tuple[str, ...]


def measure(way: Way, texts: Path, split: Split, clock: str) -> dict[str, Any]:
    """Return the measurements of a way.

    start: seconds to the first answer; rate: sentences per second; one: milliseconds for a single sentence; memory:
    peak bytes; accuracy: on labelled rows; bytes: size of the files it needs.
    """
    starts = [first_answer(way, texts)[clock] for _ in range(STARTS)]
    measured = json.loads(in_a_process(way, texts, clock)[-1])
    files = [way.model / name for name in FILES] if way.model.is_dir() else [way.model]
    return {
        "way": way.name,
        "start": statistics.median(starts),
        "rate": len(split) / measured["pass"],
        "one": 1000 * measured["one"],
        "memory": measured["memory"],
        "accuracy": accuracy(split, way.labels, measured["labels"]),
        "bytes": sum(path.stat().st_size for path in files if path.exists()),
    }


def _started(way: Way, texts: Path, clock: str, passes: int) -> subprocess.Popen:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [way.python, HERE / f"way_{way.kind}.py", way.model, texts, clock, passes]
    return subprocess.Popen(list(map(str, command)), env=os.environ | threads, stdout=subprocess.PIPE, text=True)


def first_answer(way: Way, texts: Path) -> dict[str, float]:
    """Return the seconds from a process's start to its first answer, by both clocks."""
    started = time.perf_counter()
    with _started(way, texts, "wall", 0) as process:
        answer = process.stdout.readline()
        seconds = time.perf_counter() - started
    if process.returncode:
        raise UserError(f"{way.name} did not answer, see above")
    return {"wall": seconds, "cpu": float(answer)}


def in_a_process(way: Way, texts: Path, clock: str) -> list[str]:
    """Return the lines that a process prints."""
    with _started(way, texts, clock, PASSES) as process:
        lines = process.stdout.read().splitlines()
    if process.returncode:
        raise UserError(f"{way.name} failed, see above")
    return lines


def students(paths: Workspace, task: Task, names: dict[str, str | None]) -> dict[str, Path]:
    """Return architecture -> folder: the named student, or the smallest. Raises UserError if there are none."""
    folder_of = {}
    for arch, name in names.items():
        if name:
            folder_of[arch] = find_model(paths, task, name, arch)[0]
            continue
        folders = [
            folder for folder in saved_models(paths.model(task.name, "x").parent) if read_config(folder).arch == arch
        ]
        if not folders:
            raise UserError(f"{paths.root} has no {arch} of {task.name}: run make quickstart, or name one by --{arch}")
        folder_of[arch] = min(folders, key=lambda folder: (folder / WEIGHTS_FILE).stat().st_size)
    return folder_of


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure every way. Raises UserError if a model or the data are missing."""
    paths, task = Workspace(args.workspace), load_task(args.task)
    if task.pair or task.kind is not LABELS:
        raise UserError(f"{task.name}: this benchmark is of single sentences with labels")
    named = {Path(file).stem: student_of(task, file) for file in args.files}
    split = load_split(paths, task, "test")
    trained = {} if args.only_c else students(paths, task, {"ffn": args.ffn, "bilstm": args.bilstm})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = folder / "texts.txt"
        texts.write_text("\n".join(split.sentence1), encoding="utf-8")
        ways, commands, files = [], [], {}
        for arch, student in trained.items():
            files[arch] = folder / f"{student.name}.fwt"
            files[arch].write_bytes(pack_student(student))
            ways.append(Way(f"{arch} packed", sys.executable, "packed", files[arch], task.labels))
            ways.append(Way(f"{arch} PyTorch", sys.executable, "pytorch", student, task.labels))
        files |= named
        fwt, of_command = built_fwt(), train_by_command(load_split(paths, task, "train"), folder)
        for name, file in files.items() if fwt else ():
            commands.append(Command(f"{name} C", (str(fwt), "predict", str(file)), file, task.labels))
        if of_command:
            marked = tuple(f"__label__{index}" for index in range(len(task.labels)))
            words = ("fasttext", "predict", str(of_command))
            commands.append(Command("fastText C++", words, of_command, marked))
        python = None if args.only_c else fasttext_python(args.fasttext_python, paths)
        if python:
            model = train_fasttext(python, load_split(paths, task, "train"), folder)
            ways.append(Way("fastText", python, "fasttext", model, tuple(map(str, range(len(task.labels))))))
        clock = "cpu" if args.cpu_time else "wall"
        rows = {way.name: measure(way, texts, split, clock) for way in ways}
        rows |= {command.name: measure_command(command, split, folder, clock, STARTS, PASSES) for command in commands}
    models = {arch: student.name for arch, student in trained.items()}
    return {"task": task.name, "clock": clock, "models": models, "ways": list(rows.values()), "ratios": ratios(rows)}


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the ratios of two ways' measurements."""
    rates = {name: row["rate"] for name, row in rows.items()}
    compared = {}
    if "fastText C++" in rates:
        natives = [name for name in rates if name.endswith(" C")]
        compared |= {f"{name} / fastText C++: throughput": rates[name] / rates["fastText C++"] for name in natives}
    for arch in ("ffn", "bilstm"):
        ours, pytorch, native = f"{arch} packed", f"{arch} PyTorch", f"{arch} C"
        if ours not in rows:
            continue
        if native in rows:
            compared[f"{arch}: throughput, C / packed"] = rates[native] / rates[ours]
        compared[f"{arch}: start-up, PyTorch / packed"] = rows[pytorch]["start"] / rows[ours]["start"]
        compared[f"{arch}: throughput, packed / PyTorch"] = rates[ours] / rates[pytorch]
    if "fastText" in rows:
        compared["ffn packed / fastText: throughput"] = rates["ffn packed"] / rates["fastText"]
    return compared


def describe(result: dict[str, Any]) -> str:
    """Return the result as tables."""
    header = ["way", "start-up, s", "sentences/s", "one, ms", "memory, MB", "bytes", "accuracy"]
    body = [
        [
            row["way"],
            f"{row['start']:.3f}",
            f"{row['rate']:,.0f}",
            "" if row["one"] is None else f"{row['one']:.3f}",
            "" if row["memory"] is None else f"{row['memory'] / 1e6:.1f}",
            f"{row['bytes']:,}",
            f"{row['accuracy']:.4f}",
        ]
        for row in result["ways"]
    ]
    models = "".join(f", {name}" for name in result["models"].values())
    lines = [f"{result['task']}, one core, {result['clock']} time{models}", ""]
    lines += [text_table(header, body), ""]
    lines += [f"{value:8.2f}  {name}" for name, value in result["ratios"].items()]
    return "\n".join(lines)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="rotten-tomatoes", help="task whose test split is read")
    parser.add_argument("--workspace", type=Path, default=default_root(), help="where its data and models are")
    parser.add_argument("--ffn", metavar="NAME", help="FFN student; unset: the smallest there is")
    parser.add_argument("--bilstm", metavar="NAME", help="BiLSTM student; unset: the smallest there is")
    parser.add_argument(
        "--files", nargs="*", default=[], help="more packed files, or names of the zoo, for the C runtime"
    )
    parser.add_argument("--only-c", action="store_true", help="run the command lines alone: --files and fastText's")
    parser.add_argument("--fasttext-python", metavar="PATH", help="a Python that can import fasttext")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds: for a busy machine")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    result = run(args)
    print_json(result) if args.json else print(describe(result))


if __name__ == "__main__":
    run_script(main)
