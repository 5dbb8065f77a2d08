"""The web page's module compared with the native C runtime, on the same texts in one run.

    python benchmarks/web.py
    python benchmarks/web.py --files sst-2-12k sst-2-100k --json

Each packed file classifies the test split of its task: with the module and wrapper of runtimes/web in Node.js, which
has Chrome's engine (V8), and with the C runtime's command line, fwt. Sentences per second are those of the best of
several passes; for fwt they include reading lines and writing labels.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from command_lines import Command, built_fwt, measure_command, packed_student
from shared import run_command

from common.cli import print_json, run_script
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace, default_root
from common.tables import text_table
from compression.runtime import Model

HERE = Path(__file__).parent
STARTS, PASSES = 3, 5


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return a row for each packed file. Raises UserError if Node.js, fwt or the task's data are missing."""
    students = [packed_student(name) for name in args.files]
    node, fwt = shutil.which("node"), built_fwt()
    if not node or not fwt:
        raise UserError("this benchmark needs Node.js (node) and the C runtime (make -C runtimes/c)")
    clock = "cpu" if args.cpu_time else "wall"
    rows = [_row(node, fwt, file, model, Workspace(args.workspace), clock) for file, model in students]
    return {"clock": clock, "files": rows}


def _row(node: str, fwt: Path, file: Path, model: Model, paths: Workspace, clock: str) -> dict[str, Any]:
    task = load_task(model.task)
    split = load_split(paths, task, "test")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = Command(file.stem, (str(fwt), "predict", str(file)), file, task.labels)
        native = measure_command(command, split, folder, clock, STARTS, PASSES)
        texts = folder / "texts.txt"
        texts.write_text("\n".join(" ".join(text.split()) for text in split.sentence1), encoding="utf-8")
        web = json.loads(run_command("Node.js", [node, HERE / "web_speed.mjs", file, texts, PASSES, clock]))
    if web["labels"] != model.predict(split.sentence1):
        raise UserError(f"{file.name}: the module's labels are not those of the NumPy runtime")
    rate = len(split) / web["seconds"]
    return {
        "file": file.name,
        "web": rate,
        "native": native["rate"],
        "ratio": rate / native["rate"],
        "start": web["start"],
    }


def describe(result: dict[str, Any]) -> str:
    """Return the result as a table."""
    header = ["file", "module, sentences/s", "native, sentences/s", "module / native", "first answer of the module, ms"]
    body = [
        [row["file"], f"{row['web']:,.0f}", f"{row['native']:,.0f}", f"{row['ratio']:.2f}", f"{row['start']:.1f}"]
        for row in result["files"]
    ]
    return text_table(header, body)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--files", nargs="+", default=["sst-2-12k", "sst-2-32k", "sst-2-100k"], help="packed files, or names of the zoo"
    )
    parser.add_argument("--workspace", type=Path, default=default_root(), help="where the tasks' data are")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds: for a busy machine")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    result = run(args)
    print_json(result) if args.json else print(describe(result))


if __name__ == "__main__":
    run_script(main)
