"""Training in straightforward PyTorch: DataLoader, a collate function, packed sequences, batch size 50."""

import itertools
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

from common.kinds.ragged import EncodedText

BATCH = 50
Row = tuple[list, list[float]]
"""Token ids (or triples of hash codes) of a sentence, and the teacher's logits."""


class PlainHash(nn.Module):
    """Hash embeddings with three codes per word (see compression.tokenizers.hash)."""

    def __init__(self, rows: int, importance: int, dim: int) -> None:
        super().__init__()
        self.table, self.importance = nn.Embedding(rows, dim), nn.Embedding(3 * importance, 1)
        self.size = importance
        nn.init.normal_(self.table.weight, std=0.1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [batch, time, 3] -> [batch, time, dim]."""
        sectors = torch.arange(3) * self.size
        return (self.importance(ids % self.size + sectors) * self.table(ids // self.size)).sum(2)


class PlainStudent(nn.Module):
    """Embedding, a recurrent encoder over packed sequences or a mean, and two linear layers."""

    def __init__(self, embedding: nn.Module, dim: int, encoder: nn.RNNBase | None, cls_hidden_dim: int) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        width = 2 * encoder.hidden_size if encoder else dim
        self.classifier = nn.Sequential(nn.Linear(width, cls_hidden_dim), nn.ReLU(), nn.Linear(cls_hidden_dim, 2))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """ids: int64 [batch, time] or [batch, time, 3], lengths: int64 [batch] -> logits [batch, 2]."""
        vectors = self.embedding(ids)
        if self.encoder is None:
            inside = torch.arange(vectors.shape[1]) < lengths[:, None]
            return self.classifier((vectors * inside[..., None]).sum(1) / lengths[:, None])
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        state = self.encoder(packed)[1]
        last = state[0] if isinstance(state, tuple) else state
        return self.classifier(torch.cat([last[0], last[1]], 1))


def rows_of_lists(encoded: EncodedText, logits: np.ndarray) -> list[Row]:
    """Return the rows as Python lists, as a Dataset holds them."""
    ids = encoded.ids.tolist() if encoded.ids.shape[1] > 1 else encoded.ids[:, 0].tolist()
    texts = [ids[start:end] for start, end in itertools.pairwise(encoded.offsets.tolist())]
    return list(zip(texts, logits.tolist(), strict=True))


def collate(batch: list[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return padded ids, lengths and logits of a batch."""
    ids = [torch.tensor(row[0]) for row in batch]
    lengths = torch.tensor([len(row) for row in ids])
    return pad_sequence(ids, batch_first=True), lengths, torch.tensor([row[1] for row in batch])


def train_plainly(
    student: PlainStudent, rows: list[Row], optimizer: torch.optim.Optimizer, epochs: int
) -> tuple[float, float]:
    """Train on the mean squared error of logits with a linearly decaying learning rate.

    Returns the seconds and the last epoch's loss.
    """
    loader = DataLoader(rows, batch_size=BATCH, shuffle=True, collate_fn=collate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.01, total_iters=epochs * len(loader))
    started, losses = time.perf_counter(), []
    for _ in range(epochs):
        losses = []
        for ids, lengths, logits in loader:
            loss = nn.functional.mse_loss(student(ids, lengths), logits)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    return time.perf_counter() - started, float(np.mean(losses))


def mean_loss(student: PlainStudent, rows: list[Row]) -> float:
    """Return the mean squared error over rows."""
    with torch.inference_mode():
        batches = DataLoader(rows, batch_size=BATCH, collate_fn=collate)
        losses = [
            nn.functional.mse_loss(student(ids, lengths), logits, reduction="sum").item()
            for ids, lengths, logits in batches
        ]
    return sum(losses) / (2 * len(rows))
