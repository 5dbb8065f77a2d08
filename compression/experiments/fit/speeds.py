"""Measurements of this machine: rows split a second, the teacher's speed, and the cost of training a student."""

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
from common.devices import pick_device, pick_dtype, threads
from common.errors import UserError
from common.progress import say
from common.teachers.finetune import backend
from common.teachers.huggingface.teacher import HuggingFaceTeacher
from common.teachers.settings import is_fairseq
from common.training.optimizers import eager
from compression.experiments.fit.candidates import Candidate
from compression.experiments.fit.halving import Cost
from compression.experiments.fit.plan import LEAST_SECONDS, Speeds
from compression.experiments.fit.settings import FitSettings
from compression.students.batch import Batch
from compression.students.settings import StudentSettings
from compression.students.student import Student

_BATCHES, _BATCH = 3, 16
_LENGTH = 128
_SLOWER = 1.15
"""Factor on measured times, because the machine may be busier later."""
_PIECES_A_WORD = 1.7
"""Approximate number of byte pairs per word for a small vocabulary."""
_STEPS = 2
_LOOP = 1.4
"""Factor by which a training step, including its share of validation, takes longer than a measured step."""
_TOKENIZED = 400_000
"""Approximate words tokenized per second on a machine whose libraries take five seconds to load."""
_USUAL_START = 5.0


def measure(settings: FitSettings, task: Task, start: float, left: float) -> Speeds:
    """Return the speeds. task: a task with some rows; start: seconds for loading the libraries; left: seconds left."""
    rows = read_source(Path(task.source.folder) / task.source.files["all"], task)
    began = time.perf_counter()
    with contextlib.suppress(UserError):  # too few rows in this sample; the time counts
        make_splits({"all": rows}, task.model_copy(update={"validation": None, "test": None}), settings.seed)
    # Reading, writing and the report also take time: a quarter of the measured speed is assumed.
    prepare = len(rows) / (4 * (time.perf_counter() - began))
    words = sum(len(text.split()) for column in rows.sentences() for text in column) / len(rows)
    speeds = Speeds(start=start, prepare=prepare, words=words)
    if left < LEAST_SECONDS or is_fairseq(settings.encoder):
        return speeds
    return speeds.model_copy(update=_teacher_speeds(settings, task, rows))


def _teacher_speeds(settings: FitSettings, task: Task, rows: Split) -> dict[str, object]:
    """Return the fields of Speeds that describe the teacher."""
    began = time.perf_counter()
    device = pick_device(settings.cpu)
    source, _ = backend(settings.encoder).resolve(settings.encoder, settings.paths.downloads())
    dtype = pick_dtype("auto", device)
    teacher = HuggingFaceTeacher(source, task.kind, task.labels, device, dtype, _LENGTH, new_head=True)
    teacher.model.get_input_embeddings().requires_grad_(False)
    trained = [parameter for parameter in teacher.model.parameters() if parameter.requires_grad]
    optimizer = eager(torch.optim.AdamW)(trained, lr=1e-4)
    load = time.perf_counter() - began
    say(f"measuring the speed of {settings.encoder} on these rows")
    some = np.linspace(0, len(rows) - 1, min(len(rows), 200)).astype(np.int64)  # from all parts of the file
    encoded = teacher.encode(rows.take(some))
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


def measured_cost(
    candidate: Candidate, train: Split, rows: int, batch_size: int, outputs: int, start: float, cpu: bool
) -> Cost:
    """Return the cost of training a candidate, estimated from a few steps on rows of the same lengths.

    train: rows of the task; rows: number of rows of an epoch, including augmented ones; start: seconds that the
    libraries took to load.
    """
    per_word = _PIECES_A_WORD if candidate.embedding_type == "bpe" else 1.0
    words = np.array([[max(1, len(text.split())) for text in texts] for texts in zip(*train.sentences(), strict=True)])
    size = np.minimum(np.ceil(words * per_word), candidate.max_tokens).astype(np.int64)  # tokens of each text
    rng = np.random.default_rng(0)
    device = pick_device(cpu)
    shape = StudentSettings(**{k: v for k, v in candidate.flags().items() if k != "student_arch"})
    student = Student(candidate.arch, shape, outputs, train.sentence2 is not None).to(device)
    optimizer = eager(torch.optim.AdamW)(student.parameters(), lr=1e-3, fused=True)
    by_length = np.argsort(size.sum(1), kind="stable")
    seconds: dict[int, float] = {}
    for number in sorted({1, torch.get_num_threads()}):
        with threads(number):
            for step in range(_STEPS + 1):
                first = int(rng.integers(0, max(1, len(size) - batch_size + 1)))
                chosen = size[by_length[first : first + batch_size]]
                began = time.perf_counter()
                optimizer.zero_grad()
                student(_batch(chosen, candidate, device)).square().mean().backward()
                optimizer.step()
                if step:
                    seconds[number] = seconds.get(number, 0.0) + (time.perf_counter() - began) / _STEPS
    fastest = min(seconds, key=lambda number: seconds[number])
    epoch = seconds[fastest] * rows / min(batch_size, len(size)) * _LOOP
    tokens = size.sum() / _PIECES_A_WORD * rows / len(train) / _TOKENIZED * start / _USUAL_START
    return Cost(fixed=round(0.3 + 0.05 * start, 3), tokens=round(tokens, 3), epoch=round(epoch, 4), threads=fastest)


def _batch(size: np.ndarray, candidate: Candidate, device: torch.device) -> Batch:
    """Return a batch of rows that repeat one token. size: numbers of tokens, int64 [batch, texts]."""
    width = 3 if candidate.embedding_type == "hash" else 1

    def one(column: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.zeros((len(column), int(column.max()), width), dtype=torch.int64, device=device)
        return ids, torch.from_numpy(column).to(device)

    columns = [one(size[:, index]) for index in range(size.shape[1])]
    return Batch(*columns[0], Batch(*columns[1]) if len(columns) == 2 else None)
