"""Teachers whose logits come from files: of any model, or exported by another workspace."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic

from common.data.split import Split, file_name, load_split, read_split, rows_kind
from common.data.task_use import check_no_overlap
from common.data.tasks import Task
from common.errors import UserError
from common.reading import regular_file
from common.store.artifact import Artifact
from common.store.step import Context, Inputs, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.teachers.answers import read_answers
from common.teachers.logits import LOGITS_FILE, LogitsStep
from common.teachers.logits_file import is_logits_file, read_description, read_logits
from common.teachers.step import answers_of, teacher_facts
from common.training.models import read_config


class Imported(Step):
    """A teacher without files: a name for logits from elsewhere."""

    version: ClassVar[int] = 2

    name: str
    answers: dict[str, Any]
    """See `answers_of`; the task is the one whose models are scored."""
    sizes: dict[str, int] = {}
    """Number of its weights and bytes of its weights file, if the first file that was imported has them."""

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write nothing: the manifest is the teacher."""
        return {**teacher_facts(self.answers, "imported"), "imported": True, "sizes": self.sizes}


class ImportedLogits(LogitsStep):
    """The logits of a file."""

    rows: str
    """The split, or "augmented"."""
    file: Path = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the teacher, the rows and the file."""
        return {**super().inputs(paths), "file": Artifact.of_file(self.file)}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the logits. Raises UserError as `read_answers` and `read_logits` do."""
        logits = _logits(inputs["file"], self.task, read_split(inputs["rows"]), self.name)
        return self.write(logits, out, context)


def import_logits(paths: Workspace, task: Task, teacher: str, names: list[str], path: Path, force: bool) -> None:
    """Import a file as the logits of `teacher`, a new name or that of an imported teacher, over the named rows.

    Nothing is written unless the file has answers for all of them. Raises UserError as `read_answers` and `read_logits`
    do, and if `teacher` is a model that can be run.
    """
    store, alias = Store(paths.root), paths.model(task.models_task, teacher)
    known = read_config(alias) if alias.exists() else None
    if known and not known.imported:
        raise UserError(f"{teacher} is already a model of {task.name}; give the imported logits another --model-name")
    rows = list(map(file_name, names))
    description = read_description(path) if is_logits_file(path) else None
    if description:
        check_no_overlap(description.trained_on, task, paths)
    for name in rows:
        _logits(path, task, load_split(paths, task, name), name)
    context = Context(force=force, name=teacher)
    source = known if known and not force else description
    answers = {**answers_of(task), "task": task.models_task}
    step = Imported(name=teacher, answers=answers, sizes=source.sizes if source else {})
    store.make(step, context, alias=alias)
    for name in rows:
        step = ImportedLogits(task=task, teacher=teacher, name=name, rows=rows_kind(task, name), file=path)
        context = Context(force=force, name=f"{teacher} over {name}")
        store.make(step, context, alias=paths.logits(task.name, teacher, name), file=LOGITS_FILE, replace=True)


def _logits(path: Path, task: Task, rows: Split, name: str) -> np.ndarray:
    """Return a file's logits over some rows. name: the rows' name in messages."""
    if is_logits_file(path):
        return read_logits(path, task, rows, name)
    if task.kind.always_pairs:  # an answer alone does not say how probable the other words are
        raise UserError(f"{regular_file(path)}: logits of answers must be a file that --logits-to wrote")
    return read_answers(path, task, rows, name)
