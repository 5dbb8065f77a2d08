"""Starting a transformer student from a general one, which has everything but a classifier."""

from __future__ import annotations

from pathlib import Path

from common.data.tasks import check_no_overlap
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.checkpoint import load_tensors
from common.training.models import GENERAL, WEIGHTS_FILE, model_folder, read_config
from compression.students.settings import StudentSettings
from compression.students.student import Student

_SHAPE = ("embedding_type", "embedding_dim", "encoder_hidden_dim", "heads", "intermediate_dim")
"""Settings that both must share; the depth too."""
_DEPTH = {"transformer": "layers", "recursive": "iterations"}


def find_general(paths: Workspace, name: str, arch: str, settings: StudentSettings, task: str) -> Path:
    """Return the folder of the general student of this name, for --start-from.

    Raises UserError where there is none, or one of another shape, or one that was trained on rows that score the task.
    """
    folder = model_folder(paths, GENERAL, name)
    config = read_config(folder)
    check_no_overlap(list(config.trained_on), task)
    if config.stage != GENERAL:
        raise UserError(f"--start-from {name}: not a general student; compress.py's pretrain trains one")
    if config.arch != arch:
        raise UserError(f"--start-from {config.name} is a {config.arch}: --student-arch {config.arch}")
    shared = [*_SHAPE, _DEPTH[config.arch]]
    if settings.adapters and config.student["adapters"]:
        shared.append("adapters")
    for setting in shared:
        if getattr(settings, setting) != config.student[setting]:
            flag, value = setting.replace("_", "-"), config.student[setting]
            raise UserError(f"--start-from {config.name}: --{flag} is {value}; give the same")
    return folder


def start_from_general(student: Student, folder: Path) -> None:
    """Copy embedding and layers into a fresh student, in place, but for adapters that only one of them has.

    Of tables of different lengths (positions: --max-tokens, pairs) the first rows are copied.
    """
    tensors, _ = load_tensors(folder / WEIGHTS_FILE)
    own = student.state_dict()  # the student's own tensors, not copies
    for name, tensor in tensors.items():
        if name in own:
            rows = min(len(tensor), len(own[name]))
            own[name][:rows] = tensor[:rows]


def freeze_all_but_adapters(student: Student) -> None:
    """Freeze everything but adapters and classifier, in place (adapter tuning)."""
    for name, parameter in student.named_parameters():
        parameter.requires_grad_(name.startswith(("encoder.adapters.", "classifier.")))
