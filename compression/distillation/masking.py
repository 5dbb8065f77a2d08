"""Masked language modelling for a transformer student: masked pieces, and the head that predicts them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from compression.students.encoders import padding_mask
from compression.students.student import Student
from compression.students.transformer import Trace
from compression.tokenizers.teacher_vocabulary import TeacherVocabulary

MASKED = 0.15
"""Share of pieces to predict: 80 % of them are masked, 10 % replaced by another piece, 10 % unchanged (Devlin et al.,
2019, section 3.1)."""


@dataclasses.dataclass(frozen=True)
class Masked:
    """A batch with masked pieces.

    ids: int64 [batch, time, 1], some replaced by other pieces; lengths: int64 [batch]; hidden: bool [batch, time], true
    at masked pieces; chosen: bool [batch, time], true at pieces to predict, masked or not; pieces: ids before.
    """

    ids: torch.Tensor
    lengths: torch.Tensor
    hidden: torch.Tensor
    chosen: torch.Tensor
    pieces: torch.Tensor

    @property
    def targets(self) -> torch.Tensor:
        """The pieces to predict, int64 [chosen pieces]."""
        return self.pieces[..., 0][self.chosen]

    def take(self, rows: slice) -> Masked:
        """Return some texts of the batch."""
        return Masked(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


def mask(ids: torch.Tensor, lengths: torch.Tensor, pieces: int) -> Masked:
    """Mask pieces of ids [batch, time, 1], at least one per batch, drawn by PyTorch's CPU generator.

    pieces: size of the vocabulary, from which replacements are drawn.
    """
    draws, kinds = torch.rand(2, *ids.shape[:2]).to(ids.device)
    chosen = padding_mask(ids, lengths)[..., 0] & (draws < MASKED)
    chosen[0, 0] |= ~chosen.any()
    others = torch.randint(pieces, ids.shape).to(ids.device)
    replaced = chosen & (kinds >= 0.8) & (kinds < 0.9)
    return Masked(
        ids=torch.where(replaced[..., None], others, ids),
        lengths=lengths,
        hidden=chosen & (kinds < 0.8),
        chosen=chosen,
        pieces=ids,
    )


def at_chosen(states: torch.Tensor, sentences: Sequence[Masked]) -> torch.Tensor:
    """Return the states of all chosen pieces, [batch, time, width] -> [chosen pieces, width], sentence by sentence.

    states: those of whole texts, with a special token at the start and one after each sentence.
    """
    parts, starts = [], torch.ones_like(sentences[0].lengths)
    for sentence in sentences:
        rows, steps = sentence.chosen.nonzero(as_tuple=True)
        parts.append(states[rows, starts[rows] + steps])
        starts = starts + sentence.lengths + 1
    return torch.cat(parts)


class MaskedStudent(nn.Module):
    """A student's embedding and encoder with a head that predicts pieces (ALBERT's, which shares the embedding)."""

    def __init__(self, student: Student, width: int, embedding_dim: int, scale: float, pairs: bool) -> None:
        """student: a transformer of word pieces, `width` wide, trained in place; scale: divisor of the logits.

        pairs: whether to add BERT's head of two classes on the state of the first token.
        """
        super().__init__()
        self.embedding, self.encoder, self.dropout = student.embedding, student.encoder, student.dropout
        self.mask = nn.Parameter(torch.randn(embedding_dim) * 0.02)
        self.transform = nn.Sequential(nn.Linear(width, embedding_dim), nn.GELU(), nn.LayerNorm(embedding_dim))
        self.bias = nn.Parameter(torch.zeros(len(self._table())))
        self.scale = scale
        self.pairs = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)) if pairs else None

    def forward(self, sentences: Sequence[Masked]) -> tuple[torch.Tensor, Trace]:
        """Return the logits of the chosen pieces, [chosen pieces, vocabulary], and the encoder's states.

        sentences: one, or two for pairs.
        """
        trace = self.encoder.trace(*((self.dropout(self._vectors(text)), text.lengths) for text in sentences))
        states = at_chosen(trace.hidden[-1], sentences)
        return self.transform(states) @ (self._table() / self.scale).T + self.bias, trace

    def start_from(self, tensors: Mapping[str, torch.Tensor], vocabulary: TeacherVocabulary) -> None:
        """Copy a teacher's mask vector and, if both embeddings have the same width, its head, in place.

        The embedding is copied by `start_from_layers`. tensors: the teacher's, by BERT's names (`as_bert`).
        """
        vector = tensors["embeddings.word_embeddings.weight"][vocabulary.mask]
        factorised = len(self.mask) < len(vector)
        with torch.no_grad():
            self.mask.copy_(vector @ self.encoder.projection.weight.dense() if factorised else vector)
            if "cls.predictions.bias" not in tensors or factorised:
                return
            self.bias.copy_(tensors["cls.predictions.bias"][torch.from_numpy(vocabulary.rows)])
            for layer, name in ((self.transform[0], "dense"), (self.transform[2], "LayerNorm")):
                for kind, parameter in layer.named_parameters():
                    parameter.copy_(tensors[f"cls.predictions.transform.{name}.{kind}"])

    def _vectors(self, sentence: Masked) -> torch.Tensor:
        return torch.where(sentence.hidden[..., None], self.mask, self.embedding(sentence.ids))

    def _table(self) -> torch.Tensor:
        return self.embedding.table.weight.dense()
