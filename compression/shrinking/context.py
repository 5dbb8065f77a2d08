"""A student that is being made smaller: what an action (factorize, prune, quantize) is given to change."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.data import Split
from common.data.tasks import Task
from common.training.metrics import main_score
from common.training.models import ModelConfig
from compression.distillation.dataset import DistillationSet, distillation_set, distillation_text, held_out_rows
from compression.distillation.trainer import Companion, Lesson, train_student
from compression.packing import pack
from compression.settings import CompressSettings
from compression.students.saved import load_student, save_student
from compression.students.scoring import encode_split, student_logits
from compression.students.student import Student
from compression.tokenizers import Tokenizer

CPU = torch.device("cpu")


@dataclasses.dataclass
class Work:
    """A loaded student, what is asked for, and the means to train it on, score it and weigh it."""

    settings: CompressSettings
    task: Task
    parent_folder: Path
    parent: ModelConfig
    student: Student
    """To be changed in place, or replaced."""
    tokenizer: Tokenizer
    """May be replaced."""
    folder: Path
    """Of the model being made."""
    fingerprint: str
    """Of the model being made."""
    widths: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Changes of the student's own settings: the widths of matrices that shrank."""
    history: list[dict[str, Any]] | None = None
    """Epochs of tuning, where there was any."""

    def tune(self, companion: Companion | None = None) -> None:
        """Train the student on for --tune-epochs; its best weights are left. Does nothing when these are 0.

        It learns from the distillation set that the settings describe, guided by the teacher's logits or by those of
        the student before it was changed. Raises UserError when the teacher's are missing.
        """
        settings = self.settings
        if settings.tune_epochs == 0:
            return
        recipe = {"epochs": settings.tune_epochs, "patience": settings.tune_epochs, "lr": settings.tune_lr}
        recipe |= {"optimizer": "adamw", "schedule": "linear", "weight_decay": 0.0}
        if settings.guide == "student":
            recipe["alpha"] = 0.0
            text = distillation_text(settings, self.task)
            rows = DistillationSet(text, self._parents_logits(text), None, not settings.only_original_data)
        else:
            rows = distillation_set(settings, self.task)
        settings = settings.model_copy(update=recipe)
        lesson = Lesson(rows, self.held_out)
        self.history = train_student(
            settings, self.task, self.student, self.tokenizer, lesson, self.folder, self.fingerprint, companion
        )

    def _parents_logits(self, split: Split) -> np.ndarray:
        student, tokenizer, _ = load_student(self.parent_folder, CPU)
        return student_logits(student, encode_split(tokenizer, split), CPU, f"{self.parent.name} guides")

    @functools.cached_property
    def held_out(self) -> Split:
        """The rows that choose: validation's labelled ones, or all of them with the teacher's choices."""
        return held_out_rows(self.settings, self.task, self.parent.teacher)

    def logits(self, rows: Split) -> np.ndarray:
        """What the student says as it is now, float32 [n, outputs]."""
        return student_logits(self.student, encode_split(self.tokenizer, rows), CPU, "scoring")

    def score(self) -> float:
        """The task's main metric over validation, of the student as it is now."""
        return main_score(self.task, self.held_out.labels, self.logits(self.held_out))

    def save(self, folder: Path, config: ModelConfig) -> None:
        """Write the student into a model folder, all of its weights."""
        whole = {"base": None, "base_weights": None, "trained_parameters": None}
        config = config.model_copy(update={**whole, "student": {**config.student, **self.widths}})
        save_student(folder, config, self.student, self.tokenizer, self.history)

    def packed_size(self) -> int:
        """Bytes of the packed file that the student as it is now would make."""
        config = {"name": self.folder.name, "student": {**self.parent.student, **self.widths}}
        return len(pack(self.student, self.tokenizer, self.parent.model_copy(update=config)))
