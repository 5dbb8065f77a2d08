"""Masked language modelling for a transformer student: which pieces are hidden, and the head that guesses them."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from compression.students.student import Student
from compression.students.transformer import Trace

MASKED = 0.15
"""Share of pieces to be guessed. Of these 80 % are masked, 10 % are another piece, 10 % are left (Devlin et al., 2019,
section 3.1)."""


@dataclasses.dataclass(frozen=True)
class Masked:
    """A batch in which pieces are hidden.

    ids: int64 [batch, time, 1], some replaced by other pieces; hidden: bool [batch, time], those a mask stands for;
    chosen: bool [batch, time], those to be guessed, hidden ones among them; targets: int64 [guesses], what they were.
    """

    ids: torch.Tensor
    lengths: torch.Tensor
    hidden: torch.Tensor
    chosen: torch.Tensor
    targets: torch.Tensor


def mask(ids: torch.Tensor, lengths: torch.Tensor, pieces: int) -> Masked:
    """Hide pieces of ids [batch, time, 1], at least one in all; drawn from PyTorch's generator for the CPU."""
    draws, kinds = torch.rand(2, *ids.shape[:2]).to(ids.device)
    inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    chosen = inside & (draws < MASKED)
    chosen[0, 0] |= ~chosen.any()
    others = torch.randint(pieces, ids.shape).to(ids.device)
    replaced = chosen & (kinds >= 0.8) & (kinds < 0.9)
    return Masked(
        ids=torch.where(replaced[..., None], others, ids),
        lengths=lengths,
        hidden=chosen & (kinds < 0.8),
        chosen=chosen,
        targets=ids[..., 0][chosen],
    )


class MaskedStudent(nn.Module):
    """A student's embedding and encoder with a head that guesses pieces (ALBERT's: through the embedding itself)."""

    def __init__(self, student: Student, width: int, embedding_dim: int) -> None:
        """student: a transformer of word pieces, `width` wide; it is trained in place."""
        super().__init__()
        self.embedding, self.encoder, self.dropout = student.embedding, student.encoder, student.dropout
        self.mask = nn.Parameter(torch.randn(embedding_dim) * 0.02)
        self.transform = nn.Sequential(nn.Linear(width, embedding_dim), nn.GELU(), nn.LayerNorm(embedding_dim))
        self.bias = nn.Parameter(torch.zeros(len(self._table())))

    def forward(self, batch: Masked) -> tuple[torch.Tensor, Trace]:
        """Logits over the pieces for each guess, [guesses, pieces], and what goes on inside."""
        vectors = torch.where(batch.hidden[..., None], self.mask, self.embedding(batch.ids))
        trace = self.encoder.trace((self.dropout(vectors), batch.lengths))
        # What stands first is no piece: a piece's state is one place further on.
        states = trace.hidden[-1][:, 1 : 1 + batch.chosen.shape[1]]
        # Embeddings are drawn with a standard deviation of 1: without the root, first guesses would be far too sure.
        table = self._table() / self._table().shape[1] ** 0.5
        return self.transform(states[batch.chosen]) @ table.T + self.bias, trace

    def _table(self) -> torch.Tensor:
        return self.embedding.table.weight.dense()
