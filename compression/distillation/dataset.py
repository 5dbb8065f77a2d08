"""Training rows of a student: the task's own, augmented ones, and a teacher's logits over both."""

import dataclasses
from pathlib import Path

import numpy as np

from common.data.split import Split, read_split
from common.data.tasks import Task
from common.errors import UserError
from common.progress import say
from common.store.step import Inputs
from common.store.workspace import Workspace
from common.teachers.guided import augmented_rows, draw_rows, split_file, with_answers
from common.teachers.logits import saved_logits
from common.training.models import find_model, only_teacher
from compression.distillation.settings import DistillSettings, RowsSettings


@dataclasses.dataclass
class DistillationSet:
    """Rows to learn from.

    logits: of the teacher, float32 [n, outputs], for words [n, words, outputs], for questions [n, 1 + words, 2]; None
    without a teacher.
    """

    split: Split
    logits: np.ndarray | None
    augmented: bool


def find_teacher(settings: DistillSettings, task: Task) -> str | None:
    """Return the name of the teacher to learn from; None if only labels are learned from."""
    if settings.labels_alone:
        return None
    return settings.teacher or only_teacher(settings.paths, task)


def runnable_teacher(paths: Workspace, task: Task, flag: str, name: str | None) -> Path:
    """Return the folder of a teacher that can be run. flag: what it is needed for; name: None if there is no teacher.

    Raises UserError if there is none, or for a student or imported logits.
    """
    if name is None:
        raise UserError(f"{flag} needs a teacher, but none is used when only labels are learned from")
    folder, config = find_model(paths, task, name)
    if config.kind != "teacher":
        raise UserError(f"{flag}: {name} is not a teacher but a student")
    if config.imported:
        other = "; give the name of another teacher, vectors or random" if flag.startswith("--embedding-init") else ""
        raise UserError(f"{flag}: {name} was imported as logits, and has neither vocabulary nor layers{other}")
    return folder


def distillation_text(
    inputs: Inputs, rows: RowsSettings, seed: int, validation: bool = False, augmented: bool = True
) -> tuple[Split, dict[str, np.ndarray]]:
    """Return the rows to learn from, and their indices, as `draw_rows` does.

    validation: whether to return validation's rows too; augmented: whether to return augmented rows too.
    """
    read = inputs if augmented else {"splits": inputs["splits"]}
    return draw_rows(read, seed, rows.downsample_data, rows.bootstrap_data_ratio, validation)


def distillation_set(
    inputs: Inputs, task: Task, rows: RowsSettings, seed: int, validation: bool = False
) -> DistillationSet:
    """Return training rows and, if they are among the inputs, the teacher's logits over them.

    The teacher labels augmented rows, since a replaced word may have changed the meaning (table B.1 of the thesis shows
    the distribution of such labels), and rows without a label. Without a teacher, rows without a label are left out.
    inputs, validation: those of `learning_inputs`. Raises UserError if nothing is left to learn from.
    """
    split, drawn = distillation_text(inputs, rows, seed, validation)
    if "logits train" not in inputs:
        return DistillationSet(_labelled(split, task), None, False)
    split, logits = with_answers(inputs, task, split, drawn)
    if rows.min_confidence:
        augmented = sum(len(drawn[name]) for name in augmented_rows(inputs))
        sure = task.kind.confidence(task, logits) >= rows.min_confidence
        sure[: len(split) - augmented] = True
        say(f"{int((~sure).sum()):,} of {augmented:,} augmented rows left out by --min-confidence")
        split, logits = split.take(np.flatnonzero(sure)), logits[sure]
    return DistillationSet(split, logits, bool(augmented_rows(inputs)))


def held_out_rows(inputs: Inputs, task: Task, name: str) -> Split:
    """Return a split's labelled rows or, if it has none, all of its rows with the teacher's labels.

    inputs: those of `held_out_inputs`. Raises UserError if there are neither labels nor a teacher's logits.
    """
    split = read_split(split_file(inputs, name))
    if split.labelled.any():
        return split.labelled_rows()
    if f"logits {name}" not in inputs:
        raise UserError(f"{task.name}: {name} has no labels, and no teacher is used to label it")
    return split.with_choices(task, saved_logits(task, inputs[f"logits {name}"]), split.labelled)


def _labelled(train: Split, task: Task) -> Split:
    labelled = train.labelled_rows()
    if not len(labelled):
        raise UserError(f"{task.name}: no row of train has a label; learn from a teacher (--alpha below 1)")
    if len(labelled) < len(train):
        say(f"{len(train) - len(labelled):,} rows without a label left out: no teacher is used")
    return labelled
