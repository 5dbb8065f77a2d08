"""Files and folders written whole or not at all, JSON, and fingerprints of content."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.reading import regular_file
from common.stopping import check
from common.store.temporary import remove_leftovers_of, set_aside, temporary

_CHUNK_BYTES = 1 << 20


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; on success it replaces `path`, otherwise it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers_of(path)
    partial = temporary(path)
    try:
        yield partial
        sync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder; on success it replaces `path`, otherwise it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers_of(path)
    partial = temporary(path)
    partial.mkdir()
    try:
        yield partial
        for file in files_in(partial):
            sync(file)
        old = set_aside(path, partial) if path.exists() else None
        partial.rename(path)
        if old:
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def files_in(folder: Path) -> list[Path]:
    """Return all files in a folder and the folders below, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sync(path: Path) -> None:
    """Wait until a file's content is on disk, so that after a loss of power a renamed file has its content."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def check_output(path: Path, flag: str) -> None:
    """Raise UserError if no file can be written at a path. Called before time is spent on the file's content."""
    try:
        if path.exists() and not path.is_file():
            problem = "a folder" if path.is_dir() else "not a regular file"
        elif not path.parent.is_dir():
            problem = f"no folder {path.parent}"
        else:
            partial = temporary(path)
            partial.touch(exist_ok=False)
            partial.unlink()
            return
    except OSError as error:
        problem = error.strerror or str(error)
    raise UserError(f"{flag} {path}: {problem}")


def check_not_read(path: Path, flag: str, files: Iterable[Path], command: str) -> None:
    """Raise UserError if an output is one of the files that a command reads."""
    if path.is_file() and any(file.is_file() and path.samefile(file) for file in files):
        raise UserError(f"{flag} {path}: {command} reads this file")


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
        return json.loads(regular_file(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, or not UTF-8
        raise UserError(f"{path}: not valid JSON ({error})") from error


def fingerprint(value: Any) -> str:
    """Return 16 hex digits of SHA-256 over a JSON-able value, independent of key order."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_fingerprint(path: Path) -> str:
    """Return 16 hex digits of SHA-256 over a file's bytes."""
    return file_sha256(path)[:16]


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex. Raises UserError if the path is not a regular file."""
    digest, buffer = hashlib.sha256(), bytearray(_CHUNK_BYTES)
    with regular_file(path).open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            check()
            digest.update(memoryview(buffer)[:size])
    return digest.hexdigest()


def folder_name(folder: Path) -> str:
    """Return the name of a folder as the user gave it; a link's own name, not that of its target."""
    return folder.name if folder.name not in ("", "..") else folder.resolve().name
