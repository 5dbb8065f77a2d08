"""Fine-tuning a teacher on a task: what is the same whichever library trains it.

A backend is a module with `resolve` (where an --arch's weights come from) and `train` (fine-tune and save them).
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from common.data.split import Split, load_split
from common.data.tasks import Task, check_no_overlap, check_trains, load_task
from common.errors import UserError
from common.progress import say
from common.seeds import drawn
from common.store.locks import only_one
from common.store.workspace import file_fingerprint, fingerprint
from common.teachers.base import is_fairseq
from common.teachers.settings import FinetuneSettings
from common.training.models import CONFIG_FILE, SUBFOLDERS, ModelConfig, is_finished, read_config


def finetune(settings: FinetuneSettings) -> Path:
    """Fine-tune and save a teacher. Returns its model folder; a finished one is reused, a stopped one goes on."""
    if settings.as_is:
        from common.teachers.adopt import adopt

        return adopt(settings)
    if settings.ensemble:
        from common.teachers.ensemble import combine

        return combine(settings)
    task = load_task(settings.task)
    check_trains(task)
    if task.tokens and is_fairseq(settings.arch):
        raise UserError(f"{task.name} has a label for every word: take an encoder of Hugging Face's, not fairseq's")
    backend = _backend(settings.arch)
    source, short_name = backend.resolve(settings.arch, settings.paths.downloads())
    splits = {name: _labelled(settings, task, name) for name in ("train", task.selection_split(settings.select_on))}
    train = splits["train"]
    splits["train"] = train.take(drawn(len(train), settings.downsample_data, settings.seed, "downsample"))
    trained_on = _lineage(Path(settings.arch), task)
    config = ModelConfig(
        name=settings.model_name or short_name,
        kind="teacher",
        stage="teacher",
        task=task.name,
        labels=task.labels,
        pair=task.pair,
        tokens=task.tokens,
        arch=short_name,
        seed=settings.seed,
        select_on=settings.select_on,
        trained_on=trained_on,
        settings=settings.model_dump(mode="json", exclude={"workspace", "force", "loadbar", "model_name"}),
        fingerprint=_identity(settings, source, splits),
    )
    folder = settings.paths.model(task.name, config.name)
    with only_one(folder, f"teacher {config.name}"):
        if is_finished(folder, config.fingerprint, settings.force):
            say(f"teacher {config.name} is up to date")
        else:
            backend.train(settings, source, task, splits, config, folder)
    return folder


def _backend(arch: str) -> ModuleType:
    """Imported only when asked for: fairseq and transformers are large, and fairseq need not be installed."""
    if is_fairseq(arch):
        from common.teachers.fairseq import training as backend
    else:
        from common.teachers.huggingface import training as backend
    return backend


def _labelled(settings: FinetuneSettings, task: Task, name: str) -> Split:
    """The rows of a split that have a label. Raises UserError when none has."""
    split = load_split(settings.paths, task, name)
    if not split.labelled.any():
        raise UserError(f"task {task.name}: no row of {name} has a label to fine-tune on; --as-is adopts a teacher")
    return split.take(np.flatnonzero(split.labelled))


def _lineage(arch: Path, task: Task) -> tuple[str, ...]:
    """Every task the encoder has been trained on so far, and this one. Refuses a leak."""
    folder = arch.parent if arch.name in SUBFOLDERS else arch  # a backend's own folder inside a model of ours
    before = read_config(folder).trained_on if (folder / CONFIG_FILE).exists() and not _is_foreign(folder) else ()
    check_no_overlap(list(before), task.name)
    return tuple(sorted({*before, task.name}))


def _is_foreign(folder: Path) -> bool:
    """A Hugging Face folder has a config.json too, without our fields."""
    try:
        read_config(folder)
    except UserError:
        return True
    return False


def _identity(settings: FinetuneSettings, source: str, splits: dict[str, Split]) -> str:
    without = {"workspace", "force", "loadbar", "cpu", "model_name", "arch"} | (
        set() if settings.adapters else {"adapters"}
    )
    own = settings.model_dump(mode="json", exclude=without)
    folder = Path(source)
    names = ("*.safetensors", "model.pt", "dict.txt")  # the last two are fairseq's
    weights = sorted(path for name in names for path in folder.glob(name)) if folder.is_dir() else []
    files: Any = [file_fingerprint(path) for path in weights] or source
    return fingerprint([own, files, {name: split.fingerprint() for name, split in splits.items()}])
