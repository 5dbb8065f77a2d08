"""The actions of compress.py: a chain of actions, each of which saves a model that the next one loads."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.data.tasks import Task, check_trains, load_task
from common.errors import UserError
from common.progress import say
from common.seeds import seed_everything
from common.store.files import file_fingerprint, fingerprint
from common.store.locks import only_one
from common.training.models import ModelConfig, clear_training, find_model, is_finished, weights_file
from compression.distillation.distill import distill, own_settings
from compression.packing import write_packed
from compression.settings import ACTION_SETTINGS, TUNE_SETTINGS, CompressSettings
from compression.shrinking import factorize, prune, quantize
from compression.shrinking.context import CPU, CompressionContext
from compression.students.saved import load_student


@dataclasses.dataclass(frozen=True)
class Action:
    """Something that makes a saved student smaller."""

    stage: str
    """Stage of the models it makes."""
    suffix: Callable[[CompressSettings], str]
    """What it adds to a model's name."""
    told: set[str]
    """Settings that the suffix tells."""
    apply: Callable[[CompressionContext], dict[str, Any]]
    """Does it to a student. Returns what config.json is to say of it under `compression`."""


ACTIONS = {
    "factorize": Action("factorized", factorize.suffix, {"rank"}, factorize.apply),
    "prune": Action("pruned", prune.suffix, {"prune_movement", "prune_units", "prune_vocabulary"}, prune.apply),
    "quantize": Action("quantized", quantize.suffix, ACTION_SETTINGS["quantize"] | TUNE_SETTINGS, quantize.apply),
}


def compress(settings: CompressSettings) -> list[Path]:
    """Do the actions in order. Returns the folder of each model made; files made of the last one lie in its."""
    if "pretrain" in settings.compression_actions:
        return [_pretrain(settings)]
    task = load_task(settings.task)
    check_trains(task)
    if task.tokens and "export" in settings.compression_actions:
        raise UserError(
            f"{task.name}: a student that gives every word a label is not exported to ONNX; pack it instead"
        )
    folders: list[Path] = []
    name = settings.load_trained_model or ""
    actions = [action for action in settings.compression_actions if action not in FILES]
    for action in actions:
        if action == "distill":
            folders.append(distill(settings, prune.pruning_callback))
        else:
            own_name = settings.model_name if settings.load_trained_model and action == actions[-1] else None
            folders.append(_shrink(settings, action, name, own_name))
        name = folders[-1].name
    for action in settings.compression_actions:
        if action in FILES:
            folder, _ = _student(settings, name)
            path = FILES[action](folder)
            say(f"{action}: {path}, {path.stat().st_size:,} bytes")
            folders = folders or [folder]
    return folders


def _pretrain(settings: CompressSettings) -> Path:
    from compression.distillation.pretrain import pretrain  # Hugging Face's library, which others do not need

    return pretrain(settings)


def _export(folder: Path) -> Path:
    from compression.export.onnx_export import export_onnx  # an optional library

    return export_onnx(folder, folder / f"{folder.name}.onnx")


FILES: dict[str, Callable[[Path], Path]] = {"pack": write_packed, "export": _export}
"""Actions that make a file of a student, beside its weights."""


def _student(settings: CompressSettings, name: str) -> tuple[Path, ModelConfig]:
    folder, config = find_model(settings.paths, load_task(settings.task), name)
    if config.kind != "student":
        raise UserError(f"{config.name} is a teacher; only students are made smaller")
    return folder, config


def _shrink(settings: CompressSettings, action: str, parent_name: str, own_name: str | None) -> Path:
    """Do one action to a saved student and save the result beside it."""
    task = load_task(settings.task)
    parent_folder, parent = _student(settings, parent_name)
    used = _used(settings, action)
    read = [weights_file(parent_folder), *_data_read(settings, action, task.name, parent)]
    inputs = [file_fingerprint(path) for path in read]
    identity = fingerprint([action, used, settings.seed, parent.fingerprint, inputs])
    name = own_name or parent.name + _suffix(settings, action)
    folder = settings.paths.model(task.name, name)
    with only_one(folder, f"student {name}"):
        if is_finished(folder, identity, settings.force):
            say(f"student {name} is up to date")
        else:
            _make(settings, action, task, parent_folder, used, folder, identity)
    return folder


def _suffix(settings: CompressSettings, action: str) -> str:
    """What an action adds to a name: four digits of their hash stand for settings that it does not tell."""
    names = ACTION_SETTINGS[action] | (TUNE_SETTINGS if settings.tune_epochs else set())
    others = settings.model_dump(mode="json", include=names - ACTIONS[action].told, exclude_defaults=True)
    return ACTIONS[action].suffix(settings) + (f"-{fingerprint(others)[:4]}" if others else "")


def _used(settings: CompressSettings, action: str) -> dict[str, Any]:
    """The settings that decide what an action makes of a student: those of tuning and its rows only where it tunes."""
    names = set(ACTION_SETTINGS[action])
    if _counts_words(settings, action):
        names |= {"augmented", "only_original_data"}
    if settings.tune_epochs:
        names |= TUNE_SETTINGS | set(own_settings(settings))
    return settings.model_dump(mode="json", include=names)


def _counts_words(settings: CompressSettings, action: str) -> bool:
    """Whether an action hangs on how often training text, augmented rows among it, uses each word piece."""
    return action == "factorize" or (action == "prune" and settings.prune_vocabulary > 0)


def _data_read(settings: CompressSettings, action: str, task: str, parent: ModelConfig) -> list[Path]:
    """Files of data, of those that are there, that decide what an action makes of a student."""
    paths = settings.paths
    counts = _counts_words(settings, action)
    measures = {
        "prune": settings.prune_units > 0,
        "quantize": settings.ptq_classifier or settings.max_bytes is not None or settings.max_loss is not None,
    }
    files: list[Path] = []
    if settings.tune_epochs or counts or measures.get(action):
        files += [paths.split(task, "train"), paths.split(task, "validation")]
    if settings.tune_epochs or counts:
        files.append(paths.augmented(task, settings.augmented))
    if settings.tune_epochs and (teacher := settings.teacher or parent.teacher):
        files += [paths.logits(task, teacher, name) for name in ("train", settings.augmented)]
    return [path for path in files if path.exists()]


def _make(
    settings: CompressSettings,
    action: str,
    task: Task,
    parent_folder: Path,
    used: dict[str, Any],
    folder: Path,
    identity: str,
) -> None:
    """Load the parent, do the action with the settings `used` for it, save the model in `folder`."""
    seed_everything(settings.seed)
    student, tokenizer, parent = load_student(parent_folder, CPU)
    context = CompressionContext(settings, task, parent_folder, parent, student, tokenizer, folder, identity)
    reached = ACTIONS[action].apply(context)
    changed = {
        "name": folder.name,
        "stage": ACTIONS[action].stage,
        "parent": parent.name,
        "settings": used,
        "compression": {**parent.compression, **reached},
        "fingerprint": identity,
    }
    context.save(folder, parent.model_copy(update=changed))
    clear_training(folder)
