"""The splits of a task, from its source files: read, report, carve, write."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic

from common.data.archives import unpack_member
from common.data.download import fetch, package_folder
from common.data.overlap import carve, duplicates, near_keys, take_keys, text_keys, touching
from common.data.readers.tables import read_source
from common.data.report import as_text, make_report
from common.data.split import (
    Split,
    concatenate,
    definition_of,
    is_of_another,
    read_report,
    read_split,
    task_file,
    task_file_of_data,
    write_split,
)
from common.data.tasks import FILE, Source, Task
from common.errors import UserError
from common.progress import say
from common.reading import regular_file
from common.stopping import at_once
from common.store.artifact import Artifact, points_to
from common.store.files import write_json
from common.store.step import Context, Inputs, Step
from common.store.store import Store
from common.store.workspace import Workspace

_WITHOUT_LABELS = ("unlabelled", "other")


class Prepare(Step):
    """The splits of a task: read, report, carve, write. Files: <split>.parquet (also other.parquet), report.json."""

    version: ClassVar[int] = 4

    definition: dict[str, Any]
    """The task's YAML without paths, so that a moved folder still holds the same task."""
    seed: int | None
    """Of the rows that are split off train; None if no rows are."""
    task: Task = pydantic.Field(exclude=True)
    task_file: str = pydantic.Field(exclude=True)
    """The task's YAML file, as the workspace records it."""
    files: dict[str, Path] = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the task's source files."""
        return {name: Artifact.of_file(path) for name, path in self.files.items()}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the splits and the report. Raises UserError if a source file is invalid."""
        task = self.task
        with at_once():
            read = {
                name: read_source(path, task, labelled=name not in _WITHOUT_LABELS) for name, path in inputs.items()
            }
            check_labels(task, read, inputs)
            splits, dropped, left_out = make_splits(read, task, self.seed)
            others = {"other": read["other"]} if "other" in read else {}
            for name, split in {**splits, **others}.items():
                metadata = {"task": task.name, "split": name, "fingerprint": split.fingerprint()}
                write_split(out / f"{name}.parquet", split, metadata)
            write_json(out / "report.json", make_report(task, read, splits, dropped, left_out))
        labelled = {name: int(split.labelled.sum()) for name, split in splits.items()}
        return {"task": task.name, "task_file": self.task_file, "overlaps": task.overlaps, "labelled": labelled}


def prepare(
    paths: Workspace, task: Task, data_dir: Path | None, seed: int, force: bool = False, validation: bool = True
) -> dict[str, Split]:
    """Build a task's train, validation and test splits and the report on them, and return the splits.

    Splits built before from the same files with the same seed are reused; if the task's YAML file has moved, they are
    built again to record its new path. validation: whether to split validation off train; without, there is none.
    Raises UserError if a source file is invalid, if the workspace has data of another task with this name, or if there
    is to be no validation but the task has a file for it, or none for test.
    """
    if not validation and list(task.carving) != ["validation"]:
        raise UserError(f"--no-validation: {task.name} needs a file for test, and none for validation")
    store = Store(paths.root)
    files = source_files(task.source, data_dir, paths)
    step = Prepare(
        definition=definition_of(task),
        seed=seed if validation and task.carving else None,
        task=task,
        task_file=task_file(store, task),
        files=files,
    )
    alias, moved = store.splits(task.name), is_of_another(paths, task)
    if moved and not force and not points_to(alias, step.key(step.inputs(store))):
        raise UserError(
            f"{task.argument}: the workspace has data of another task {task.name}, prepared from "
            f"{task_file_of_data(paths, task.name) or 'the shipped task'}; give one of them another name, "
            "or --force to replace the data"
        )
    context = Context(force=force or moved, name=f"{task.name}: splits")
    store.make(step, context, alias=alias, replace=True)
    say(as_text(read_report(paths, task.name)))
    files = {name: paths.split(task.name, name) for name in task.splits}
    return {name: read_split(file) for name, file in files.items() if file.exists()}


def check_labels(task: Task, read: dict[str, Split], files: Mapping[str, Path]) -> None:
    """Check that the user's own train file has rows of every class.

    Raises UserError. A file without any labels passes, because a teacher can replace them; so do the shipped tasks.
    """
    name = "train" if "train" in read else "all"
    if name not in read or task.source.kind != "files" or not read[name].labelled.any():
        return
    counts = task.kind.counts(read[name].labels, task)
    if counts is not None and not counts.all():
        value = task.values[counts.argmin()]  # the first one without rows
        raise UserError(f"{files[name]}: label {value!r} never appears; remove it from the labels, or correct the file")


def make_splits(
    read: dict[str, Split], task: Task, seed: int | None
) -> tuple[dict[str, Split], dict[str, int], dict[str, int]]:
    """Carve the splits that have no file, or none of them if `seed` is None.

    Returns the splits, reason -> rows removed from train, and label -> rows for the labels of the user's own files that
    are left out, because they have too few rows for all splits (see make_report). Raises UserError if train is missing,
    or too small to carve.
    """
    splits = {name: split for name, split in read.items() if name.startswith(("validation", "test"))}
    if task.models_of:
        return splits, {}, {}
    sources = [read[name] for name in ("train", "all", "unlabelled") if name in read]
    if not sources:
        raise UserError(f"task {task.name}: its source has no train file")
    whole = functools.reduce(_append_file, sources)
    users = task.source.kind == "files"  # a benchmark's train and test stay as they are published
    before = task.kind.counts(whole.labels, task) if users and task.kind.has_classes else np.zeros(0, np.int64)
    rare = np.flatnonzero((before > 0) & (before < 1 + len(task.carving)))
    whole = _without_labels(whole, task, rare)
    keys, near = text_keys(whole), near_keys(whole)
    rows = np.arange(len(whole))  # the rows still in train
    left = {}  # reason -> rows that left train
    if "test" in task.carving:
        left["repeated"] = duplicates(whole, keys)
        rows = np.setdiff1d(rows, left["repeated"])
    if users:
        for name, split in splits.items():
            left[name] = np.intersect1d(rows, touching(keys, text_keys(split)))
            rows = np.setdiff1d(rows, left[name])
    carving = {} if seed is None else task.carving
    for name, how in carving.items():
        part = whole.take(rows)
        seed_of_split = seed + 1 if name == "test" else seed
        carved, kept = carve(
            part, how, seed_of_split, take_keys(keys, rows), take_keys(near, rows), benchmark=not users
        )
        if not len(carved) or not len(kept):
            raise UserError(
                f"{task.name}: {len(rows)} rows are too few to split {name} off train without a leak"
                + _why_left(whole, left, np.arange(len(whole)))
            )
        splits[name], left[name] = part.take(carved), np.delete(rows, np.union1d(carved, kept))
        rows = rows[kept]
    if not len(rows):
        raise UserError(f"{task.name}: every row of train overlaps validation or test; none is left to train on")
    train = whole.take(rows)
    left_out = []
    if len(before):
        left_out = np.flatnonzero((before > 0) & (task.kind.counts(train.labels, task) == 0)).tolist()
        if np.count_nonzero(before) - len(left_out) < 2 and left_out:
            of_label = whole.labels == left_out[0] if task.kind.one_class else whole.labels[:, left_out[0]] == 1
            raise UserError(
                f"{task.name}: no row of label {task.values[left_out[0]]!r} is left in train besides validation and "
                f"test{_why_left(whole, left, np.flatnonzero(of_label))}; "
                "add rows of this label, or give validation and test as files"
            )
        splits = {name: _without_labels(split, task, left_out) for name, split in splits.items()}
        if empty := [name for name, split in splits.items() if not len(split)]:
            raise UserError(f"{task.name}: {empty[0]} has only rows of labels that are too rare to be learned")
    dropped = {reason: len(removed) for reason, removed in left.items()}
    return {"train": train, **splits}, dropped, {task.labels[label]: int(before[label]) for label in left_out}


def _without_labels(split: Split, task: Task, labels: Sequence[int]) -> Split:
    """Return the rows of a split without some labels; rows that have no other label are left out."""
    if not len(labels):
        return split
    if task.kind.one_class:
        return split.take(np.flatnonzero(~np.isin(split.labels, labels)))
    others = np.delete(split.labels, labels, axis=1)
    kept = split.take(np.flatnonzero(~(split.labels[:, labels] == 1).any(1) | (others == 1).any(1)))
    values = kept.labels.copy()
    values[:, labels] = np.where(np.isnan(values[:, labels]), np.nan, 0)  # unknown labels stay so
    return dataclasses.replace(kept, labels=values)


def _why_left(whole: Split, left: dict[str, np.ndarray], rows: np.ndarray) -> str:
    """Return how many of these rows left train for each reason, with an example; "" if none did."""
    reasons = []
    for reason, removed in left.items():
        removed = np.intersect1d(removed, rows)
        if len(removed):
            of = "repeat other rows" if reason == "repeated" else f"are texts of {reason} or parts of them"
            reasons.append(f"{len(removed)} {of}, for example {whole.sentence1[removed[0]][:80]!r}")
    return f" ({'; '.join(reasons)})" if reasons else ""


def _append_file(first: Split, second: Split) -> Split:
    """Return the rows of two files; source rows of the second continue those of the first."""
    later = second.source_rows + first.source_rows.max() + 1
    return concatenate(first, dataclasses.replace(second, source_rows=later))


def source_files(source: Source, data_dir: Path | None, paths: Workspace) -> dict[str, Path]:
    """Return local paths of a task's files, fetched or unpacked where needed. Raises UserError when one is missing."""
    if source.kind == "package":
        missing = f"the data package {source.package} is not installed"
        missing += f"; run: {source.install}" if source.install else ""
        root = package_folder(source.package or "", missing)
    elif data_dir is None:
        root = Path(source.folder) if source.kind == "files" else _fetched(source, None, paths)
    elif not data_dir.exists():
        raise UserError(f"--data-dir {data_dir}: no such folder")
    elif source.kind == "glue" and (data_dir / source.folder).is_dir():
        root = data_dir / source.folder
    elif source.kind == "glue" and any(data_dir.glob("*.zip")):
        root = _fetched(source, data_dir, paths)
    else:
        root = data_dir
    files = {split: root / name for split, name in source.files.items()}
    for path in files.values():
        regular_file(path, f"; {source.obtain}" if source.obtain else "")
    return files


def _fetched(source: Source, data_dir: Path | None, paths: Workspace) -> Path:
    """Return the folder, in the workspace, of files that are downloaded or unpacked from an archive.

    The archive is the user's own, or the official one. Raises UserError if there is none, or if it is damaged.
    """
    root = paths.downloads() / source.folder
    if data_dir is None and source.url and FILE in source.url:
        for name in source.files.values():
            fetch(source.url.replace(FILE, name), None, (root / name).parent)
        return root
    if not source.url or not source.sha256:
        raise UserError(f"give the files with --data-dir: {source.obtain or 'this task has no official address'}")
    if data_dir is None:
        archive = fetch(source.url, source.sha256, paths.downloads())
    else:
        archive = data_dir / source.url.rsplit("/", 1)[-1]
        if not archive.exists():
            archive = data_dir / f"{source.folder}.zip"
        if not archive.exists():
            raise UserError(f"{data_dir}: contains neither a folder {source.folder} nor {archive.name}")
    for name in source.files.values():
        unpack_member(archive, f"{source.folder}/{name}", root / name)
    return root
