"""Teachers whose logits come from files: of any model, or exported by another workspace."""

from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pydantic

from common.config import later
from common.data.split import file_name, is_augmented, load_split
from common.data.tasks import Task
from common.errors import UserError
from common.store.artifact import Artifact
from common.store.step import Context, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.answers import read_answers
from common.teachers.logits import LOGITS_FILE, LogitsStep, as_table
from common.teachers.logits_file import is_logits_file, read_logits, teacher_sizes
from common.teachers.step import answers_of
from common.training.models import read_config


class Imported(Step):
    """A teacher without files: a name for logits from elsewhere."""

    version: ClassVar[int] = 2

    name: str
    answers: dict[str, Any]
    """See `answers_of`; the task is the one whose models are scored."""
    sizes: dict[str, int] = later({})
    """Number of its weights and bytes of its weights file, if the first file that was imported has them."""

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write nothing: the manifest is the teacher."""
        return {
            "kind": "teacher",
            "stage": "teacher",
            **self.answers,
            "arch": "imported",
            "seed": 0,
            "imported": True,
            "sizes": self.sizes,
        }


class ImportedLogits(LogitsStep):
    """The logits of a file."""

    rows: str
    """The split, or "augmented"."""
    file: Path = pydantic.Field(exclude=True)
    values: Any = pydantic.Field(exclude=True)
    """Contents of the file, float32 [n, outputs] or [n, words, outputs]."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the teacher, the rows and the file."""
        return {**super().inputs(paths), "file": Artifact.of_file(self.file)}

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Write the logits."""
        pq.write_table(as_table(self.task.kind, self.values), out / LOGITS_FILE, compression="zstd")
        return {"teacher": self.names[0]}


def import_logits(
    paths: Workspace, task: Task, teacher: str, names: list[str], path: Path, force: bool = False
) -> None:
    """Import a file as the logits of `teacher`, a new name or that of an imported teacher, over the named rows.

    Nothing is written unless the file has answers for all of them. Raises UserError as `read_answers` and `read_logits`
    do, and if `teacher` is a model that can be run.
    """
    store, alias = Store(paths.root), paths.model(task.models_task, teacher)
    known = read_config(alias) if alias.exists() else None
    if known and not known.imported:
        raise UserError(f"{teacher} is already a model of {task.name}; give the imported logits another --model-name")
    rows = list(map(file_name, names))
    splits = [load_split(paths, task, name) for name in rows]
    if is_logits_file(path):
        logits = [read_logits(path, task, split, name, paths) for name, split in zip(rows, splits, strict=True)]
    else:
        logits = [read_answers(path, task, split, name) for name, split in zip(rows, splits, strict=True)]
    context = Context(paths, force=force, name=teacher)
    sizes = known.sizes if known and not force else teacher_sizes(path)
    about = Imported(name=teacher, answers={**answers_of(task), "task": task.models_task}, sizes=sizes)
    store.make(about, context, alias=alias)
    for name, values in zip(rows, logits, strict=True):
        kind = "augmented" if is_augmented(task, name) else name
        step = ImportedLogits(task=task, names=(teacher, name), rows=kind, file=path, values=values)
        context = Context(paths, force=force, name=f"{teacher} over {name}")
        store.make(step, context, alias=paths.logits(task.name, teacher, name), file=LOGITS_FILE, replace=True)
