"""fairseq's recipe for fine-tuning RoBERTa on GLUE, as flags of its training.

https://github.com/facebookresearch/fairseq/blob/main/examples/roberta/README.glue.md
"""

import math

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
    updates = total_updates(settings, train_rows)
    flags = f"""
        --task featherweight_sentence_prediction --criterion sentence_prediction --num-classes {task.outputs}
        --seed {settings.seed} --num-workers 0
        --batch-size {settings.batch_size} --max-tokens 4400 --required-batch-size-multiple 1
        --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6 --clip-norm 0.0
        --lr {settings.lr} --weight-decay {settings.weight_decay} --lr-scheduler polynomial_decay
        --total-num-update {updates} --warmup-updates {round(updates * settings.warmup)}
        --max-update {updates} --max-epoch {settings.max_epochs}
        --save-interval-updates {save_interval(valid_rows, settings.batch_size)} --keep-interval-updates 1
        --no-epoch-checkpoints --distributed-world-size 1
        --arch roberta --dropout 0.1 --attention-dropout 0.1
    """.split()
    if task.regression:
        flags += ["--regression-target", "--best-checkpoint-metric", "loss"]
    else:
        flags += ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    if settings.patience < settings.max_epochs:
        flags += ["--patience", str(settings.patience)]
    if settings.freeze_embeddings:
        flags += ["--freeze-embeddings"]
    for name, value in architecture.model_dump().items():
        flag = f"--{name.replace('_', '-')}"
        flags += [flag] * value if isinstance(value, bool) else [flag, str(value)]
    return flags + _device_flags(settings)


def total_updates(settings: FinetuneSettings, train_rows: int) -> int:
    """Return how many updates there will be, over which the learning rate falls to zero.

    That is the recipe's number for the full task, or that of max_epochs where it is lower; warm-up is a share of it.
    """
    possible = math.ceil(train_rows / settings.batch_size) * settings.max_epochs
    return min(settings.max_updates or possible, possible)


def save_interval(valid_rows: int, batch_size: int) -> int:
    """Return the updates between two checkpoints.

    fairseq validates whenever it saves; a forward pass is a third of an update's work: so validation takes a tenth of
    the time.
    """
    return max(SAVE_UPDATES, math.ceil(10 * valid_rows / batch_size / 3))


def _device_flags(settings: FinetuneSettings) -> list[str]:
    """Return flags for one device. On a CPU fairseq computes in 32 bits only."""
    device = pick_device(settings.cpu)
    dtype = pick_dtype(settings.arithmetic, device)
    if device.type == "cpu":
        return ["--cpu"]
    if dtype == torch.float16:
        return ["--fp16", "--fp16-init-scale", "4", "--threshold-loss-scale", "1", "--fp16-scale-window", "128"]
    return ["--bf16"] if dtype == torch.bfloat16 else []
