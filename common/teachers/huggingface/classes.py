"""The class of Hugging Face teachers for a task."""

from pathlib import Path

import torch

from common.teachers.huggingface.answerer import HuggingFaceAnswerer
from common.teachers.huggingface.tagger import HuggingFaceTagger
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.training.models import read_config


def teacher_class(word_logits: bool, pair: bool) -> type[HuggingFaceTeacher]:
    """Return the class of a task's teacher: one that answers questions, labels words, or labels texts."""
    if word_logits:
        return HuggingFaceAnswerer if pair else HuggingFaceTagger
    return HuggingFaceTeacher


def load_teacher_of_any(folder: Path, device: torch.device, dtype: torch.dtype) -> HuggingFaceTeacher:
    """Return a fine-tuned teacher of any kind of task. Raises UserError as `HuggingFaceTeacher.load` does."""
    config = read_config(folder)
    return teacher_class(config.tokens, config.pair).load(folder, device, dtype)
