"""Training rows of a student: the task's own, augmented ones, and a teacher's logits over both."""

import dataclasses

import numpy as np

from common.data.split import Split, find_rows, find_splits, load_split
from common.data.tasks import Task
from common.errors import UserError
from common.progress import say
from common.store.artifact import Artifact, artifact_at, read_manifest
from common.teachers.guided import draw_rows, with_answers
from common.teachers.logits import find_logits, load_logits
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
    teacher: str | None
    augmented: bool


def find_teacher(settings: DistillSettings, task: Task) -> str | None:
    """Return the name of the teacher to learn from; None if only labels are learned from."""
    if settings.alpha == 1 and settings.only_original_data:
        return None
    return settings.teacher or only_teacher(settings.paths, task)


def runnable_teacher(settings: DistillSettings, task: Task, flag: str, name: str | None = None) -> Artifact:
    """Return a teacher that can be run. flag: what it is needed for; name: None for the teacher to learn from.

    Raises UserError if there is none, or for a student or imported logits.
    """
    name = name or find_teacher(settings, task)
    if name is None:
        raise UserError(f"{flag} needs a teacher, but none is used when only labels are learned from")
    folder, config = find_model(settings.paths, task, name)
    if config.kind != "teacher":
        raise UserError(f"{flag}: {name} is not a teacher but a student")
    if config.imported:
        other = "; give the name of another teacher, vectors or random" if flag.startswith("--embedding-init") else ""
        raise UserError(f"{flag}: {name} was imported as logits, and has neither vocabulary nor layers{other}")
    return artifact_at(folder)


def learning_inputs(settings: DistillSettings, task: Task, guided: bool = True) -> dict[str, Artifact]:
    """Return the inputs of training: splits, augmented rows and, if a teacher is used, its logits.

    guided: whether a teacher may be used. Raises UserError, with the command to run, if an input is missing or out of
    date.
    """
    paths = settings.paths
    inputs = {"splits": find_splits(paths, task)}
    augmented = augmented_names(settings)
    inputs |= {f"rows {name}": find_rows(paths, task, name) for name in augmented}
    if guided and (teacher := find_teacher(settings, task)):
        inputs |= {f"logits {name}": find_logits(paths, task, teacher, name) for name in ("train", *augmented)}
    return inputs


def held_out_inputs(settings: DistillSettings, task: Task, teacher: str | None) -> dict[str, Artifact]:
    """Return the teacher's logits over the rows that select the checkpoint, if none of them has a label."""
    name = task.selection_split(settings.select_on)
    labelled = read_manifest(find_splits(settings.paths, task).path).facts["labelled"][name]
    if labelled or teacher is None:
        return {}
    return {f"logits {name}": find_logits(settings.paths, task, teacher, name)}


def augmented_names(settings: RowsSettings) -> tuple[str, ...]:
    """Return the names of the augmented rows to learn from, without duplicates."""
    return () if settings.only_original_data else tuple(dict.fromkeys(settings.augmented))


def own_rows(settings: DistillSettings, task: Task) -> Split:
    """Return the task's own rows to learn from: all of train, or the share that is drawn."""
    return draw_rows(settings.paths, task, (), settings.seed, settings.downsample_data)[0]


def distillation_text(settings: DistillSettings, task: Task) -> tuple[Split, dict[str, np.ndarray]]:
    """Return the rows to learn from, and their indices in the split "train" and in each set of augmented rows."""
    shares = settings.downsample_data, settings.bootstrap_data_ratio
    return draw_rows(settings.paths, task, augmented_names(settings), settings.seed, *shares)


def distillation_set(settings: DistillSettings, task: Task) -> DistillationSet:
    """Return training rows and, unless labels alone are asked for, the teacher's logits over them.

    Augmented rows are labelled by the teacher: a replaced word may have changed the meaning, and table B.1 of the
    thesis shows labels distributed in this way. So are rows without a label; if no teacher is used, they are left out.
    Raises UserError if nothing is left to learn from.
    """
    split, rows = distillation_text(settings, task)
    teacher = find_teacher(settings, task)
    if teacher is None:
        return DistillationSet(_labelled(split, task), None, None, False)
    split, logits = with_answers(settings.paths, task, teacher, split, rows)
    if settings.min_confidence:
        own = np.arange(len(split)) < len(rows["train"])
        sure = own | (task.kind.confidence(task, logits) >= settings.min_confidence)
        say(f"{int((~sure).sum()):,} of {int((~own).sum()):,} augmented rows left out by --min-confidence")
        split, logits = split.take(np.flatnonzero(sure)), logits[sure]
    return DistillationSet(split, logits, teacher, not settings.only_original_data)


def held_out_rows(settings: DistillSettings, task: Task, teacher: str | None) -> Split:
    """Return the rows that select the checkpoint: the labelled ones, or if none is, all with the teacher's labels."""
    name = task.selection_split(settings.select_on)
    split = load_split(settings.paths, task, name)
    if split.labelled.any():
        return split.take(np.flatnonzero(split.labelled))
    if teacher is None:
        raise UserError(f"{task.name}: {name} has no labels, and no teacher is used to label it")
    return split.with_choices(task, load_logits(settings.paths, task, teacher, name), split.labelled)


def _labelled(train: Split, task: Task) -> Split:
    rows = np.flatnonzero(train.labelled)
    if not len(rows):
        raise UserError(f"{task.name}: no row of train has a label; learn from a teacher (--alpha below 1)")
    if len(rows) < len(train):
        say(f"{len(train) - len(rows):,} rows without a label left out: no teacher is used")
    return train.take(rows)
