"""A small pipeline for faults.py: the command of each stage, and the workspace before and after it.

The data are 1,500 generated sentences, the teacher is a one-layer BERT, and every command ends within seconds.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Set before PyTorch is imported: like the commands, the stages in this process use one thread and no network.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MKL_CBWR"] = "AUTO"
os.environ["MKL_DYNAMIC"] = "FALSE"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import processes
import tiny
import yaml

from common.teachers.huggingface.pretrained import quiet_transformers

ROOT = Path(__file__).parent.parent
ROWS = 1500
STUDENT = "bilstm-bpe6-a0-aug-s3201976"
QUANTIZED = f"{STUDENT}+q4-t1"
VOLATILE = ("seconds", "started", "built", "files", "run", "checksum", "process", "work")
"""JSON keys whose values differ from run to run: times, sizes of files that contain times, paths of the workspace, the
process that did a run, and its work, which is 0 if a run before it distilled the student."""
ONLY_THERE = (".txt", ".html", ".md", ".png", ".pdf")
"""Kinds of files that contain times; only their existence is compared."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """One command of the pipeline."""

    name: str
    words: tuple[str, ...]
    """Words of the command, without the workspace."""
    before: Path
    """A workspace in which all earlier stages are done."""
    after: dict[str, str]
    """Snapshot of the workspace after the undisturbed command."""
    seconds: float
    """Time of the work, excluding the start of Python."""
    growth: int
    """Bytes that the command adds to the workspace."""

    def command(self, workspace: Path, *more: str) -> list[str]:
        """Return the command line for a workspace; a sweep has as many workers as there are cores."""
        return [sys.executable, *self.words, "--workspace", str(workspace), *more]

    def workspace(self, path: Path) -> Path:
        """Copy the workspace before this stage to `path`, which may exist."""
        return shutil.copytree(self.before, path, symlinks=True, dirs_exist_ok=True)


def run(words: list[str], seconds: float = 300) -> subprocess.CompletedProcess:
    """Run a command to its end. Raises subprocess.TimeoutExpired after `seconds`."""
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=seconds)


def write_task(folder: Path, source: dict[str, Any] | None = None) -> Path:
    """Write the task `reviews`, a CSV file and its YAML, with `source` if given. Returns the path of the YAML file."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f'"{text}",{("bad", "good")[label]}\n' for text, label in tiny.sentences(ROWS)]
    (folder / "reviews.csv").write_text("text,label\n" + "".join(rows))
    task = {"name": "reviews", "labels": ["bad", "good"], "source": source or {"files": {"all": "reviews.csv"}}}
    path = folder / "reviews.yaml"
    path.write_text(yaml.safe_dump(task))
    return path


def commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield name and words of each stage, in order; files that they read are written to `folder`."""
    quiet_transformers()
    only_task = ["--task", str(write_task(folder)), "--no-loadbar"]
    task = [*only_task, "--cpu"]
    encoder = str(tiny.write_encoder(folder / "tiny-bert"))
    glove = str(tiny.write_glove(folder / "glove.txt"))
    sizes = {"embedding-dim": 6, "encoder-hidden-dim": 5, "cls-hidden-dim": 7, "vocab-size": 120, "epochs": 3}
    distil = ["compress.py", *task, "--bpe-source", "train", *(w for k, v in sizes.items() for w in (f"--{k}", str(v)))]
    action = ["compress.py", *task, "--compression-actions"]
    training = ["--lr", "0.01", "--precision", "fp32", "--max-epochs", "3"]
    yield "preprocess", ["preprocess.py", *only_task]
    yield "fine-tune", ["finetune.py", *task, "--arch", encoder, *training]
    yield "augment", ["preprocess.py", *task, "--augment", "tinybert", "--glove", glove, "--variants", "6"]
    yield "logits", ["preprocess.py", *task, "--generate-loss", "processed", "tinybert", "--precision", "fp32"]
    yield "distil", distil
    yield "prune", [*action, "prune", "--load-trained-model", STUDENT, "--tune-epochs", "1"]
    yield "quantize", [*action, "quantize", "--load-trained-model", STUDENT, "--tune-epochs", "1", "--bits", "4"]
    yield "pack", ["compress.py", *only_task, "--compression-actions", "pack", "--load-trained-model", QUANTIZED]
    yield "force", [*distil, "--force"]
    yield "sweep", ["experiment.py", "sweep", str(_write_grid(folder, task[1])), *task[2:]]


def _write_grid(folder: Path, task: str) -> Path:
    sizes = {"embedding_dim": 6, "cls_hidden_dim": 7, "vocab_size": 60, "epochs": 2}
    settings = {"task": task, "student_arch": "ffn", "embedding_type": "hash", **sizes}
    methods = {"labels": {"alpha": 1, "only_original_data": True}, "teacher": {"alpha": 0}}
    path = folder / "grid.yaml"
    path.write_text(
        yaml.safe_dump({"name": "grid", "settings": settings, "seeds": [1, 2], "axes": {"method": methods}})
    )
    return path


def build(folder: Path) -> list[Stage]:
    """Run every stage undisturbed, in this process, and return them."""
    stages = []
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    for name, words in commands(folder / "files"):
        before = shutil.copytree(workspace, folder / name, symlinks=True)
        started, size = time.monotonic(), bytes_of(workspace)
        line = [*words, "--workspace", str(workspace)]
        if name == "sweep":
            # Run in this process too, because the result does not depend on the launcher.
            line = [*line, "--launcher", "local"]
        with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(errors):
            code = processes.run_script(*line)
        if code:
            raise SystemExit(f"stage {name} failed: {errors.getvalue()}")
        seconds, growth = time.monotonic() - started, bytes_of(workspace) - size
        stages.append(Stage(name, tuple(words), before, snapshot(workspace), seconds, growth))
    return stages


def bytes_of(folder: Path) -> int:
    """Return the bytes that a folder takes in pages of 4 KiB."""
    return sum(-(-path.lstat().st_size // 4096) * 4096 + 4096 for path in folder.rglob("*"))


def snapshot(workspace: Path) -> dict[str, str]:
    """Return path -> content of everything in a workspace, except for locks, times and random names.

    An artifact's folder has a random name, so its files are listed under its key. A folder that no key points to is
    listed under its own name.
    """
    current = {link.resolve(): link.name for link in (workspace / "store").glob("*") if link.is_symlink()}
    contents = {}
    for path in sorted(workspace.rglob("*")):
        relative = path.relative_to(workspace)
        if path.name.endswith(".lock") or "sacred" in relative.parts or (path.is_dir() and not path.is_symlink()):
            continue
        folder = workspace.joinpath(*relative.parts[:2])
        if path.is_symlink():
            contents[str(relative)] = "artifact" if path.resolve() in current else str(path.readlink())
        elif folder.resolve() in current:
            contents[str(Path("store", current[folder.resolve()], *relative.parts[2:]))] = _content(path)
        else:
            contents[str(relative)] = _content(path)
    return contents


def _content(path: Path) -> str:
    """Return a hash of a file; for JSON, without values that differ from run to run."""
    if path.suffix in ONLY_THERE:
        return "there"
    data = path.read_bytes()
    with contextlib.suppress(ValueError):
        if path.suffix == ".json":
            data = json.dumps(_stable(json.loads(data))).encode()
        elif path.suffix == ".jsonl":
            data = "\n".join(json.dumps(_stable(json.loads(line))) for line in data.splitlines()).encode()
    return hashlib.sha256(data).hexdigest()


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in VOLATILE}
    return [_stable(item) for item in value] if isinstance(value, list) else value


def differences(present: dict[str, str], expected: dict[str, str]) -> list[str]:
    """Return a line for each file that a workspace has in addition, lacks, or has with different content."""
    extra = [f"left behind: {path}" for path in present.keys() - expected.keys()]
    lacking = [f"missing: {path}" for path in expected.keys() - present.keys()]
    other = [f"other content: {path}" for path in present.keys() & expected.keys() if present[path] != expected[path]]
    return sorted([*extra, *lacking, *other])
