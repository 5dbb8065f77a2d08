"""Estimates of a candidate's training time, from a few steps on rows of the same lengths."""

from __future__ import annotations

import time

import numpy as np
import torch

from common.data.split import Split
from common.devices import pick_device, threads
from common.training.optimizers import eager
from compression.experiments.fit.candidates import Candidate
from compression.experiments.fit.halving import Cost
from compression.students.batch import Batch
from compression.students.settings import StudentSettings
from compression.students.student import Student

PIECES_A_WORD = 1.7
"""Approximate number of byte pairs per word for a small vocabulary."""
_STEPS = 2
_LOOP = 1.4
"""Factor by which a training step, including its share of validation, takes longer than a measured step."""
_TOKENIZED = 400_000
"""Approximate words tokenized per second on a machine whose libraries take five seconds to load."""
_USUAL_START = 5.0


def lengths(train: Split, candidate: Candidate) -> np.ndarray:
    """Return the approximate number of tokens of each text of each row, int64 [n, texts]."""
    per_word = PIECES_A_WORD if candidate.embedding_type == "bpe" else 1.0
    words = np.array([[max(1, len(text.split())) for text in texts] for texts in zip(*train.sentences(), strict=True)])
    return np.minimum(np.ceil(words * per_word), candidate.max_tokens).astype(np.int64)


def measured_cost(
    candidate: Candidate, train: Split, rows: int, batch_size: int, outputs: int, start: float, cpu: bool
) -> Cost:
    """Return the estimated cost of training a candidate.

    train: rows of the task; rows: number of rows of an epoch, including augmented ones; start: seconds that the
    libraries took to load.
    """
    size = lengths(train, candidate)
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
    words = size.sum() / PIECES_A_WORD * rows / len(train)
    tokens = words / _TOKENIZED * start / _USUAL_START
    return Cost(fixed=round(0.3 + 0.05 * start, 3), tokens=round(tokens, 3), epoch=round(epoch, 4), threads=fastest)


def _batch(size: np.ndarray, candidate: Candidate, device: torch.device) -> Batch:
    """Return a batch of rows that repeat one token. size: numbers of tokens, int64 [batch, texts]."""
    width = 3 if candidate.embedding_type == "hash" else 1

    def one(column: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.zeros((len(column), int(column.max()), width), dtype=torch.int64, device=device)
        return ids, torch.from_numpy(column).to(device)

    columns = [one(size[:, index]) for index in range(size.shape[1])]
    return Batch(*columns[0], Batch(*columns[1]) if len(columns) == 2 else None)
