"""Fine-tuning a Hugging Face teacher: length-bucketed batches, mixed precision, best weights on validation."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.data.split import Split
from common.data.tasks import Task
from common.devices import Precision, best_precision, pick_device, pick_dtype
from common.seeds import seed_everything
from common.store.files import read_json, write_json
from common.store.step import Context
from common.teachers.huggingface import pretrained
from common.teachers.huggingface.classes import teacher_class
from common.teachers.settings import TeacherTraining
from common.training.batching import shuffled_batches
from common.training.loop import STATE_FILE, Run, eager, fit, linear_schedule, over_rows, trained_parameters
from common.training.losses import combined
from common.training.metrics import main_score
from common.training.models import write_history
from common.training.settings import LogitsSettings

resolve = pretrained.resolve
"""Transformers downloads from the hub when it loads a model."""


def train(
    settings: TeacherTraining,
    seed: int,
    task: Task,
    source: str,
    splits: tuple[Split, Split],
    out: Path,
    context: Context,
    logits: np.ndarray | None = None,
    guidance: LogitsSettings = LogitsSettings(alpha=1),  # noqa: B008 - immutable
) -> dict[str, Any]:
    """Fine-tune the encoder `source` and save the best weights in `out`; a stopped run continues. Returns facts.

    splits: rows to learn from, and rows that choose the weights; logits: another teacher's over the rows to learn from,
    float32 [n, outputs], for tokens and spans [n, words, outputs]; guidance: how it learns from them. Raises UserError
    when the encoder cannot be loaded.
    """
    device = pick_device(context.cpu)
    precision: Precision = best_precision(device) if settings.arithmetic == "auto" else settings.arithmetic
    precision_file = context.work / "precision.json"
    if precision_file.exists():  # the run resumes, perhaps on other hardware, where `auto` is another precision
        precision = read_json(precision_file)
    dtype = pick_dtype(precision, device)
    seed_everything(seed)
    teacher = teacher_class(task.kind)(
        source,
        task.kind,
        task.labels,
        device,
        dtype,
        settings.max_tokens,
        new_head=True,
        attention_dropout=settings.attention_dropout,
    )
    if device.type == "cpu":
        teacher.model.set_attn_implementation("eager")  # with dropout, fused attention takes twice as long there
    if settings.adapters:
        teacher.adapt(settings.adapters, context.names["encoder"])
    elif settings.freeze_embeddings:
        teacher.model.get_input_embeddings().requires_grad_(False)
    train, held_out = splits
    encoded = teacher.encode(train)
    labels = torch.from_numpy(task.kind.targets(task, train.labels, train.sentence2)).to(device)
    guide = None if logits is None else torch.from_numpy(logits).to(device)

    def loss(rows: np.ndarray) -> torch.Tensor:
        return combined(
            task.kind,
            teacher.forward(encoded, rows),
            labels[rows],
            None if guide is None else guide[rows],
            guidance.alpha,
            guidance.loss,
            guidance.temperature,
        )

    trained = [parameter for parameter in teacher.model.parameters() if parameter.requires_grad]
    run = Run(
        model=teacher.model,
        optimizer=eager(torch.optim.AdamW)(trained, lr=settings.lr, weight_decay=settings.weight_decay, fused=True),
        batches=lambda epoch: shuffled_batches(encoded.lengths, settings.batch_size, seed, epoch),
        losses=over_rows(loss),
        validate=lambda: main_score(task, held_out.labels, teacher.logits(held_out), held_out.sentence2),
        epochs=settings.max_epochs,
        patience=settings.patience,
        seed=seed,
        state_file=context.work / STATE_FILE,
        schedule=linear_schedule(settings.warmup),
        scaler=torch.amp.GradScaler(device.type, enabled=dtype == torch.float16),
        stop_after=settings.stop_after,
        label=f"fine-tuning {context.name}",
    )
    write_json(precision_file, precision)
    history = fit(run)
    teacher.save(out)
    write_history(out, history)
    return {"trained_parameters": trained_parameters(teacher.model)} if settings.adapters else {}
