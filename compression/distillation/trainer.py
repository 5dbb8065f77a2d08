"""Training a student on a distillation set: the loop that distillation and all later tuning share."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import nn

from common.data.data import Split
from common.data.tasks import Task
from common.devices import pick_device
from common.training.batching import shuffled_batches
from common.training.metrics import main_score
from common.training.models import training_folder
from common.training.targets import targets
from common.training.training import Run, fit, linear_schedule
from compression.distillation.dataset import DistillationSet
from compression.distillation.losses import combined
from compression.distillation.token_cache import cached_tokens
from compression.settings import DistillSettings
from compression.students.batch import Batch
from compression.students.scoring import encode_split, student_logits, without_padding
from compression.students.student import Student
from compression.tokenizers import Tokenizer

if TYPE_CHECKING:
    from compression.distillation.alignment import Aligner


class Companion(Protocol):
    """What goes along with training and changes weights after its steps: a pruner, a quantizer."""

    def start(self, state: dict[str, torch.Tensor]) -> None:
        """Before the first step, with the state of a stopped attempt or nothing."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """What `start` needs after a stop."""
        ...

    def step(self, before: float, after: float) -> None:
        """After an optimizer step between two points of progress in [0, 1]."""
        ...

    def finished(self, progress: float) -> bool:
        """Whether weights at this progress may be chosen as the best."""
        ...


@dataclasses.dataclass(frozen=True)
class Lesson:
    """Rows to learn from, and the rows that choose among epochs."""

    rows: DistillationSet
    held_out: Split


def train_student(
    settings: DistillSettings,
    task: Task,
    student: Student,
    tokenizer: Tokenizer,
    lesson: Lesson,
    folder: Path,
    fingerprint: str,
    companion: Companion | None = None,
    aligner: Aligner | None = None,
) -> list[dict[str, Any]]:
    """Train a student in place with the recipe of `settings`; its best weights come back to the CPU.

    folder: of the model being made; the state of a stopped run lies beside it, and is that of this very run only when
    its fingerprint is equal. aligner: draws a transformer's insides towards its teacher's; it is among
    the companions too. Returns one dict an epoch.
    """
    device = pick_device(settings.cpu)
    student.to(device)
    rows = lesson.rows
    encoded = cached_tokens(settings.paths, task, tokenizer, rows.split)
    held_out = encode_split(tokenizer, lesson.held_out)
    labels = torch.from_numpy(targets(task, rows.split.labels)).to(device)
    logits = None if rows.logits is None else torch.from_numpy(rows.logits).to(device)
    lengths = encoded.lengths

    def answer_loss(predicted: torch.Tensor, batch: Batch, indices: np.ndarray) -> torch.Tensor:
        teacher = None if logits is None else logits[indices]
        predicted = without_padding(predicted, batch)
        return combined(predicted, labels[indices], teacher, settings.alpha, settings.loss, settings.temperature)

    def loss(indices: np.ndarray) -> torch.Tensor:
        batch = encoded.batch(indices, device)
        if aligner is None:
            return answer_loss(student(batch), batch, indices)
        predicted, trace = student.traced(batch)
        aligned = aligner.loss(trace, aligner.states(batch))
        return aligned if aligner.comes_first else aligned + answer_loss(predicted, batch, indices)

    def validate() -> float:
        return main_score(task, lesson.held_out.labels, student_logits(student, held_out, device, "validating"))

    run = Run(
        model=student,
        optimizer=make_optimizer(settings, student if aligner is None else nn.ModuleList([student, aligner])),
        batches=lambda epoch: shuffled_batches(lengths, settings.batch_size, settings.seed, epoch),
        loss=loss,
        validate=validate,
        epochs=settings.epochs if aligner is None else settings.align_first + settings.epochs,
        fingerprint=fingerprint,
        **run_recipe(settings, folder),
    )
    if companion is not None:
        run.on_start, run.extra_state = companion.start, companion.state
        run.after_step, run.eligible = companion.step, companion.finished
    history = fit(run)
    student.cpu()
    return history


def run_recipe(settings: DistillSettings, folder: Path) -> dict[str, Any]:
    """What a Run takes of the settings, whatever is trained for the model folder `folder`."""
    recipe: dict[str, Any] = {
        "patience": settings.patience,
        "seed": settings.seed,
        "max_grad_norm": settings.max_grad_norm,
        "state_file": training_folder(folder) / "state.safetensors",
        "label": folder.name,
    }
    return recipe | ({"schedule": linear_schedule(0.05)} if settings.schedule == "linear" else {})


def make_optimizer(settings: DistillSettings, student: nn.Module) -> torch.optim.Optimizer:
    """The optimizer the settings name, over the parameters that are to be trained, each once (seed fault 7)."""
    trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "adadelta":
        return torch.optim.Adadelta(trained, rho=0.95, **common)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(trained, fused=True, **common)
