"""What a student learns from: the task's rows, augmented ones, and a teacher's logits over both."""

import dataclasses

import numpy as np

from common.data.ragged import joined
from common.data.rows import find_rows, load_rows
from common.data.split import Split, find_splits, load_split
from common.data.tasks import Task
from common.errors import UserError
from common.progress import say
from common.seeds import drawn
from common.store.artifact import Artifact, read_manifest
from common.teachers.logits import find_logits, load_logits
from common.training.targets import choices
from compression.augmentation.preprocess import only_teacher
from compression.distillation.settings import DistillSettings


@dataclasses.dataclass
class DistillationSet:
    """Rows to learn from. logits: float32 [n, outputs] (of tokens [n, words, outputs]), or None without a teacher."""

    split: Split
    logits: np.ndarray | None
    teacher: str | None
    augmented: bool


def learning_inputs(settings: DistillSettings, task: Task, guided: bool = True) -> dict[str, Artifact]:
    """Return the artifacts that training reads: splits, augmented rows, and the teacher's logits where it takes part.

    guided: whether a teacher's logits may be learned from at all. Raises UserError, with the command, for one that is
    missing or out of date.
    """
    paths = settings.paths
    inputs = {"splits": find_splits(paths, task)}
    augmented = () if settings.only_original_data else (settings.augmented,)
    if augmented:
        inputs["augmented"] = find_rows(paths, task, settings.augmented)
    if guided and (settings.alpha < 1 or augmented):
        teacher = settings.teacher or only_teacher(paths, task)
        inputs |= {f"logits {name}": find_logits(paths, task, teacher, name) for name in ("train", *augmented)}
        inputs |= held_out_inputs(settings, task, teacher)
    return inputs


def held_out_inputs(settings: DistillSettings, task: Task, teacher: str | None) -> dict[str, Artifact]:
    """Return the teacher's logits over the rows that choose a checkpoint, where none of these has a label."""
    name = task.selection_split(settings.select_on)
    labelled = read_manifest(find_splits(settings.paths, task).path).facts["labelled"][name]
    if labelled or teacher is None:
        return {}
    return {f"logits {name}": find_logits(settings.paths, task, teacher, name)}


def distillation_set(settings: DistillSettings, task: Task) -> DistillationSet:
    """Training rows and, unless labels alone are asked for, the teacher's logits over them.

    An augmented row's label is the teacher's own choice: a replaced word may have turned the sentence, and table B.1 of
    the thesis shows labels so distributed. So is that of a row that came without one; where no teacher takes part such
    rows are left out. Raises UserError when nothing is left to learn from.
    """
    train = load_split(settings.paths, task, "train")
    kept = drawn(len(train), settings.downsample_data, settings.seed, "downsample")
    if settings.alpha == 1 and settings.only_original_data:
        return DistillationSet(_labelled(train.take(kept), task), None, None, False)
    teacher = settings.teacher or only_teacher(settings.paths, task)
    logits = load_logits(settings.paths, task, teacher, "train")[kept]
    own = with_choices(task, train.take(kept), logits)
    if settings.only_original_data:
        return DistillationSet(own, logits, teacher, False)
    more = load_rows(settings.paths, task, settings.augmented)
    more_logits = load_logits(settings.paths, task, teacher, settings.augmented)
    chosen = _of_kept(settings, more, kept)
    more_logits = more_logits[chosen]
    more = dataclasses.replace(more.take(chosen), labels=choices(task, more_logits))
    return DistillationSet(_joined(own, more), joined([logits, more_logits]), teacher, True)


def distillation_text(settings: DistillSettings, task: Task) -> Split:
    """The rows of `distillation_set` for a guide that is asked on the spot: no teacher takes part, nor do labels."""
    train = load_split(settings.paths, task, "train")
    kept = drawn(len(train), settings.downsample_data, settings.seed, "downsample")
    own = train.take(kept)
    if settings.only_original_data:
        return own
    more = load_rows(settings.paths, task, settings.augmented)
    return _joined(own, more.take(_of_kept(settings, more, kept)))


def _of_kept(settings: DistillSettings, more: Split, kept: np.ndarray) -> np.ndarray:
    """Numbers of the augmented rows to learn from: a share of those made of the rows that are kept."""
    of_kept = np.flatnonzero(np.isin(more.source_rows, kept))
    return of_kept[drawn(len(of_kept), settings.bootstrap_data_ratio, settings.seed, "bootstrap")]


def _joined(own: Split, more: Split) -> Split:
    return Split(
        own.sentence1 + more.sentence1,
        None if own.sentence2 is None or more.sentence2 is None else own.sentence2 + more.sentence2,
        joined([own.labels, more.labels]),
        np.concatenate([own.source_rows, more.source_rows]),
    )


def held_out_rows(settings: DistillSettings, task: Task, teacher: str | None) -> Split:
    """The rows that choose a checkpoint: labelled ones, or, where none has a label, all with the teacher's choices."""
    name = task.selection_split(settings.select_on)
    split = load_split(settings.paths, task, name)
    if split.labelled.any():
        return split.take(np.flatnonzero(split.labelled))
    if teacher is None:
        raise UserError(f"{task.name}: {name} has no labels, and no teacher takes part to judge by")
    return with_choices(task, split, load_logits(settings.paths, task, teacher, name))


def with_choices(task: Task, split: Split, logits: np.ndarray) -> Split:
    """The split with the teacher's choice where a row has no label. logits: float32 [n, outputs]."""
    if split.labelled.all():
        return split
    return dataclasses.replace(split, labels=np.where(split.labelled, split.labels, choices(task, logits)))


def _labelled(train: Split, task: Task) -> Split:
    rows = np.flatnonzero(train.labelled)
    if not len(rows):
        raise UserError(f"{task.name}: no row of train has a label; learn from a teacher (--alpha below 1)")
    if len(rows) < len(train):
        say(f"{len(train) - len(rows):,} rows without a label left out: no teacher takes part")
    return train.take(rows)
