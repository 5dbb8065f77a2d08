"""Fine-tuning a teacher on a task: what is the same whichever library trains it.

A backend is a module with `resolve` (the source of an --arch's weights) and `train` (fine-tune and save them).
"""

from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pydantic

from common.data.split import Split, find_splits, load_split
from common.data.tasks import Task, check_no_overlap, check_trains, load_task
from common.errors import UserError
from common.seeds import drawn
from common.store.artifact import MANIFEST, Artifact
from common.store.step import Context
from common.store.workspace import Workspace
from common.teachers.adopt import adopt
from common.teachers.ensemble import Ensemble
from common.teachers.fairseq import training as fairseq_training
from common.teachers.huggingface import training as huggingface_training
from common.teachers.settings import FinetuneSettings, TeacherTraining, is_fairseq
from common.teachers.step import TeacherStep, encoder_at
from common.training.models import SUBFOLDERS, read_config


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
        train, held_out = (
            _labelled(settings, task, name) for name in ("train", task.selection_split(settings.select_on))
        )
        train = train.take(drawn(len(train), settings.downsample_data, settings.seed, "downsample"))
        trained = backend(settings.arch).train(settings, self.source, task, (train, held_out), out, context)
        about = {"encoder": settings.encoder, "select_on": settings.select_on}
        return {**self.facts(_trained_on(settings.arch, task, context.paths)), **about, **trained}


def finetune(settings: FinetuneSettings) -> Path:
    """Build a teacher. Returns its model folder; a finished one is reused, a stopped one continues."""
    task = load_task(settings.task)
    check_trains(task)
    if settings.as_is:
        return adopt(settings, task)
    if settings.ensemble:
        return Ensemble(task=task, settings=settings, arch="ensemble").make(settings.ensemble_name)
    if (task.tokens or task.multilabel) and is_fairseq(settings.arch):
        has = "a label for every word" if task.tokens else "any number of labels for a text"
        raise UserError(f"{task.name} has {has}: take an encoder of Hugging Face's, not fairseq's")
    source, arch = backend(settings.arch).resolve(settings.arch, settings.paths.downloads())
    _trained_on(settings.arch, task, settings.paths)
    training = settings.part(TeacherTraining)
    step = Finetune(task=task, settings=settings, arch=arch, seed=settings.seed, training=training, source=source)
    return step.make(settings.model_name or arch)


def backend(arch: str) -> ModuleType:
    """Return the backend of an --arch."""
    return fairseq_training if is_fairseq(arch) else huggingface_training


def _labelled(settings: FinetuneSettings, task: Task, name: str) -> Split:
    """Return the rows of a split that have a label. Raises UserError when none has."""
    split = load_split(settings.paths, task, name)
    if not split.labelled.any():
        raise UserError(f"task {task.name}: no row of {name} has a label to fine-tune on; --as-is adopts a teacher")
    return split.take(np.flatnonzero(split.labelled))


def _trained_on(arch: str, task: Task, paths: Workspace) -> tuple[str, ...]:
    """Return every task the encoder was trained on so far, and this one. Raises UserError for overlapping tasks."""
    folder = Path(arch).parent if Path(arch).name in SUBFOLDERS else Path(arch)
    before = read_config(folder).trained_on if (folder / MANIFEST).exists() else ()
    check_no_overlap(before, task, paths)
    return tuple(sorted({*before, task.name}))
