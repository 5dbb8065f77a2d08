"""Fine-tuning of a teacher on a task: the parts that do not depend on the library that trains it.

A backend is a module with `resolve` (the source of an --arch's weights) and `train` (fine-tune and save them).
"""

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pydantic

from common.data.split import Split, read_split
from common.data.task_use import check_no_overlap, check_trains
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.seeds import drawn
from common.store.artifact import Artifact
from common.store.step import Context, Inputs
from common.store.workspace import Workspace
from common.teachers.adopt import adopt
from common.teachers.ensemble import Ensemble
from common.teachers.fairseq import training as fairseq_training
from common.teachers.guided import draw_rows, held_out_inputs, learning_inputs, split_file, with_answers
from common.teachers.huggingface import training as huggingface_training
from common.teachers.linear import check_kind
from common.teachers.linear_step import Frozen, Linear
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
    encoder: str = pydantic.Field(exclude=True)
    """The encoder as a value of --arch, for the facts."""
    backend: ClassVar[ModuleType] = huggingface_training

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the encoder and the task's splits."""
        encoder = dataclasses.replace(encoder_at(self.source), name=self.encoder)
        selection = self.task.selection_split(self.training.select_on)
        return {"encoder": encoder, **held_out_inputs(paths, self.task, selection, None)}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Train the encoder and save its best weights; a stopped run continues."""
        task, source = self.task, str(inputs["encoder"])
        train, guide = self.learned_rows(inputs)
        held_out = _labelled(inputs, task, task.selection_split(self.training.select_on))
        trained = self.backend.train(self.training, self.seed, task, source, (train, held_out), out, context, **guide)
        return {
            **self.facts({*tasks_seen(source), task.name}, self.seed),
            "encoder": context.names["encoder"],
            "select_on": self.training.select_on,
            **trained,
        }

    def learned_rows(self, inputs: Inputs) -> tuple[Split, dict[str, Any]]:
        """Return the rows to learn from, and what else the backend's `train` takes."""
        train = _labelled(inputs, self.task, "train")
        return train.take(drawn(len(train), self.training.downsample_data, self.seed, "downsample")), {}


class FairseqFinetune(Finetune):
    """A RoBERTa fine-tuned by fairseq: a step with a version of its own."""

    version: ClassVar[int] = 5
    backend: ClassVar[ModuleType] = fairseq_training


class Assist(Finetune):
    """A teacher assistant: an encoder that learns another teacher's logits, the labels, or both.

    Source: Mirzadeh et al., 2020.
    """

    version: ClassVar[int] = 5

    guidance: GuidanceSettings
    teacher: str = pydantic.Field(exclude=True)
    """Its name."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return also the rows and their teacher's logits. Raises UserError, with the command, if one is missing."""
        augmented = [self.guidance.augmented] if self.guidance.augmented else []
        return super().inputs(paths) | learning_inputs(paths, self.task, augmented, self.teacher)

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Train as `Finetune` does, and add the teacher to the facts."""
        facts = super().run(inputs, out, context)
        return {**facts, "teacher": self.teacher, "augmented": self.guidance.augmented is not None}

    def learned_rows(self, inputs: Inputs) -> tuple[Split, dict[str, Any]]:
        """Return the rows of train, their augmented ones, and the teacher's logits over both.

        The label of an augmented or unlabelled row is the teacher's choice, as for students.
        """
        split, rows = draw_rows(inputs, self.seed, self.training.downsample_data)
        split, logits = with_answers(inputs, self.task, split, rows)
        return split, {"logits": logits, "guidance": self.guidance}


def finetune(settings: FinetuneSettings) -> Path:
    """Build a teacher. Returns its model folder; a finished one is reused, a stopped one continues."""
    task = load_task(settings.task)
    check_trains(task)
    if settings.as_is:
        return adopt(settings, task)
    if settings.ensemble:
        return Ensemble(task=task, members=settings.ensemble).make(settings)
    if settings.is_linear:
        check_kind(task)
        return Linear(task=task, seed=settings.seed).make(settings)
    if not task.kind.for_fairseq and is_fairseq(settings.arch):
        raise UserError(f"{task.name} is of kind {task.kind.name}: use a Hugging Face encoder, not fairseq's")
    if settings.max_updates is not None and not is_fairseq(settings.arch):
        raise UserError(f"--max-updates is for RoBERTa by fairseq; for {settings.arch}, use --max-epochs")
    check_no_overlap(tasks_seen(settings.arch), task, settings.paths)
    return step_of(settings).make(settings)


def step_of(settings: FinetuneSettings) -> TeacherStep:
    """Return the step that trains a teacher from an encoder. Raises UserError if the encoder is missing."""
    task = load_task(settings.task)
    source, arch = find_encoder(settings.arch, settings.paths.downloads())
    if settings.frozen:
        check_kind(task)
        return Frozen(
            task=task,
            arch=f"{arch}-frozen",
            seed=settings.seed,
            max_tokens=settings.max_tokens,
            precision=settings.arithmetic,
            source=source,
            encoder=settings.encoder,
        )
    step: type[Finetune] = FairseqFinetune if is_fairseq(settings.arch) else Finetune
    finetuned = step(
        task=task,
        arch=arch,
        seed=settings.seed,
        training=settings.part(TeacherTraining),
        source=source,
        encoder=settings.encoder,
    )
    if settings.teacher is None:
        return finetuned
    check_loss(task, settings.loss)
    return Assist(**dict(finetuned), guidance=settings.part(GuidanceSettings), teacher=settings.teacher)


def find_encoder(arch: str, downloads: Path) -> tuple[str, str]:
    """Return the source of an --arch's weights, fetched if needed, and its short name. Raises UserError."""
    backend = fairseq_training if is_fairseq(arch) else huggingface_training
    return backend.resolve(arch, downloads)


def _labelled(inputs: Inputs, task: Task, name: str) -> Split:
    """Return the rows of a split that have a label. Raises UserError when none has."""
    split = read_split(split_file(inputs, name))
    if not split.labelled.any():
        raise UserError(
            f"task {task.name}: no row of {name} has a label to fine-tune on; --as-is imports a fine-tuned one"
        )
    return split.labelled_rows()
