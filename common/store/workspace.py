"""Where every stage's output lives, files written whole or not at all, and fingerprints of content."""

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.errors import UserError


class Workspace:
    """Paths below one root folder. Nothing is created until something is written."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def split(self, task: str, split: str) -> Path:
        """Parquet file of one data split."""
        return self.root / "data" / task / f"{split}.parquet"

    def report(self, task: str) -> Path:
        """What was found in the task's files, and what the splits were made from."""
        return self.root / "data" / task / "report.json"

    def augmented(self, task: str, name: str) -> Path:
        """Parquet file of augmented training rows. Raises UserError for a name that is no plain file name."""
        return self.root / "data" / task / "augmented" / f"{_one_word(name, 'augmented rows')}.parquet"

    def logits(self, task: str, teacher: str, split: str) -> Path:
        """Parquet file of a teacher's logits over one split."""
        return self.root / "data" / task / "logits" / teacher / f"{split}.parquet"

    def bpe(self, task: str) -> Path:
        """Folder of byte-pair vocabularies and vectors trained on the task's text."""
        return self.root / "data" / task / "bpe"

    def tokens(self, task: str, identity: str) -> Path:
        """Folder of the token ids of some rows."""
        return self.root / "data" / task / "tokens" / identity

    def downloads(self) -> Path:
        """Folder of verified downloads."""
        return self.root / "downloads"

    def model(self, task: str, name: str) -> Path:
        """Folder of one model. Raises UserError for a name that is no plain folder name."""
        return self.root / "models" / task / _one_word(name, "model")

    def experiment(self, name: str) -> Path:
        """Folder of one experiment's records and report. Raises UserError for a name that is no plain folder name."""
        return self.root / "experiments" / _one_word(name, "experiment")

    def run(self, identity: str) -> Path:
        """Folder of one run of a sweep: its record, its rows, its log."""
        return self.root / "runs" / identity


def _one_word(name: str, kind: str) -> str:
    if not name or name.startswith(".") or Path(name).name != name:
        raise UserError(f"{name!r} is no {kind} name; a name is one word without slashes")
    return name


def default_root() -> Path:
    """FEATHERWEIGHT_HOME, or ./workspace."""
    return Path(os.environ.get("FEATHERWEIGHT_HOME", "workspace"))


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is synced and takes `path`'s place, else it vanishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that takes `path`'s place on success and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.mkdir()
    try:
        yield partial
        old = path.with_name(partial.name + ".old")
        if path.exists():
            path.rename(old)
        partial.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON, indented, whole or not at all. Keys keep their order: a task's first metric is its main one."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON. Raises UserError naming the file when it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid JSON ({error})") from error


def fingerprint(value: Any) -> str:
    """16 hex digits of SHA-256 over a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_fingerprint(path: Path) -> str:
    """16 hex digits of SHA-256 over a file's bytes."""
    return file_sha256(path)[:16]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
