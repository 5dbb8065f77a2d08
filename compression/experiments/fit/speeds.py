"""Measuring this machine: how fast rows are split, and how fast the teacher learns and reads rows like these."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import numpy as np
import torch

from common.data.prepare import make_splits
from common.data.split import Split
from common.data.tasks import Task
from common.devices import pick_device, pick_dtype
from common.errors import UserError
from common.progress import say
from common.seeds import derive
from common.teachers.finetune import backend
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.teachers.settings import is_fairseq
from common.training.loop import label_loss
from common.training.optimizers import eager
from compression.experiments.fit.plan import LEAST_SECONDS, Speeds
from compression.experiments.fit.settings import FitSettings

_ROWS = 1000
"""Rows that are split to measure it."""
_BATCHES, _BATCH = 3, 16
_LENGTH = 128
_SLOWER = 1.15
"""A machine is as busy later as it is now, or more."""


def measure(settings: FitSettings, task: Task, values: Sequence[tuple[str, ...]], start: float, left: float) -> Speeds:
    """Return the speeds. values: usable rows; start: seconds that the libraries took to load; left: seconds left."""
    order = np.random.default_rng(derive("fit speeds", settings.seed)).permutation(len(values))
    rows = _split([values[i] for i in order[:_ROWS].tolist()], task)
    began = time.perf_counter()
    with contextlib.suppress(UserError):  # too few rows in this sample; the time counts
        make_splits({"all": rows}, task.model_copy(update={"validation": None, "test": None}), settings.seed)
    # Reading, the report and writing take about as long again.
    about = {"start": start, "prepare": len(rows) / (4 * (time.perf_counter() - began))}
    about["words"] = float(np.mean([sum(len(text.split()) for text in row[:-1]) for row in values[:_ROWS]]))
    if left < LEAST_SECONDS or is_fairseq(settings.encoder):
        return Speeds(**about)
    return Speeds(**about, **_teacher_speeds(settings, task, rows))


def _split(values: Sequence[tuple[str, ...]], task: Task) -> Split:
    columns = list(zip(*values, strict=True))
    index = {name: i for i, name in enumerate(task.labels)}
    if task.regression:
        labels = np.array([float(value or "nan") for value in columns[-1]], np.float32)
    else:
        labels = np.array([index.get(value, -1) for value in columns[-1]], np.int64)
    return Split(list(columns[0]), list(columns[1]) if task.pair else None, labels, np.arange(len(values)))


def _teacher_speeds(settings: FitSettings, task: Task, rows: Split) -> dict[str, object]:
    """Return the fields of Speeds that are the teacher's."""
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
    starts = np.linspace(0, max(0, len(by_length) - _BATCH), _BATCHES + 1)[1:].astype(int)  # the longer ones weigh more
    batches = [by_length[start : start + _BATCH] for start in starts.tolist()]
    pieces = sum(int(encoded.lengths[batch].sum()) for batch in batches)
    classes = torch.zeros(_BATCH, dtype=torch.float32 if task.regression else torch.int64, device=device)

    def step(batch: np.ndarray) -> None:
        optimizer.zero_grad()
        label_loss(teacher.forward(encoded, batch), classes[: len(batch)]).backward()
        optimizer.step()

    teacher.model.train()
    step(batches[0])  # the first one loads more of PyTorch
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
