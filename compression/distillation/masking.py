"""Masked language modelling for a transformer student: masked pieces, and the head that predicts them."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from compression.students.student import Student
from compression.students.transformer import Trace

MASKED = 0.15
"""Share of pieces to predict. Of these 80 % are masked, 10 % replaced by another piece, 10 % left (Devlin et al., 2019,
section 3.1)."""


@dataclasses.dataclass(frozen=True)
class Masked:
    """A batch with masked pieces.

    ids: int64 [batch, time, 1], some replaced by other pieces; lengths: int64 [batch]; hidden: bool [batch, time], true
    for a mask; chosen: bool [batch, time], true for pieces to predict, masks too; targets: int64 [chosen pieces].
    """

    ids: torch.Tensor
    lengths: torch.Tensor
    hidden: torch.Tensor
    chosen: torch.Tensor
    targets: torch.Tensor


def mask(ids: torch.Tensor, lengths: torch.Tensor, pieces: int) -> Masked:
    """Mask pieces of ids [batch, time, 1], at least one in all, by draws of PyTorch's CPU generator.

    pieces: size of the vocabulary, from which replacements are drawn.
    """
    draws, kinds = torch.rand(2, *ids.shape[:2]).to(ids.device)
    present = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    chosen = present & (draws < MASKED)
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
    """A student's embedding and encoder with a head that predicts pieces (ALBERT's, which shares the embedding)."""

    def __init__(self, student: Student, width: int, embedding_dim: int) -> None:
        """student: a transformer of word pieces, `width` wide, trained in place."""
        super().__init__()
        self.embedding, self.encoder, self.dropout = student.embedding, student.encoder, student.dropout
        self.mask = nn.Parameter(torch.randn(embedding_dim) * 0.02)
        self.transform = nn.Sequential(nn.Linear(width, embedding_dim), nn.GELU(), nn.LayerNorm(embedding_dim))
        self.bias = nn.Parameter(torch.zeros(len(self._table())))

    def forward(self, batch: Masked) -> tuple[torch.Tensor, Trace]:
        """Return the logits of the chosen pieces, [chosen pieces, vocabulary], and the encoder's states."""
        vectors = torch.where(batch.hidden[..., None], self.mask, self.embedding(batch.ids))
        trace = self.encoder.trace((self.dropout(vectors), batch.lengths))
        # The first state is that of the special token in front.
        states = trace.hidden[-1][:, 1 : 1 + batch.chosen.shape[1]]
        # Embeddings are drawn with a standard deviation of 1: without the root, predictions start far too sure.
        table = self._table() / self._table().shape[1] ** 0.5
        return self.transform(states[batch.chosen]) @ table.T + self.bias, trace

    def _table(self) -> torch.Tensor:
        return self.embedding.table.weight.dense()
