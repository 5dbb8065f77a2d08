"""Embeddings: the tokenizer that gives a student its ids, and the torch module that turns ids into vectors."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from compression.runtime import HASHES
from compression.students.layers import Table
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec
from compression.tokenizers import PieceTokenizer, Tokenizer
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bytelevel import ByteLevelTokenizer
from compression.tokenizers.ngrams import NGramTokenizer
from compression.tokenizers.unlearned import CharTokenizer, HashTokenizer
from compression.tokenizers.wordpiece import WordPieceTokenizer

SMALL_STD = 0.1
"""Standard deviation of initial vectors of hashes and n-grams: with 1, PyTorch's, the random start outweighs what is
learned."""


def load_tokenizer(settings: StudentSettings, folder: Path) -> Tokenizer:
    """Return the tokenizer saved in a model folder. Raises UserError when its files are missing or damaged."""
    if settings.embedding_type == "char":
        return CharTokenizer(settings.max_tokens)
    if settings.embedding_type == "hash":
        return HashTokenizer(settings.vocab_size, settings.hash_ratio, settings.max_tokens)
    kind: type[PieceTokenizer] = NGramTokenizer if settings.embedding_type == "ngrams" else BpeTokenizer
    if settings.embedding_type == "wordpiece":
        kind = ByteLevelTokenizer if (folder / ByteLevelTokenizer.file).exists() else WordPieceTokenizer
    return kind.load(folder, settings.vocab_size, settings.max_tokens)


def make_embedding(spec: StudentSpec) -> nn.Module:
    """Return a fresh embedding module: ids [batch, time, width] -> vectors [batch, time, embedding_dim]."""
    settings = spec.settings
    if settings.embedding_type == "hash":
        return HashEmbedding(settings.vocab_size, spec.table_rows, settings.embedding_dim)
    std = SMALL_STD if settings.embedding_type == "ngrams" else 1.0
    return Embedding(spec.table_rows, settings.embedding_dim, std)


class Embedding(nn.Module):
    """A table of one vector per id: byte pairs, a teacher's pieces, n-grams, characters."""

    def __init__(self, rows: int, dim: int, std: float) -> None:
        super().__init__()
        self.table = Table(rows, dim, std)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [batch, time, 1] -> [batch, time, dim]."""
        return self.table(ids[..., 0])


class HashEmbedding(nn.Module):
    """Importance scalars in three sectors, and one table of shared vectors: a word's vector is a weighted sum."""

    def __init__(self, vocab_size: int, shared: int, dim: int) -> None:
        """vocab_size: importance scalars per sector; shared: vectors in the table."""
        super().__init__()
        self.vocab_size = vocab_size
        self.importance = Table(HASHES * vocab_size, 1)
        self.table = Table(shared, dim, SMALL_STD)
        self.register_buffer("sector", torch.arange(HASHES) * vocab_size, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [batch, time, 3], code = row of table * vocab_size + importance -> [batch, time, dim]."""
        weights = self.importance(ids % self.vocab_size + self.sector)  # [batch, time, 3, 1]
        vectors = self.table(ids // self.vocab_size)  # [batch, time, 3, dim]
        return (weights * vectors).sum(2)
