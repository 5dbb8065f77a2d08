"""From a task's source files to its split files: read, report, carve, write."""

import importlib.util
from pathlib import Path

import numpy as np

from common.data import Split, load_split, read_metadata, read_source, write_split
from common.download import fetch, unpack_member
from common.errors import UserError
from common.progress import say
from common.splits import carve, duplicates
from common.tasks import Source, Task
from common.workspace import Workspace, file_fingerprint, fingerprint


def prepare(paths: Workspace, task: Task, data_dir: Path | None, seed: int, force: bool = False) -> dict[str, Split]:
    """Write a task's train, validation and test splits and return them.

    Splits already made from the same files with the same seed are reused. Raises UserError for anything wrong with
    the source files.
    """
    files = source_files(task.source, data_dir, paths)
    names = ("train", "validation", *task.test_splits)
    made_from = fingerprint([{k: file_fingerprint(v) for k, v in files.items()}, task.model_dump(mode="json"), seed])
    if not force and all(read_metadata(paths.split(task.name, name)).get("made_from") == made_from for name in names):
        say(f"{task.name}: splits are up to date")
        return {name: load_split(paths, task, name) for name in names}
    splits = make_splits({name: read_source(path, task) for name, path in files.items()}, task, seed)
    for name, split in splits.items():
        metadata = {"task": task.name, "split": name, "made_from": made_from, "fingerprint": split.fingerprint()}
        write_split(paths.split(task.name, name), split, metadata)
    return splits


def make_splits(read: dict[str, Split], task: Task, seed: int) -> dict[str, Split]:
    """Carve what the files do not give, and say how many rows that cost."""
    for name, split in read.items():
        empty = sum(not text for texts in split.sentences() for text in texts)
        say(f"{task.name} {name}: {len(split):,} rows" + (f", {empty} empty sentences kept in place" if empty else ""))
    splits = {name: split for name, split in read.items() if name.startswith("test")}
    train = read.get("train") or read.get("all")
    if train is None:
        raise UserError(f"task {task.name}: its source names no train file")
    if task.test:
        repeated = duplicates(train)
        train = train.take(np.setdiff1d(np.arange(len(train)), repeated))
        say(f"{task.name}: {len(repeated)} repeated rows removed")
        train, splits["test"] = _carved(train, task, "test", seed)
    train, splits["validation"] = _carved(train, task, "validation", seed)
    return {"train": train, **splits}


def _carved(train: Split, task: Task, name: str, seed: int) -> tuple[Split, Split]:
    how = task.test if name == "test" else task.validation
    assert how is not None
    carved, kept = carve(train, how, seed + (name == "test"))
    if not len(carved) or not len(kept):
        raise UserError(f"{task.name}: {len(train)} rows are too few to carve {name} from train without a leak")
    lost = len(train) - len(carved) - len(kept)
    say(
        f"{task.name}: {len(carved):,} rows carved for {name}; {lost:,} overlapping rows left train; {len(kept):,} stay"
    )
    return train.take(kept), train.take(carved)


def source_files(source: Source, data_dir: Path | None, paths: Workspace) -> dict[str, Path]:
    """Local paths of a task's files, fetched or unpacked where needed. Raises UserError when they cannot be had."""
    if source.kind == "package":
        root = _package_root(source)
    elif data_dir is None and source.kind == "files":
        root = Path(source.folder)
    elif data_dir is None:
        root = _unpacked(source, None, paths)
    elif not data_dir.exists():
        raise UserError(f"--data-dir {data_dir}: no such folder")
    elif (data_dir / source.folder).is_dir():
        root = data_dir / source.folder
    elif any(data_dir.glob("*.zip")):
        root = _unpacked(source, data_dir, paths)
    else:
        root = data_dir
    found = {split: root / name for split, name in source.files.items()}
    for path in found.values():
        if not path.exists():
            raise UserError(f"{path}: no such file")
    return found


def _package_root(source: Source) -> Path:
    spec = importlib.util.find_spec(source.package or "")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"the data package {source.package} is not installed; run: {source.install}")
    return Path(next(iter(spec.submodule_search_locations)))


def _unpacked(source: Source, data_dir: Path | None, paths: Workspace) -> Path:
    """Unpack the task's archive (the user's own, or the official one) into the workspace."""
    if not source.url or not source.sha256:
        raise UserError("this task has no official address; give its files with --data-dir")
    if data_dir is None:
        archive = fetch(source.url, source.sha256, paths.downloads())
    else:
        archive = data_dir / source.url.rsplit("/", 1)[-1]
        archive = archive if archive.exists() else data_dir / f"{source.folder}.zip"
        if not archive.exists():
            raise UserError(f"{data_dir}: holds neither a folder {source.folder} nor {archive.name}")
    root = paths.downloads() / source.folder
    for name in source.files.values():
        unpack_member(archive, f"{source.folder}/{name}", root / name)
    return root
