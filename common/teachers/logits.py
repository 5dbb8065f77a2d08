"""A teacher's logits over a split, made once, kept as Parquet, and never used for other text or another teacher."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data.ragged import from_lists, to_lists
from common.data.split import Split, file_text_fingerprint, read_metadata, read_table
from common.data.tasks import Task
from common.devices import Precision
from common.errors import UserError
from common.launch.launcher import Launcher
from common.launch.shards import PartFunction, map_parts
from common.progress import Advance
from common.seeds import seed_everything
from common.store.workspace import Workspace, whole_file
from common.teachers.load import load_teacher, teacher_fingerprint
from common.training.models import members_of


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

        device = pick_device(self.cpu)
        seed_everything(self.seed)
        teacher = load_teacher(self.teacher, device, pick_dtype(self.precision, device))

        def logits(rows: Split, first: int, advance: Advance) -> pa.Table:
            return _as_table(teacher.logits(rows, advance))

        return logits


def _as_table(logits: np.ndarray) -> pa.Table:
    """A column for each output; of tokens, of lists. logits: float32 [n, outputs] or [n, words, outputs]."""
    of_words = logits.ndim == 3
    columns = [logits[..., i] for i in range(logits.shape[-1])]
    arrays = [to_lists(each, pa.float32()) if of_words else pa.array(each, pa.float32()) for each in columns]
    return pa.table({f"logit_{i}": array for i, array in enumerate(arrays)})


def _from_table(table: pa.Table) -> np.ndarray:
    """The logits that `_as_table` made a table of."""
    of_words = pa.types.is_list(table.schema.field(0).type)
    return np.stack([from_lists(column) if of_words else column.to_numpy() for column in table.columns], -1)


def generate(
    paths: Workspace, task: Task, split_name: str, source: Path, work: LogitsWork, launcher: Launcher, force: bool
) -> Path:
    """Write the logits of a teacher over the split file `source`; a finished file is reused, a stopped one goes on.

    Those of an ensemble are the mean of its members' files, which are made first.
    """
    name = work.teacher.name
    target = paths.logits(task.name, name, split_name)
    identity = {"text": file_text_fingerprint(source), "teacher": teacher_fingerprint(work.teacher)}
    if members := members_of(work.teacher):
        works = [dataclasses.replace(work, teacher=member) for member in members]
        _write_mean([generate(paths, task, split_name, source, it, launcher, force) for it in works], target, identity)
        return target
    map_parts(source, target, work, identity, launcher, f"{name} over {split_name}", force)
    return target


def _write_mean(files: list[Path], target: Path, identity: dict[str, str]) -> None:
    mean = np.mean([_from_table(pq.read_table(file)) for file in files], axis=0, dtype=np.float32)
    with whole_file(target) as partial:
        pq.write_table(_as_table(mean).replace_schema_metadata(identity), partial, compression="zstd")


def load_logits(paths: Workspace, task: Task, name: str, split_name: str, split: Split) -> np.ndarray:
    """Logits float32 [n, outputs], of tokens [n, words, outputs], of teacher `name` over `split`.

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
    return _from_table(table)


def _argument(split_name: str) -> str:
    return "processed" if split_name == "train" else split_name
