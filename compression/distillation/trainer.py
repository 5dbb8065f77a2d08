"""Training a student on a distillation set, for distillation and all later tuning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from common.data.split import Split
from common.data.tasks import Task
from common.devices import autocast, pick_device, pick_dtype
from common.store.step import Context
from common.training.batching import shuffled_batches
from common.training.distillation_losses import LOSSES
from common.training.loop import STATE_FILE, Callback, Run, eager, fit, linear_schedule
from common.training.losses import combined
from common.training.metrics import main_score
from compression.distillation.alignment import Aligner
from compression.distillation.dataset import DistillationSet
from compression.distillation.settings import LossSettings, TrainSettings
from compression.distillation.token_cache import cached_tokens
from compression.students.batch import Batch, EncodedRows
from compression.students.scoring import encode_split, for_loss, student_logits
from compression.students.student import Student
from compression.tokenizers import Tokenizer


def train_student(
    settings: TrainSettings,
    objective: LossSettings,
    seed: int,
    task: Task,
    student: Student,
    tokenizer: Tokenizer,
    rows: DistillationSet,
    held_out: Split | None,
    context: Context,
    callbacks: Sequence[Callback] = (),
    aligner: Aligner | None = None,
) -> list[dict[str, Any]]:
    """Train a student in place, and leave it on the CPU with its best weights. Returns one dict per epoch, as `fit`.

    held_out: the rows that select the epoch; None for the last one; context: its `work` has the state of a stopped run,
    which is used only if it has the same key; aligner: adds its loss between a transformer's and its teacher's hidden
    states; the last of the callbacks.
    """
    split, logits = rows.split, rows.logits
    device = pick_device(context.cpu)
    dtype = pick_dtype(settings.precision, device)
    student.to(device)
    encoded = cached_tokens(context.cache / "tokens", tokenizer, split)
    targets = task.kind.targets(task, split.labels, split.sentence2)
    labels = torch.from_numpy(targets).to(device)
    guide = None if logits is None else torch.from_numpy(logits).to(device)
    trained, epochs = nn.ModuleList([student]), settings.epochs
    if aligner is not None:
        aligner.teacher.check_rows(encoded)
        callbacks, trained = [*callbacks, aligner], nn.ModuleList([student, aligner])
        epochs += aligner.settings.align_first

    def logits_loss(predicted: torch.Tensor, batch: Batch, indices: np.ndarray, whole: np.ndarray) -> torch.Tensor:
        shares = (1.0, 1.0)
        if len(indices) < len(whole):
            part, all_terms = (loss_terms(encoded, targets, objective.loss, some) for some in (indices, whole))
            shares = part[0] / max(all_terms[0], 1), part[1] / all_terms[1]
        return combined(
            task.kind,
            for_loss(predicted.float(), batch),
            labels[indices],
            None if guide is None else guide[indices],
            alpha=objective.alpha,
            loss=objective.loss,
            temperature=objective.temperature,
            shares=shares,
        )

    def loss(indices: np.ndarray, whole: np.ndarray) -> torch.Tensor:
        """Return the loss of a part of a batch, as its share of the batch's. indices, whole: rows, int64."""
        batch, dropout = encoded.batch(indices, device), settings.word_dropout
        read = batch.without_words(dropout, tokenizer.unknown) if dropout else batch
        with autocast(dtype, device):
            if aligner is None or aligner.is_over:
                return logits_loss(student(read), batch, indices, whole)
            predicted, trace = student.traced(read)
            tokens = None
            if len(indices) < len(whole):  # special tokens included: one at the start, and one after each text
                texts = encoded.lengths[whole].reshape(len(whole), -1)
                tokens = torch.from_numpy(1 + (texts + 1).sum(1)).to(device)
            aligned = aligner.loss(trace, aligner.states(batch), tokens)
        return aligned if aligner.comes_first else aligned + logits_loss(predicted, batch, indices, whole)

    validate = None
    if held_out is not None:
        encoded_held_out = encode_split(tokenizer, held_out)

        def validate() -> float:
            chosen_by = student_logits(student, encoded_held_out, device, "validating")
            return main_score(task, held_out.labels, chosen_by, held_out.sentence2)

    run = Run(
        model=student,
        optimizer=make_optimizer(settings, trained),
        batches=lambda epoch: shuffled_batches(encoded.lengths, settings.batch_size, seed, epoch),
        losses=lambda batch, parts: (loss(part, batch) for part in np.array_split(batch, parts)),
        validate=validate,
        epochs=epochs,
        kept=settings.average_epochs,
        stop_after=settings.stop_after,
        callbacks=callbacks,
        **run_recipe(settings, seed, context),
    )
    history = fit(run)
    student.cpu()
    return history


def loss_terms(encoded: EncodedRows, labels: np.ndarray, loss: str, rows: np.ndarray) -> tuple[int, int]:
    """Return how many terms the loss of labels and the loss between logits are means over, for some rows.

    Losses of texts are means over rows, those of words over words, whose number differs between the parts of a batch.

    labels: targets of all rows; for spans, the first and last word of each answer, int64 [n, 2]. loss: name of the loss
    between a student's and a teacher's logits, as in the settings.
    """
    if encoded.word_starts is None:
        return len(rows), len(rows)
    padded, counts = encoded.word_starts.pad(rows)
    if encoded.max_tokens is None:
        return int(counts.sum()), int(counts.sum())
    starts = padded[..., 0]  # the index of each word's first token, [rows, words]
    read = starts < encoded.max_tokens
    of_labels = np.take_along_axis(read, labels[rows], 1).sum()
    if LOSSES[loss].distributions:  # start and end are classes of a row; a mean over values is over padding too
        of_logits = len(rows) if LOSSES[loss].over_rows else starts.size
    else:
        of_logits = (read & (np.arange(starts.shape[1]) < counts[:, None])).sum()
    return int(of_labels), int(of_logits)


def run_recipe(settings: TrainSettings, seed: int, context: Context) -> dict[str, Any]:
    """Return the fields of a Run that depend on settings alone, its state file and its label."""
    recipe: dict[str, Any] = {
        "patience": settings.epochs if settings.refit else settings.patience,
        "seed": seed,
        "parts": settings.accumulate,
        "max_grad_norm": settings.max_grad_norm,
        "state_file": context.work / STATE_FILE,
        "label": context.name,
    }
    if settings.schedule == "linear":
        recipe["schedule"] = linear_schedule(0.05)
    return recipe


def make_optimizer(settings: TrainSettings, student: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of the settings over the trainable parameters, each of them once."""
    trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "adadelta":
        return eager(torch.optim.Adadelta)(trained, rho=0.95, **common)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return eager(kind)(trained, fused=True, **common)
