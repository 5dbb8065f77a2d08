"""Hash embeddings (Svenstrup, Hansen and Winther, 2017) with three hashes: no vocabulary to store.

A word's vector is a weighted sum of three vectors from a small shared table. Hash i of the word picks one of
`vocab_size` importance scalars of its own sector and one of `vocab_size / hash_ratio` shared vectors.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from common.data.ragged import EncodedText
from common.data.text import split_words
from compression.students.layers import Table

if TYPE_CHECKING:
    from compression.students.settings import StudentSettings

HASHES = 3
INITIAL_STD = 0.1


def shared_rows(vocab_size: int, hash_ratio: int) -> int:
    """Vectors in the shared table. vocab_size 5000 and ratio 10 give 500, and the parameter counts of table 7.1."""
    return max(1, vocab_size // hash_ratio)


class HashTokenizer:
    """Lower-cased words, each given as three hash codes. Nothing is learned or stored."""

    after_word = ""

    def __init__(self, vocab_size: int, hash_ratio: int, max_tokens: int) -> None:
        self.codes = vocab_size * shared_rows(vocab_size, hash_ratio)
        self.max_tokens = max_tokens
        self._hash = functools.lru_cache(maxsize=1 << 17)(self._hash_word)

    @classmethod
    def load(cls, settings: StudentSettings, folder: Path) -> HashTokenizer:
        """There is nothing to read; the signature is every tokenizer's."""
        return cls(settings.vocab_size, settings.hash_ratio, settings.max_tokens)

    def save(self, folder: Path) -> None:
        """There is nothing to write."""

    @property
    def identity(self) -> str:
        """Its two numbers say it all."""
        return f"hash {self.codes} {self.max_tokens}"

    def encode(self, sentences: list[str]) -> EncodedText:
        """Three codes a word, width 3."""
        places: dict[str, int] = {}  # of each different word, in the order of their coming
        words = [[places.setdefault(word, len(places)) for word in split_words(sentence)] for sentence in sentences]
        codes = np.array([self._hash(word) for word in places], np.int32).reshape(-1, HASHES)
        numbers = EncodedText.from_lists(words, width=1, empty=(len(places),), max_tokens=self.max_tokens)
        return EncodedText(np.append(codes, [self._hash("")], 0)[numbers.ids[:, 0]].astype(np.int32), numbers.offsets)

    def _hash_word(self, word: str) -> tuple[int, ...]:
        """MD5 of the word with 0, 1 or 2 appended, as the thesis does (section 6.1.5); not a security use."""
        digests = (hashlib.md5(f"{word}{i}".encode(), usedforsecurity=False).digest() for i in range(HASHES))
        return tuple(int.from_bytes(digest[:8], "little") % self.codes for digest in digests)


class HashEmbedding(nn.Module):
    """Importance scalars in three sectors, and one table of shared vectors."""

    def __init__(self, settings: StudentSettings) -> None:
        super().__init__()
        self.vocab_size = settings.vocab_size
        rows = shared_rows(settings.vocab_size, settings.hash_ratio)
        self.importance = Table(HASHES * settings.vocab_size, 1)
        # Small vectors to start from: with PyTorch's N(0, 1) a word's hash decides more than what is learned of it.
        self.table = Table(rows, settings.embedding_dim, INITIAL_STD)
        self.register_buffer("sector", torch.arange(HASHES) * settings.vocab_size, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [batch, time, 3], code = row of table * vocab_size + importance -> [batch, time, dim]."""
        weights = self.importance(ids % self.vocab_size + self.sector)  # [batch, time, 3, 1]
        vectors = self.table(ids // self.vocab_size)  # [batch, time, 3, dim]
        return (weights * vectors).sum(2)
