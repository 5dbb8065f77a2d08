"""The actions of compress.py, in order: each builds a student, or a file of one, from the previous student."""

from __future__ import annotations

from pathlib import Path

from common.data.task_use import check_trains
from common.data.tasks import load_task
from common.errors import UserError
from common.progress import say
from common.training.models import check_arch, find_model
from compression.distillation.distill import distill
from compression.distillation.pretrain import pretrain
from compression.shrinking.factorize import Factorize
from compression.shrinking.files import FILES, Export, Pack, StudentFile
from compression.shrinking.prune import Prune
from compression.shrinking.quantize import Quantize
from compression.shrinking.settings import CompressSettings
from compression.shrinking.step import Shrink

SHRINK: dict[str, type[Shrink]] = {"factorize": Factorize, "prune": Prune, "quantize": Quantize}


def compress(settings: CompressSettings) -> list[Path]:
    """Run the actions in order. Returns the folder of each student built, or of the one that files were built from."""
    if "pretrain" in settings.compression_actions:
        return [pretrain(settings)]
    task = load_task(settings.task)
    check_trains(task)
    if task.kind.by_word and "export" in settings.compression_actions:
        raise UserError(
            f"{task.name}: a student that predicts {task.kind.name} is not exported to ONNX; pack it instead"
        )
    if settings.reject is not None and not task.kind.one_class:
        raise UserError(f"{task.name}: --reject is for tasks with one label a text, not for {task.kind.name}")
    folders: list[Path] = []
    name = settings.load_trained_model or ""
    actions = [action for action in settings.compression_actions if action not in FILES]
    for action in actions:
        if action == "distill":
            folders.append(distill(settings))
        else:
            own_name = settings.model_name if settings.load_trained_model and action == actions[-1] else None
            folders.append(shrink(settings, SHRINK[action], name, own_name))
        name = folders[-1].name
    for action in settings.compression_actions:
        if action in FILES:
            folder, paths = _student(settings, name), settings.paths
            if action == "pack":
                step: StudentFile = Pack(student=folder, task=task, reject=settings.reject)
                alias = paths.packed(task.models_task, folder.name)
            else:
                step = Export(student=folder, task=task)
                alias = paths.exported(task.models_task, folder.name)
            path = paths.make(step, settings.context(alias.name), alias=alias, file=step.file, replace=True).path
            say(f"{action}: {path}, {path.stat().st_size:,} bytes")
            folders = folders or [folder]
    return folders


def shrink(settings: CompressSettings, step: type[Shrink], parent: str, name: str | None = None) -> Path:
    """Make a saved student smaller. Returns the folder of the new student; a finished one is reused.

    name: the new student's name; None adds the step's suffix to the parent's.
    """
    folder = _student(settings, parent)
    name = name or folder.name + step.suffix(settings)
    alias = settings.paths.model(load_task(settings.task).models_task, name)
    return settings.paths.make(step.of(settings, folder), settings.context(name), alias=alias).path


def _student(settings: CompressSettings, name: str) -> Path:
    folder, config = find_model(settings.paths, load_task(settings.task), name)
    if config.kind != "student":
        raise UserError(f"{config.name} is a teacher; only students can be compressed")
    check_arch(config.name, config, settings.student_arch)
    return folder
