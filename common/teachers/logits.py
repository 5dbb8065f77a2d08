"""A teacher's logits over some rows, as Parquet, one column for each output."""

import functools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic

from common.data.split import PROCESSED, Split, file_name, find_rows, read_split, read_table, rows_kind
from common.data.tasks import Task
from common.devices import Precision, best_precision, pick_device, pick_dtype
from common.errors import UserError
from common.installed import typed
from common.kinds.base import Kind
from common.kinds.ragged import from_lists, to_lists
from common.launch.launcher import Launcher
from common.launch.shards import PartFunction, map_parts
from common.progress import Advance
from common.stopping import at_once
from common.store.artifact import Artifact, artifact_at, find, points_to, read_manifest
from common.store.step import Context, Inputs, Step
from common.store.store import Store
from common.store.workspace import Workspace
from common.training.models import check_members, find_model, is_linear, read_config

LOGITS_FILE = "logits.parquet"
FOLDS = 4
"""Folds of train for the logits of linear teachers."""
_PRECISIONS: tuple[Precision, ...] = ("bf16", "fp32", "fp16")


def open_teacher(folder: Path, cpu: bool, precision: Precision) -> PartFunction:
    """Load the teacher in a model folder. Returns the function that runs it over a part of the rows."""
    from common.teachers.load import load_teacher  # loads PyTorch, which listings of scores do not need

    device = pick_device(cpu)
    teacher = load_teacher(folder, device, pick_dtype(precision, device))
    kind = read_config(folder).task_kind

    def logits(rows: Split, first: int, advance: Advance) -> pa.Table:
        return as_table(kind, teacher.logits(rows, advance))

    return logits


def as_table(kind: Kind, logits: np.ndarray) -> pa.Table:
    """Return a table with a column per output, of lists if logits are of words. logits: as the models of the kind."""
    dtype = pa.from_numpy_dtype(logits.dtype)
    if kind.by_word:
        known = ~np.isnan(logits[..., 0])
        columns = [to_lists(logits[..., i], known, dtype) for i in range(logits.shape[-1])]
    else:
        columns = [pa.array(column, dtype) for column in logits.T]
    return pa.table({f"logit_{i}": column for i, column in enumerate(columns)})


def from_table(kind: Kind, table: pa.Table) -> np.ndarray:
    """Return the logits in a table of `as_table`."""
    return np.stack([from_lists(column) if kind.by_word else column.to_numpy() for column in table.columns], -1)


class LogitsStep(Step):
    """Base of the steps that build logits over some rows."""

    task: Task = pydantic.Field(exclude=True)
    teacher: str = pydantic.Field(exclude=True)
    """Name of the teacher."""
    name: str = pydantic.Field(exclude=True)
    """Name of the rows."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the teacher and the rows."""
        folder, _ = find_model(paths, self.task, self.teacher)
        return {"teacher": artifact_at(folder), "rows": find_rows(paths, self.task, self.name)}

    def write(self, logits: np.ndarray, out: Path, context: Context) -> dict[str, Any]:
        """Write logits, as the models of the task's kind return them. Returns the facts."""
        pq.write_table(as_table(self.task.kind, logits), out / LOGITS_FILE, compression="zstd")
        return {"teacher": context.names["teacher"]}


class Logits(LogitsStep):
    """The logits of one teacher."""

    precision: Precision
    """Arithmetic of every worker, not `auto`: it changes the logits."""
    rows: str
    """The split, or "augmented"."""
    launcher: Any = pydantic.Field(exclude=True)

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Run the teacher over every part of the rows."""
        work = functools.partial(open_teacher, inputs["teacher"], context.cpu, self.precision)
        map_parts(inputs["rows"], out / LOGITS_FILE, work, self.launcher, context.name, context.work)
        return {"teacher": context.names["teacher"]}


class CrossFittedLogits(Logits):
    """A linear teacher's logits over train, each row's by a model of the rows of the other folds."""

    version: ClassVar[int] = 2
    folds: int

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Fit a model to each choice of all folds but one."""
        from common.teachers.linear import cross_fitted
        from common.teachers.load import load_teacher  # loads PyTorch, which listings of scores do not need

        device, seed = pick_device(context.cpu), read_config(inputs["teacher"]).seed
        teacher = load_teacher(inputs["teacher"], device, pick_dtype(self.precision, device))
        with at_once():
            logits = cross_fitted(self.task, read_split(inputs["rows"]), teacher.features, self.folds, seed)
        return self.write(logits, out, context)


