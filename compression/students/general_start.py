"""Starting a transformer student from a general one: everything but the classifier is there already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from common.data.tasks import Task, check_no_overlap
from common.errors import UserError
from common.training.checkpoint import load_tensors
from common.training.models import GENERAL, WEIGHTS_FILE, general_folder, read_config
from compression.students.student import Student

if TYPE_CHECKING:
    from compression.settings import CompressSettings

_SHAPE = ("embedding_type", "embedding_dim", "encoder_hidden_dim", "heads", "intermediate_dim")
"""What both must have alike; the depth too."""
_DEPTH = {"transformer": "layers", "recursive": "iterations"}


def find_general(settings: CompressSettings, task: Task) -> Path:
    """Folder of the student that --start-from names.

    Raises UserError where there is none, or one of another shape, or one that has read what the task is scored on.
    """
    folder = general_folder(settings.paths, str(settings.start_from))
    config = read_config(folder)
    check_no_overlap(list(config.trained_on), task.name)
    if config.stage != GENERAL:
        raise UserError(f"--start-from {settings.start_from}: no general student; compress.py's pretrain makes one")
    if config.arch != settings.student_arch:
        raise UserError(f"--start-from {config.name} is a {config.arch}: --student-arch {config.arch}")
    alike = [*_SHAPE, _DEPTH[config.arch]]
    if settings.adapters and config.student["adapters"]:
        alike.append("adapters")
    for name in alike:
        if getattr(settings, name) != config.student[name]:
            flag = name.replace("_", "-")
            raise UserError(f"--start-from {config.name}: --{flag} is {config.student[name]}, and cannot be another")
    return folder


def start_from_general(student: Student, folder: Path) -> None:
    """Copy embedding and layers into a fresh student, in place; adapters that only one of them has stay out.

    Where a text has fewer places in one than in the other (--max-tokens, pairs), those that both have are copied.
    """
    tensors, _ = load_tensors(folder / WEIGHTS_FILE)
    own = student.state_dict()  # the very tensors, not copies
    for name, tensor in tensors.items():
        if name in own:
            places = min(len(tensor), len(own[name]))
            own[name][:places] = tensor[:places]


def freeze_all_but_adapters(student: Student) -> None:
    """Leave adapters and classifier alone to be trained, in place (adapter tuning)."""
    for name, parameter in student.named_parameters():
        parameter.requires_grad_(name.startswith(("encoder.adapters.", "classifier.")))
