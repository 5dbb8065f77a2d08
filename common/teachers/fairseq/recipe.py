"""fairseq's recipe for fine-tuning RoBERTa on GLUE, as flags of its training.

https://github.com/facebookresearch/fairseq/blob/main/examples/roberta/README.glue.md
"""

import math
from typing import Any

import torch

from common.data.tasks import Task
from common.devices import pick_device, pick_dtype
from common.teachers.fairseq.checkpoint import Architecture
from common.teachers.settings import FinetuneSettings

SAVE_UPDATES = 500
"""Fewest updates between two checkpoints; a kill loses those since the last one."""


def training_flags(
    settings: FinetuneSettings, task: Task, architecture: Architecture, train_rows: int, valid_rows: int
) -> list[str]:
    """Return all flags that do not name files."""
    flags = [
        *_recipe(settings, task, train_rows, valid_rows),
        *_architecture_flags(architecture),
        *_device_flags(settings),
    ]
    return [str(flag) for flag in flags]


def total_updates(settings: FinetuneSettings, train_rows: int) -> int:
    """Return how many updates there will be, over which the learning rate falls to zero.

    That is the recipe's number for the full task, or that of max_epochs where it is lower; warm-up is a share of it.
    """
    possible = math.ceil(train_rows / settings.batch_size) * settings.max_epochs
    return min(settings.max_updates or possible, possible)


def _recipe(settings: FinetuneSettings, task: Task, train_rows: int, valid_rows: int) -> list[Any]:
    """Return the flags of fairseq's GLUE example."""
    updates = total_updates(settings, train_rows)
    interval = save_interval(valid_rows, settings.batch_size)
    metric = ["loss"] if task.regression else ["accuracy", "--maximize-best-checkpoint-metric"]
    flags = ["--task", "featherweight_sentence_prediction", "--criterion", "sentence_prediction"]
    flags += ["--num-classes", task.outputs, "--seed", settings.seed]
    flags += ["--batch-size", settings.batch_size, "--max-tokens", 4400, "--required-batch-size-multiple", 1]
    flags += ["--optimizer", "adam", "--adam-betas", "(0.9,0.98)", "--adam-eps", "1e-6", "--clip-norm", "0.0"]
    flags += ["--weight-decay", settings.weight_decay, "--lr", settings.lr, "--lr-scheduler", "polynomial_decay"]
    flags += ["--total-num-update", updates, "--warmup-updates", round(updates * settings.warmup)]
    flags += ["--max-update", updates, "--max-epoch", settings.max_epochs]
    flags += ["--save-interval-updates", interval, "--keep-interval-updates", 1, "--no-epoch-checkpoints"]
    flags += ["--best-checkpoint-metric", *metric, "--num-workers", 0]
    if settings.patience < settings.max_epochs:
        flags += ["--patience", settings.patience]
    if settings.freeze_embeddings:
        flags += ["--freeze-embeddings"]
    return [*flags, "--regression-target"] if task.regression else flags


def save_interval(valid_rows: int, batch_size: int) -> int:
    """Return the updates between two checkpoints.

    fairseq validates whenever it saves; a forward pass is a third of an update's work: so validation takes a tenth of
    the time.
    """
    return max(SAVE_UPDATES, math.ceil(10 * valid_rows / batch_size / 3))


def _architecture_flags(architecture: Architecture) -> list[Any]:
    flags: list[Any] = ["--arch", "roberta", "--dropout", 0.1, "--attention-dropout", 0.1]
    for name, value in architecture.model_dump().items():
        if isinstance(value, bool):
            flags += [f"--{name.replace('_', '-')}"] if value else []
        else:
            flags += [f"--{name.replace('_', '-')}", value]
    return flags


def _device_flags(settings: FinetuneSettings) -> list[Any]:
    """Return flags for one device. On a CPU fairseq computes in 32 bits only."""
    device = pick_device(settings.cpu)
    dtype = pick_dtype("fp16" if settings.fp16 else settings.precision, device)
    if device.type == "cpu":
        return ["--cpu", "--distributed-world-size", 1]
    scale = ["--fp16-init-scale", 4, "--threshold-loss-scale", 1, "--fp16-scale-window", 128]
    precision = {torch.float16: ["--fp16", *scale], torch.bfloat16: ["--bf16"], torch.float32: []}
    return [*precision[dtype], "--distributed-world-size", 1]
