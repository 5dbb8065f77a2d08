"""Adoption of an already fine-tuned classifier as a task's teacher, for text that has no labels to train on."""

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pydantic
import torch

from common.data.task_use import check_no_overlap
from common.data.tasks import Task
from common.data.text import normalise
from common.errors import UserError
from common.kinds.base import Kind
from common.kinds.registry import LABELS, MULTILABEL, TAGS
from common.store.artifact import MANIFEST, Artifact
from common.store.step import Context, Inputs
from common.store.workspace import Workspace
from common.teachers.huggingface.classes import teacher_class
from common.teachers.huggingface.pretrained import load_pretrained, resolve
from common.teachers.huggingface.teacher import MULTI_LABEL
from common.teachers.settings import FinetuneSettings, is_fairseq
from common.teachers.step import TeacherStep, answers_of, encoder_at
from common.training.models import SUBFOLDERS, ModelConfig, read_config


class Adopt(TeacherStep):
    """A teacher that is adopted without training, from Hugging Face or from another task."""

    version: ClassVar[int] = 3

    answers: dict[str, Any]
    """See `answers_of`: one classifier may be adopted for several tasks."""
    max_tokens: int
    source: str = pydantic.Field(exclude=True)
    """Folder of a teacher of a workspace, or folder or name of a Hugging Face classifier."""

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the classifier."""
        return {"classifier": encoder_at(self.source)}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Copy the teacher's files, or save a Hugging Face classifier with the task's labels."""
        source = inputs["classifier"]
        if (source / MANIFEST).exists():
            for name in SUBFOLDERS:
                if (source / name).is_dir():
                    shutil.copytree(source / name, out / name)
            return self.facts(read_config(source).trained_on)
        task, device = self.task, torch.device("cpu")
        teacher = teacher_class(task.kind)(source, task.kind, task.labels, device, torch.float32, self.max_tokens)
        teacher.save(out)
        return self.facts(())


def adopt(settings: FinetuneSettings, task: Task) -> Path:
    """Build the task's teacher from --arch without training it. Returns its model folder; a finished one is reused.

    --arch is a teacher of a workspace, by its folder or as TASK/NAME, or a Hugging Face classifier, by its folder or
    name. Raises UserError if it has no trained head, or if its labels or their order differ from the task's.
    """
    folder = _folder_of_ours(settings)
    task.kind.check_adoption(task, settings.arch, ours=folder is not None)
    if folder:
        config = read_config(folder)
        _check_ours(settings.arch, config, task, settings.paths)
        source, arch, max_tokens = str(folder), config.arch, config.settings["max_tokens"]
    elif is_fairseq(settings.arch):
        raise UserError(
            f"--as-is: {settings.arch} is a RoBERTa for fairseq: fine-tune it first, then import the result"
        )
    else:
        source, arch = _check_hugging_face(settings, task)
        max_tokens = settings.max_tokens
    step = Adopt(task=task, answers=answers_of(task), source=source, arch=arch, max_tokens=max_tokens)
    return step.make(settings)


def _folder_of_ours(settings: FinetuneSettings) -> Path | None:
    """Return the model folder that --arch names, by path or as TASK/NAME in the workspace; None if it names none."""
    for folder in (Path(settings.arch), settings.paths.root / "models" / settings.arch):
        with contextlib.suppress(UserError):
            read_config(folder)
            return folder
    return None


def _check_ours(arch: str, config: ModelConfig, task: Task, paths: Workspace) -> None:
    """Check that a model folder holds a teacher that fits the task. Raises UserError."""
    check_no_overlap(config.trained_on, task, paths)
    if config.kind != "teacher":
        raise UserError(f"--as-is: {arch} is a student, not a teacher")
    if config.imported:
        raise UserError(f"--as-is: {arch} was imported as logits: there is no model to import")
    if config.members:
        raise UserError(f"--as-is: {arch} is an ensemble; import its members, then combine them with --ensemble")
    if config.pair != task.pair:
        kinds = ("single sentences", "pairs of sentences")
        raise UserError(f"--as-is: {arch} reads {kinds[config.pair]}, {task.name} has {kinds[task.pair]}")
    _check_labels(arch, config.task_kind.labelled_things, config.outputs, config.labels, task)


def _check_hugging_face(settings: FinetuneSettings, task: Task) -> tuple[str, str]:
    """Check that the head of a Hugging Face model was trained, and for the task's labels.

    Returns its source and short name, as `resolve`. Raises UserError.
    """
    arch = settings.arch
    try:
        source, short_name = resolve(arch, settings.paths.downloads())
        _, model, missing = load_pretrained(source, teacher_class(task.kind).head)
    except UserError as error:
        if Path(arch).is_dir():
            raise
        raise UserError(
            f"--as-is: {arch} is neither a folder nor TASK/NAME of a teacher in the workspace, and {error}"
        ) from error
    if missing:
        raise UserError(
            f"--as-is: {arch} has no trained classification head ({missing[0]} is missing): fine-tune it first"
        )
    names = [str(model.config.id2label[i]) for i in range(model.config.num_labels)]
    generic = all(re.fullmatch(r"LABEL_\d+", name) for name in names)
    labelled = _kind_of_head(model.config, task.kind).labelled_things
    _check_labels(arch, labelled, len(names), [] if generic else names, task)
    return source, short_name


def _kind_of_head(config: Any, otherwise: Kind) -> Kind:
    """Return the kind of task that a Hugging Face model was fine-tuned for. otherwise: if config.json names no head."""
    if config.problem_type == MULTI_LABEL:
        return MULTILABEL
    for name in config.architectures or ():
        if name.endswith("Classification"):
            return TAGS if name.endswith("TokenClassification") else LABELS
    return TAGS if otherwise.by_word else LABELS


def _check_labels(arch: str, kind: str, outputs: int, names: Sequence[str], task: Task) -> None:
    """Check that a head has the task's labels in their order, ignoring case. Raises UserError.

    kind: what the head labels; names: its label names, empty if they are unknown.
    """
    if kind != task.kind.labelled_things:
        hint = f" (config.json has no problem_type {MULTI_LABEL})" if task.kind.independent and kind == "texts" else ""
        raise UserError(f"--as-is: {arch} labels {kind}, {task.name} {task.kind.labelled_things}{hint}")
    if outputs != task.outputs:
        raise UserError(f"--as-is: {arch} has {outputs} outputs, {task.name} needs {task.outputs}")
    theirs = [normalise(name).casefold() for name in names]
    expected = {normalise(label).casefold(): label for label in task.labels}
    if not names or theirs == list(expected):
        return
    if sorted(theirs) != sorted(expected):
        raise UserError(f"--as-is: {arch} has the labels {', '.join(names)}; {task.name} has {', '.join(task.labels)}")
    too = ", and label_values in the same order" if task.label_values else ""
    order = ", ".join(expected[name] for name in theirs)
    raise UserError(f"--as-is: {arch} has the labels in another order; write labels: [{order}]{too} in {task.argument}")
