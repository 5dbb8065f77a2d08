"""A teacher's logits over a split, made once, kept as Parquet, and never used for other text or another teacher."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data import Split, read_metadata, read_table
from common.errors import UserError
from common.models import SUBFOLDERS, weights_file
from common.progress import say
from common.tasks import Task
from common.teachers import Teacher
from common.workspace import Workspace, file_fingerprint, fingerprint, whole_file

SHARD_ROWS = 8192
"""Rows between two saves: what a kill can cost."""


def teacher_fingerprint(folder: Path) -> str:
    """Identity of a teacher's weights and tokenizer files."""
    files = sorted(path for name in SUBFOLDERS for path in (folder / name).glob("*") if path.is_file())
    return fingerprint([(path.name, file_fingerprint(path)) for path in files or [weights_file(folder)]])


def generate(
    paths: Workspace, task: Task, name: str, split_name: str, split: Split, teacher: Teacher, force: bool
) -> Path:
    """Write the logits of `split` by teacher `name`; a finished file is reused, a stopped one goes on."""
    target = paths.logits(task.name, name, split_name)
    identity = {"text": split.text_fingerprint(), "teacher": teacher_fingerprint(paths.model(task.name, name))}
    if not force and identity.items() <= read_metadata(target).items():
        say(f"logits of {name} over {split_name} are up to date")
        return target
    shards = target.with_name(f"{target.name}.shards")
    parts = []
    count = -(-len(split) // SHARD_ROWS)
    for i in range(count):
        shard = shards / f"{fingerprint(identity)}-{i:05d}.parquet"
        if force or not read_metadata(shard):
            rows = np.arange(i * SHARD_ROWS, min((i + 1) * SHARD_ROWS, len(split)))
            label = f"{name} over {split_name}" + (f", part {i + 1} of {count}" if count > 1 else "")
            _write(shard, teacher.logits(split.take(rows), label), {"part": str(i)})
        parts.append(pq.read_table(shard))
    table = pa.concat_tables(parts).replace_schema_metadata(identity)
    with whole_file(target) as partial:
        pq.write_table(table, partial, compression="zstd")
    shutil.rmtree(shards, ignore_errors=True)
    return target


def _write(path: Path, logits: np.ndarray, metadata: dict[str, str]) -> None:
    columns = {f"logit_{i}": pa.array(logits[:, i], pa.float32()) for i in range(logits.shape[1])}
    with whole_file(path) as partial:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), partial, compression="zstd")


def load_logits(paths: Workspace, task: Task, name: str, split_name: str, split: Split) -> np.ndarray:
    """Logits float32 [n, classes] of teacher `name` over `split`.

    Raises UserError when they are missing, or stale: made for other text, or by a teacher since replaced.
    """
    target = paths.logits(task.name, name, split_name)
    command = f"python preprocess.py --task {task.name} --model-name {name} --generate-loss {_argument(split_name)}"
    table = read_table(target, f"run: {command}")
    metadata = read_metadata(target)
    folder = paths.model(task.name, name)
    if metadata.get("text") != split.text_fingerprint():
        raise UserError(f"{target}: made for other text than is there now; run again: {command}")
    if folder.exists() and metadata.get("teacher") != teacher_fingerprint(folder):
        raise UserError(f"{target}: made by another teacher than {name} is now; run again: {command}")
    return np.stack([table[column].to_numpy() for column in table.column_names], 1)


def _argument(split_name: str) -> str:
    return "processed" if split_name == "train" else split_name
