"""The class of Hugging Face teachers for a task."""

from pathlib import Path

import torch

from common.kinds.base import Kind
from common.teachers.huggingface.answerer import HuggingFaceAnswerer
from common.teachers.huggingface.tagger import HuggingFaceTagger
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.training.models import read_config

TEACHERS: dict[str, type[HuggingFaceTeacher]] = {"tags": HuggingFaceTagger, "answers": HuggingFaceAnswerer}
"""Name of a kind of task -> class of its teachers, if it is not HuggingFaceTeacher, which labels texts."""


def teacher_class(kind: Kind) -> type[HuggingFaceTeacher]:
    """Return the class of a kind's teachers."""
    return TEACHERS.get(kind.name, HuggingFaceTeacher)


def load_teacher_of_any(folder: Path, device: torch.device, dtype: torch.dtype) -> HuggingFaceTeacher:
    """Return a fine-tuned teacher of any kind of task. Raises UserError as `HuggingFaceTeacher.load` does."""
    return teacher_class(read_config(folder).task_kind).load(folder, device, dtype)