class MeanLogits(LogitsStep):
    """The logits of an ensemble: the mean of its members'."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the ensemble, the rows, and the logits of every member."""
        inputs = super().inputs(paths)
        check_members(paths.model(self.task.models_task, inputs["teacher"].name))
        members = read_config(inputs["teacher"].path).members
        return {**inputs, **{f"logits {name}": find_logits(paths, self.task, name, self.name) for name in members}}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the mean."""
        files = [path for role, path in inputs.items() if role.startswith("logits ")]
        mean = np.mean([saved_logits(self.task, file) for file in files], axis=0, dtype=np.float32)
        return self.write(mean, out, context)


def generate(
    paths: Workspace,
    task: Task,
    teacher: str,
    rows: str,
    precision: Precision,
    launcher: Launcher,
    cpu: bool,
    force: bool,
    folds: int | None,
) -> Path:
    """Build a teacher's logits over some rows, for an ensemble after those of its members. Returns their file.

    The logits of an imported teacher must exist.
    rows: a name as given to --generate-loss; precision: auto selects that of existing logits, finished or not, or else
    the best of this machine, so that a file never has rows of two precisions; folds: for a linear teacher over train,
    number of parts of train, each of which gets the logits of a model of the other parts (unset: FOLDS). Raises
    UserError if teacher or rows are missing.
    """
    folder, config = find_model(paths, task, teacher)
    rows = file_name(rows)
    if config.imported:
        return find_logits(paths, task, config.name, rows).path
    for member in config.members:
        generate(paths, task, member, rows, precision, launcher, cpu, force, folds)
    store, alias = Store(paths.root), paths.logits(task.name, config.name, rows)
    if config.members:
        step: Step = MeanLogits(task=task, teacher=config.name, name=rows)
    else:
        step = Logits(
            task=task,
            teacher=teacher,
            name=rows,
            rows=rows_kind(task, rows),
            launcher=launcher,
            precision=precision,
        )
        if rows == "train" and is_linear(folder):
            step = CrossFittedLogits(**dict(step), folds=folds or FOLDS)
        if precision == "auto":
            precision = _saved_precision(store, step, alias) or best_precision(pick_device(cpu))
            step = step.model_copy(update={"precision": precision})
    context = Context(cpu, force, name=f"{config.name} over {rows}")
    return store.make(step, context, alias=alias, file=LOGITS_FILE, replace=True).path


def _saved_precision(store: Store, step: Logits, alias: Path) -> Precision | None:
    """Return the precision of the logits that the alias names, else of those in the store, else of unfinished ones."""
    inputs = step.inputs(store)
    keys = {name: step.model_copy(update={"precision": name}).key(inputs) for name in _PRECISIONS}
    named = [precision for precision, key in keys.items() if points_to(alias, key)]
    stored = [precision for precision, key in keys.items() if store.get(key)]
    unfinished = [precision for precision, key in keys.items() if store.is_unfinished(key)]
    return next(iter([*named, *stored, *unfinished]), None)


def find_logits(paths: Workspace, task: Task, teacher: str, rows: str) -> Artifact:
    """Return the logits of a teacher over some rows.

    Raises UserError, with the command, if they are missing, or belong to other rows or another teacher than the
    current.
    """
    file = paths.logits(task.name, teacher, rows)
    argument = PROCESSED if rows == "train" else rows
    folder = paths.model(task.models_task, teacher)
    command = f"{typed('preprocess')} --task {task.argument} --model-name {teacher} --generate-loss {argument}"
    if folder.exists() and read_config(folder).imported:
        command += " --logits-from FILE"
    logits = find(file, f"run: {command}")
    keys = read_manifest(file).inputs
    if keys["rows"] != find_rows(paths, task, rows).key:
        raise UserError(f"{file}: the rows changed after these logits were computed; run again: {command}")
    if folder.exists():
        if keys["teacher"] != artifact_at(folder).key:
            raise UserError(f"{file}: {teacher} changed after these logits were computed; run again: {command}")
        check_members(folder)
    return logits


def load_logits(paths: Workspace, task: Task, teacher: str, rows: str) -> np.ndarray:
    """Return the logits of a teacher over some rows, float32 [n, outputs].

    They are [n, words, outputs] for kinds with logits by word, NaN after a row's last word. Raises UserError as
    `find_logits` does.
    """
    return saved_logits(task, find_logits(paths, task, teacher, rows).path)


def saved_logits(task: Task, file: Path) -> np.ndarray:
    """Return the logits in an artifact's file, as `load_logits` does. Raises UserError if it is damaged."""
    return from_table(task.kind, read_table(file))
