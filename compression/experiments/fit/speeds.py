"""Measurement of this machine: how fast rows are split, and how fast the teacher trains and predicts on such rows."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import torch

from common.data.prepare import make_splits
from common.data.readers.tables import read_source
from common.data.split import Split
from common.data.tasks import Task
from common.devices import pick_device, pick_dtype
from common.errors import UserError
from common.progress import say
from common.teachers.finetune import backend
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.teachers.settings import is_fairseq
from common.training.optimizers import eager
from compression.experiments.fit.plan import LEAST_SECONDS, Speeds
from compression.experiments.fit.settings import FitSettings

_BATCHES, _BATCH = 3, 16
_LENGTH = 128
_SLOWER = 1.15
"""Factor on measured times, because the machine may be busier later."""


def measure(settings: FitSettings, task: Task, start: float, left: float) -> Speeds:
    """Return the speeds. task: a task with some rows; start: seconds for loading the libraries; left: seconds left."""
    rows = read_source(Path(task.source.folder) / task.source.files["all"], task)
    began = time.perf_counter()
    with contextlib.suppress(UserError):  # too few rows in this sample; the time counts
        make_splits({"all": rows}, task.model_copy(update={"validation": None, "test": None}), settings.seed)
    # Reading, writing and the report also take time: a quarter of the measured speed is assumed.
    about = {"start": start, "prepare": len(rows) / (4 * (time.perf_counter() - began))}
    about["words"] = sum(len(text.split()) for column in rows.sentences() for text in column) / len(rows)
    if left < LEAST_SECONDS or is_fairseq(settings.encoder):
        return Speeds(**about)
    return Speeds(**about, **_teacher_speeds(settings, task, rows))


def _teacher_speeds(settings: FitSettings, task: Task, rows: Split) -> dict[str, object]:
    """Return the fields of Speeds that describe the teacher."""
    began = time.perf_counter()
    device = pick_device(settings.cpu)
    source, _ = backend(settings.encoder).resolve(settings.encoder, settings.paths.downloads())
    dtype = pick_dtype("auto", device)
    teacher = HuggingFaceTeacher(source, task.labels, task.outputs, device, dtype, _LENGTH, new_head=True)
    teacher.model.get_input_embeddings().requires_grad_(False)
    trained = [parameter for parameter in teacher.model.parameters() if parameter.requires_grad]
    optimizer = eager(torch.optim.AdamW)(trained, lr=1e-4)
    load = time.perf_counter() - began
    say(f"measuring the speed of {settings.encoder} on these rows")
    encoded = teacher.encode(rows.take(np.arange(min(len(rows), 200))))
    by_length = np.argsort(encoded.lengths, kind="stable")
    starts = np.linspace(0, max(0, len(by_length) - _BATCH), _BATCHES + 1)[1:].astype(int)  # longer rows weigh more
    batches = [by_length[start : start + _BATCH] for start in starts.tolist()]
    pieces = sum(int(encoded.lengths[batch].sum()) for batch in batches)
    labels = torch.from_numpy(np.zeros_like(rows.labels[:_BATCH])).to(device)

    def step(batch: np.ndarray) -> None:
        optimizer.zero_grad()
        task.kind.label_loss(teacher.forward(encoded, batch), labels[: len(batch)]).backward()
        optimizer.step()

    teacher.model.train()
    step(batches[0])  # the first step also loads parts of PyTorch
    began = time.perf_counter()
    for batch in batches:
        step(batch)
    train = pieces / (time.perf_counter() - began) / _SLOWER
    teacher.model.eval()
    with torch.inference_mode():
        began = time.perf_counter()
        for batch in batches:
            teacher.forward(encoded, batch)
    infer = pieces / (time.perf_counter() - began) / _SLOWER
    lengths = tuple(int(length) for length in encoded.lengths)
    return {"pieces": lengths, "load": round(load, 2), "train": round(train, 1), "infer": round(infer, 1)}
