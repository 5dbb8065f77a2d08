"""Taking an already fine-tuned classifier as a task's teacher, as it is: for text that has no labels to train on."""

import contextlib
import dataclasses
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from common.data.tasks import Task, check_no_overlap, check_trains, load_task
from common.data.text import normalise
from common.errors import UserError
from common.store.workspace import file_fingerprint, fingerprint
from common.teachers.base import is_fairseq
from common.teachers.huggingface.tagger import teacher_class
from common.teachers.huggingface.teacher import quiet_transformers, resolve
from common.teachers.load import teacher_fingerprint
from common.teachers.settings import FinetuneSettings
from common.teachers.untrained import save_untrained
from common.training.models import SUBFOLDERS, ModelConfig, read_config

_LABELLED = ("texts", "words")


@dataclasses.dataclass(frozen=True)
class _Found:
    """A classifier to adopt, checked: what it is, and a function that writes its files below a model folder."""

    name: str
    arch: str
    trained_on: tuple[str, ...]
    max_tokens: int
    weights: str
    """Fingerprint of its files."""
    write: Callable[[Path], None]


def adopt(settings: FinetuneSettings) -> Path:
    """Save --arch as the task's teacher without training it. Returns its model folder; a finished one is reused.

    --arch is a teacher of ours, by folder or as TASK/NAME in the workspace, or a Hugging Face classifier by folder or
    name. Raises UserError when it has no trained head, or not the task's labels in their order.
    """
    task = load_task(settings.task)
    check_trains(task)
    ours = _folder_of_ours(settings)
    found = _ours(settings, task, ours) if ours else _hugging_face(settings, task)
    config = ModelConfig(
        name=settings.model_name or found.name,
        kind="teacher",
        stage="teacher",
        task=task.name,
        labels=task.labels,
        pair=task.pair,
        tokens=task.tokens,
        arch=found.arch,
        seed=settings.seed,
        trained_on=found.trained_on,
        settings={"as_is": True, "arch": settings.arch, "max_tokens": found.max_tokens},
        fingerprint=fingerprint(["as is", found.weights, task.labels, found.max_tokens]),
    )
    return save_untrained(settings, config, found.write)


def _folder_of_ours(settings: FinetuneSettings) -> Path | None:
    """The model folder of ours that --arch means, by path or as TASK/NAME in the workspace; None if it means none."""
    for folder in (Path(settings.arch), settings.paths.root / "models" / settings.arch):
        # A folder of Hugging Face's has a config.json too, with other fields.
        with contextlib.suppress(UserError):
            read_config(folder)
            return folder
    return None


def _ours(settings: FinetuneSettings, task: Task, folder: Path) -> _Found:
    """A teacher of ours, of whatever backend. Raises UserError when it does not fit the task."""
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

    def write(partial: Path) -> None:
        for name in SUBFOLDERS:
            if (folder / name).is_dir():
                shutil.copytree(folder / name, partial / name)

    tokens = config.settings["max_tokens"]
    return _Found(config.name, config.arch, config.trained_on, tokens, teacher_fingerprint(folder), write)


def _hugging_face(settings: FinetuneSettings, task: Task) -> _Found:
    """A classifier from Hugging Face. Raises UserError when it cannot be loaded, or does not fit the task."""
    if is_fairseq(settings.arch):
        raise UserError(f"--as-is: {settings.arch} is a RoBERTa for fairseq: fine-tune it first, then adopt the result")
    source, name = resolve(settings.arch)
    _check_classifier(settings.arch, source, task)
    files = sorted(path for path in Path(source).glob("*") if path.is_file())

    def write(partial: Path) -> None:
        cpu = torch.device("cpu")
        kind = teacher_class(task.tokens)
        kind(source, task.labels, task.outputs, cpu, torch.float32, settings.max_tokens).save(partial)

    weights = fingerprint([file_fingerprint(path) for path in files] or source)
    return _Found(name, name, (), settings.max_tokens, weights, write)


def _check_classifier(arch: str, source: str, task: Task) -> None:
    """Check a Hugging Face model: that its head was trained, and for these labels. Raises UserError."""
    transformers = quiet_transformers()
    try:
        head = getattr(transformers, teacher_class(task.tokens).head)
        model, loaded = head.from_pretrained(source, output_loading_info=True)
    except Exception as error:  # transformers raises OSError, ValueError, SafetensorError and more for bad folders
        raise UserError(
            f"--as-is: {arch} is no folder, no TASK/NAME of a teacher in the workspace, and Hugging Face's library "
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
