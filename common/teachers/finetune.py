"""Fine-tuning of a teacher on a task: the parts that do not depend on the library that trains it.

A backend is a module with `resolve` (the source of an --arch's weights) and `train` (fine-tune and save them).
"""

from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pydantic

from common.data.split import Split, find_rows, find_splits, load_split
from common.data.task_use import check_no_overlap, check_trains
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.seeds import drawn
from common.store.artifact import Artifact
from common.store.step import Context
from common.store.workspace import Workspace
from common.teachers.adopt import adopt
from common.teachers.ensemble import Ensemble
from common.teachers.fairseq import training as fairseq_training
from common.teachers.guided import draw_rows, with_answers
from common.teachers.huggingface import training as huggingface_training
from common.teachers.logits import find_logits
from common.teachers.settings import FinetuneSettings, GuidanceSettings, TeacherTraining, is_fairseq
from common.teachers.step import TeacherStep, encoder_at
from common.training.distillation_losses import check_loss
from common.training.models import tasks_seen


class Finetune(TeacherStep):
    """A teacher: an encoder fine-tuned on a task's labels."""

    version: ClassVar[int] = 3

    seed: int
    training: TeacherTraining
    source: str = pydantic.Field(exclude=True)
    """Folder or name of the encoder's weights."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the encoder and the task's splits."""
        return {"encoder": encoder_at(self.source), "splits": find_splits(paths, self.task)}

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Train the encoder and save its best weights; a stopped run continues."""
        settings, task = self.settings, self.task
        train, guide = self.learned_rows()
        held_out = _labelled(settings, task, task.selection_split(settings.select_on))
        trained = backend(settings.arch).train(settings, self.source, task, (train, held_out), out, context, **guide)
        about = {"encoder": settings.encoder, "select_on": settings.select_on}
        return {**self.facts(_trained_on(settings.arch, task, context.paths)), **about, **trained}

    def learned_rows(self) -> tuple[Split, dict[str, np.ndarray]]:
        """Return the rows to learn from, and another teacher's logits over them if there is one."""
        train = _labelled(self.settings, self.task, "train")
        return train.take(drawn(len(train), self.training.downsample_data, self.seed, "downsample")), {}


class FairseqFinetune(Finetune):
    """A RoBERTa fine-tuned by fairseq: a step with a version of its own."""

    version: ClassVar[int] = 4


class Assist(Finetune):
    """A teacher assistant: an encoder that learns another teacher's logits, the labels, or both.

    Source: Mirzadeh et al., 2020.
    """

    version: ClassVar[int] = 5

    guidance: GuidanceSettings

    @property
    def names(self) -> list[str]:
        """Names of the rows to learn from."""
        return ["train", *([self.guidance.augmented] if self.guidance.augmented else [])]

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return also the rows and their teacher's logits. Raises UserError, with the command, if one is missing."""
        task, teacher = self.task, str(self.settings.teacher)
        inputs = {f"rows {name}": find_rows(paths, task, name) for name in self.names}
        return {
            **super().inputs(paths),
            **inputs,
            **{f"logits {name}": find_logits(paths, task, teacher, name) for name in self.names},
        }

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Train as `Finetune` does, and add the teacher to the facts."""
        facts = super().run(inputs, out, context)
        return {**facts, "teacher": self.settings.teacher, "augmented": self.guidance.augmented is not None}

    def learned_rows(self) -> tuple[Split, dict[str, np.ndarray]]:
        """Return the rows of train, their augmented ones, and the teacher's logits over both.

        The label of an augmented or unlabelled row is the teacher's choice, as for students.
        """
        paths, task = self.settings.paths, self.task
        rows = draw_rows(paths, task, self.names[1:], self.seed, self.training.downsample_data)
        split, logits = with_answers(paths, task, str(self.settings.teacher), *rows)
        return split, {"logits": logits}


def finetune(settings: FinetuneSettings) -> Path:
    """Build a teacher. Returns its model folder; a finished one is reused, a stopped one continues."""
    task = load_task(settings.task)
    check_trains(task)
    if settings.as_is:
        return adopt(settings, task)
    if settings.ensemble:
        return Ensemble(task=task, settings=settings, arch="ensemble").make(settings.ensemble_name)
    if not task.kind.for_fairseq and is_fairseq(settings.arch):
        raise UserError(f"{task.name} is of kind {task.kind.name}: use a Hugging Face encoder, not fairseq's")
    source, arch = backend(settings.arch).resolve(settings.arch, settings.paths.downloads())
    _trained_on(settings.arch, task, settings.paths)
    about = {"task": task, "settings": settings, "arch": arch, "seed": settings.seed, "source": source}
    about["training"] = settings.part(TeacherTraining)
    if settings.teacher is None:
        step = FairseqFinetune if is_fairseq(settings.arch) else Finetune
        return step(**about).make(settings.model_name or arch)
    check_loss(task, settings.loss)
    return Assist(**about, guidance=settings.part(GuidanceSettings)).make(settings.model_name or arch)


def backend(arch: str) -> ModuleType:
    """Return the backend of an --arch."""
    return fairseq_training if is_fairseq(arch) else huggingface_training


def _labelled(settings: FinetuneSettings, task: Task, name: str) -> Split:
    """Return the rows of a split that have a label. Raises UserError when none has."""
    split = load_split(settings.paths, task, name)
    if not split.labelled.any():
        raise UserError(
            f"task {task.name}: no row of {name} has a label to fine-tune on; --as-is imports a fine-tuned one"
        )
    return split.take(np.flatnonzero(split.labelled))


def _trained_on(arch: str, task: Task, paths: Workspace) -> tuple[str, ...]:
    """Return every task the encoder was trained on so far, and this one. Raises UserError for overlapping tasks."""
    before = tasks_seen(arch)
    check_no_overlap(before, task, paths)
    return tuple(sorted({*before, task.name}))
