"""Which of a teacher's layers a student's layers are copied from or compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.store.files import read_json
from common.training.models import members_of
from compression.students.settings import StudentSettings
from compression.students.spec import TRANSFORMERS


def check_layers(flag: str, settings: StudentSettings, arch: str, teacher: Path) -> dict[str, Any]:
    """Return the teacher's config.json. Raises UserError where the two have no layers, or other word pieces.

    flag: the flag that needs layers, for the message.
    """
    check_arch(flag, settings, arch)
    if members := members_of(teacher):
        names = ", ".join(path.name for path in members)
        raise UserError(
            f"{flag}: {teacher.name} is an ensemble, and has no layers of its own: learn from one of {names}"
        )
    return teacher_config(teacher)


def check_arch(flag: str, settings: StudentSettings, arch: str) -> None:
    """Raise UserError where the student has no layers, or no word pieces of a teacher's."""
    if arch not in TRANSFORMERS:
        raise UserError(f"{flag}: a {arch} has no layers that a teacher has")
    if settings.embedding_type != "wordpiece":
        raise UserError(f"{flag} needs the teacher's word pieces: --embedding-type wordpiece")


def teacher_config(teacher: Path) -> dict[str, Any]:
    """Return Hugging Face's config.json of a teacher in a model folder."""
    return read_json(teacher / "huggingface" / "config.json")


def chosen_layers(
    flag: str, how: Sequence[str], depth: int, there: int, named: Mapping[str, Sequence[int]]
) -> list[int]:
    """Return the numbers of a teacher's layers, one for each of the student's `depth`, counted from 0.

    how: one of the names in `named`, or the numbers themselves; there: the number of the teacher's layers. Raises
    UserError for a map that does not fit.
    """
    if len(how) == 1 and how[0] in named:
        layers = list(named[how[0]])[:depth]
    elif all(word.isdecimal() for word in how):
        layers = [int(word) for word in how]
    else:
        raise UserError(f"{flag} {' '.join(how)}: give {', '.join(named)}, or numbers of layers")
    if len(layers) != depth or not all(0 <= layer < there for layer in layers):
        raise UserError(
            f"{flag} {' '.join(how)}: {len(layers)} of the teacher's {there} layers for {depth} of the student's"
        )
    return layers
