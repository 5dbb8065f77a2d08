"""A student that is being made smaller: what an action (factorize, prune, quantize) is given to change."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.split import Split
from common.data.tasks import Task
from common.training.metrics import main_score
from common.training.models import ModelConfig
from compression.distillation.callbacks import Callback
from compression.distillation.dataset import DistillationSet, distillation_set, distillation_text, held_out_rows
from compression.distillation.trainer import TrainingData, train_student
from compression.packing import pack
from compression.settings import CompressSettings
from compression.students.saved import load_student
from compression.students.scoring import encode_split, student_logits
from compression.students.student import Student
from compression.tokenizers import Tokenizer

CPU = torch.device("cpu")


@dataclasses.dataclass
class CompressionContext:
    """A loaded student, what is asked for, and the means to train it on, score it and weigh it."""

    settings: CompressSettings
    task: Task
    parent_folder: Path
    parent: ModelConfig
    student: Student
    """To be changed in place, or replaced."""
    tokenizer: Tokenizer
    """May be replaced."""
    name: str
    """Name of the student being built."""
    work: Path
    """Folder for the state of an unfinished training."""
    key: str
    """Identity of that training."""
    widths: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Changes of the student's own settings: the widths of matrices that shrank."""
    history: list[dict[str, Any]] | None = None
    """Epochs of tuning, where there was any."""

    def tune(self, *callbacks: Callback) -> None:
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
            text, _ = distillation_text(settings, self.task)
            rows = DistillationSet(text, self._parents_logits(text), None, not settings.only_original_data)
        else:
            rows = distillation_set(settings, self.task)
        settings = settings.model_copy(update=recipe)
        data = TrainingData(rows, self.held_out)
        place = self.work, self.name, self.key
        self.history = train_student(settings, self.task, self.student, self.tokenizer, data, *place, callbacks)

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

    def student_settings(self) -> dict[str, Any]:
        """Return the student's own settings as they are now."""
        return {**self.parent.student, **self.widths}

    def packed_size(self) -> int:
        """Return the bytes of the packed file that the student as it is now would make."""
        config = self.parent.model_copy(update={"name": self.name, "student": self.student_settings()})
        return len(pack(self.student, self.tokenizer, config))
