"""Taking an already fine-tuned classifier as a task's teacher, as it is: for text that has no labels to train on."""

import contextlib
import re
import shutil
from pathlib import Path
from typing import Any

import pydantic
import torch

from common.data.tasks import Task, check_no_overlap, check_trains, load_task
from common.data.text import normalise
from common.errors import UserError
from common.store.artifact import Artifact
from common.store.step import Context, Step
from common.store.workspace import Workspace
from common.teachers.base import is_fairseq
from common.teachers.huggingface.tagger import teacher_class
from common.teachers.huggingface.teacher import quiet_transformers, resolve
from common.teachers.saving import encoder_at, save_teacher, teacher_facts
from common.teachers.settings import FinetuneSettings
from common.training.models import SUBFOLDERS, read_config

_LABELLED = ("texts", "words")


class Adopt(Step):
    """A teacher that is taken as it is, from Hugging Face or from another task."""

    labels: tuple[str, ...]
    max_tokens: int
    task: Task = pydantic.Field(exclude=True)
    source: str = pydantic.Field(exclude=True)
    """Folder of a model of ours, or folder or name of a Hugging Face classifier."""
    ours: bool = pydantic.Field(exclude=True)
    arch: str = pydantic.Field(exclude=True)
    seed: int = pydantic.Field(exclude=True)
    trained_on: tuple[str, ...] = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the classifier."""
        return {"classifier": encoder_at(self.source)}

    def run(self, inputs: dict[str, Artifact], out: Path, context: Context) -> dict[str, Any]:
        """Copy a model of ours, or save a Hugging Face classifier with the task's labels."""
        if self.ours:
            for name in SUBFOLDERS:
                if (Path(self.source) / name).is_dir():
                    shutil.copytree(Path(self.source) / name, out / name)
        else:
            kind, cpu = teacher_class(self.task.tokens), torch.device("cpu")
            kind(self.source, self.task.labels, self.task.outputs, cpu, torch.float32, self.max_tokens).save(out)
        return teacher_facts(self.task, self.arch, self.seed, self.trained_on)


def adopt(settings: FinetuneSettings) -> Path:
    """Build the task's teacher from --arch without training it. Returns its model folder; a finished one is reused.

    --arch is a teacher of ours, by folder or as TASK/NAME in the workspace, or a Hugging Face classifier by folder or
    name. Raises UserError when it has no trained head, or not the task's labels in their order.
    """
    task = load_task(settings.task)
    check_trains(task)
    ours = _folder_of_ours(settings)
    name, step = _ours(settings, task, ours) if ours else _hugging_face(settings, task)
    return save_teacher(settings, step, task, settings.model_name or name)


def _folder_of_ours(settings: FinetuneSettings) -> Path | None:
    """The model folder of ours that --arch means, by path or as TASK/NAME in the workspace; None if it means none."""
    for folder in (Path(settings.arch), settings.paths.root / "models" / settings.arch):
        with contextlib.suppress(UserError):
            read_config(folder)
            return folder
    return None


def _ours(settings: FinetuneSettings, task: Task, folder: Path) -> tuple[str, Adopt]:
    """Return the name of a teacher of ours and the step that adopts it. Raises UserError when it does not fit."""
    config = read_config(folder)
    check_no_overlap(list(config.trained_on), task.name)
    if config.kind != "teacher":
        raise UserError(f"--as-is: {settings.arch} is a student; a task is taught by a teacher")
    if config.members:
        raise UserError(f"--as-is: {settings.arch} is an ensemble; adopt its members, then --ensemble them")
    if config.tokens != task.tokens:
        raise UserError(
            f"--as-is: {settings.arch} labels {_LABELLED[config.tokens]}, {task.name} {_LABELLED[task.tokens]}"
        )
    if config.pair != task.pair:
        kinds = ("single sentences", "pairs of sentences")
        raise UserError(f"--as-is: {settings.arch} reads {kinds[config.pair]}, {task.name} has {kinds[task.pair]}")
    _check_labels(settings.arch, config.outputs, list(config.labels), task)

    return config.name, Adopt(
        labels=task.labels,
        max_tokens=config.settings["max_tokens"],
        task=task,
        source=str(folder),
        ours=True,
        arch=config.arch,
        seed=settings.seed,
        trained_on=config.trained_on,
    )


def _hugging_face(settings: FinetuneSettings, task: Task) -> tuple[str, Adopt]:
    """Return the name of a Hugging Face classifier and the step that adopts it.

    Raises UserError when it cannot be loaded, or does not fit the task.
    """
    if is_fairseq(settings.arch):
        raise UserError(f"--as-is: {settings.arch} is a RoBERTa for fairseq: fine-tune it first, then adopt the result")
    source, name = resolve(settings.arch)
    _check_classifier(settings.arch, source, task)
    return name, Adopt(
        labels=task.labels,
        max_tokens=settings.max_tokens,
        task=task,
        source=source,
        ours=False,
        arch=name,
        seed=settings.seed,
        trained_on=(),
    )


def _check_classifier(arch: str, source: str, task: Task) -> None:
    """Check a Hugging Face model: that its head was trained, and for these labels. Raises UserError."""
    transformers = quiet_transformers()
    try:
        head = getattr(transformers, teacher_class(task.tokens).head)
        model, loaded = head.from_pretrained(source, output_loading_info=True)
    except Exception as error:  # transformers raises OSError, ValueError, SafetensorError and more for bad folders
        raise UserError(
            f"--as-is: {arch} is neither a folder nor TASK/NAME of a teacher in the workspace, and Hugging Face's library "
            f"cannot load it: {str(error).splitlines()[0]}"
        ) from error
    if loaded["missing_keys"]:
        missing = min(loaded["missing_keys"])
        raise UserError(
            f"--as-is: {arch} has no trained classification head ({missing} is missing): fine-tune it first"
        )
    kinds = [kind for kind in model.config.architectures or [] if kind.endswith("Classification")]
    if kinds and (kinds[0].endswith("TokenClassification")) != task.tokens:
        raise UserError(f"--as-is: {arch} labels {_LABELLED[not task.tokens]}, {task.name} {_LABELLED[task.tokens]}")
    if task.regression:
        raise UserError(f"--as-is: {task.name} is a regression, and {arch} does not say what range its scores have")
    names = [str(model.config.id2label[i]) for i in range(model.config.num_labels)]
    generic = all(re.fullmatch(r"LABEL_\d+", name) for name in names)
    _check_labels(arch, len(names), [] if generic else names, task)


def _check_labels(arch: str, outputs: int, names: list[str], task: Task) -> None:
    """Check that a head has the task's labels in their order, whatever their case; `names` is empty if unknown."""
    if outputs != task.outputs:
        raise UserError(f"--as-is: {arch} has {outputs} outputs, {task.name} needs {task.outputs}")
    theirs = [normalise(name).casefold() for name in names]
    own = {normalise(label).casefold(): label for label in task.labels}
    if not names or theirs == list(own):
        return
    if sorted(theirs) != sorted(own):
        raise UserError(
            f"--as-is: {arch} knows the labels {', '.join(names)}; {task.name} has {', '.join(task.labels)}"
        )
    too = ", and label_values in the same order" if task.label_values else ""
    order = ", ".join(own[name] for name in theirs)
    raise UserError(f"--as-is: {arch} has the labels in another order; write labels: [{order}]{too} in {task.argument}")
