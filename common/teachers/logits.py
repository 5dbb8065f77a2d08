"""A teacher's logits over a split, made once, kept as Parquet, and never used for other text or another teacher."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa

from common.data import Split, file_text_fingerprint, read_metadata, read_table
from common.errors import UserError
from common.launch import Launcher
from common.models import SUBFOLDERS, weights_file
from common.progress import Advance
from common.seeds import seed_everything
from common.shards import PartFunction, map_parts
from common.tasks import Task
from common.teachers.settings import Precision
from common.workspace import Workspace, file_fingerprint, fingerprint


@dataclasses.dataclass(frozen=True)
class LogitsWork:
    """Running a teacher over parts of a split."""

    teacher: Path
    """Its model folder."""
    cpu: bool
    precision: Precision
    seed: int

    def open(self) -> PartFunction:
        """Load the teacher."""
        from common.devices import pick_device, pick_dtype
        from common.teachers import load_teacher

        device = pick_device(self.cpu)
        seed_everything(self.seed)
        teacher = load_teacher(self.teacher, device, pick_dtype(self.precision, device))

        def logits(rows: Split, first: int, advance: Advance) -> pa.Table:
            values = teacher.logits(rows, advance)
            return pa.table({f"logit_{i}": pa.array(values[:, i], pa.float32()) for i in range(values.shape[1])})

        return logits


def teacher_fingerprint(folder: Path) -> str:
    """Identity of a teacher's weights and tokenizer files."""
    files = sorted(path for name in SUBFOLDERS for path in (folder / name).glob("*") if path.is_file())
    return fingerprint([(path.name, file_fingerprint(path)) for path in files or [weights_file(folder)]])


def generate(
    paths: Workspace, task: Task, split_name: str, source: Path, work: LogitsWork, launcher: Launcher, force: bool
) -> Path:
    """Write the logits of a teacher over the split file `source`; a finished file is reused, a stopped one goes on."""
    name = work.teacher.name
    target = paths.logits(task.name, name, split_name)
    identity = {"text": file_text_fingerprint(source), "teacher": teacher_fingerprint(work.teacher)}
    map_parts(source, target, work, identity, launcher, f"{name} over {split_name}", force)
    return target


def load_logits(paths: Workspace, task: Task, name: str, split_name: str, split: Split) -> np.ndarray:
    """Logits float32 [n, outputs] of teacher `name` over `split`.

    Raises UserError when they are missing, or stale: made for other text, or by a teacher since replaced.
    """
    target = paths.logits(task.name, name, split_name)
    command = f"python preprocess.py --task {task.argument} --model-name {name} --generate-loss {_argument(split_name)}"
    table = read_table(target, f"run: {command}")
    metadata = read_metadata(target)
    folder = paths.model(task.models_task, name)
    if metadata.get("text") != split.text_fingerprint():
        raise UserError(f"{target}: made for other text than is there now; run again: {command}")
    if folder.exists() and metadata.get("teacher") != teacher_fingerprint(folder):
        raise UserError(f"{target}: made by another teacher than {name} is now; run again: {command}")
    return np.stack([table[column].to_numpy() for column in table.column_names], 1)


def _argument(split_name: str) -> str:
    return "processed" if split_name == "train" else split_name
