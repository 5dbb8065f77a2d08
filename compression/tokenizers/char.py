"""Character embeddings: 33 vectors for letters and signs (section 6.1.5 of the thesis)."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from common.data.ragged import EncodedText
from compression.students.layers import Table

if TYPE_CHECKING:
    from compression.students.settings import StudentSettings

OTHER = 0
"""Index of every character that is not in ALPHABET."""
ALPHABET = " abcdefghijklmnopqrstuvwxyz'.,!?"
VOCABULARY_SIZE = 1 + len(ALPHABET)


class CharTokenizer:
    """Lower-cased characters, accents removed. Nothing is learned or stored."""

    after_word = " "

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._index = np.full(max(map(ord, ALPHABET)) + 2, OTHER, np.int32)  # the last one is all characters' beyond
        self._index[[ord(character) for character in ALPHABET]] = np.arange(1, VOCABULARY_SIZE)

    @classmethod
    def load(cls, settings: StudentSettings, folder: Path) -> CharTokenizer:
        """There is nothing to read; the signature is every tokenizer's."""
        return cls(settings.max_tokens)

    def save(self, folder: Path) -> None:
        """There is nothing to write."""

    @property
    def identity(self) -> str:
        """The alphabet is always the same."""
        return f"char {self.max_tokens}"

    def encode(self, sentences: list[str]) -> EncodedText:
        """One id a character, width 1."""
        plain = [_plain(sentence) for sentence in sentences]
        characters = np.frombuffer("".join(plain).encode("utf-32-le", "surrogatepass"), np.uint32)
        ids = self._index[np.minimum(characters, len(self._index) - 1)][:, None]
        return EncodedText.from_flat(ids, np.array([len(text) for text in plain], np.int64), (OTHER,), self.max_tokens)


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.lower().replace("’", "'"))
    return "".join(c for c in decomposed if not unicodedata.combining(c))


class CharEmbedding(nn.Module):
    """A table of 33 vectors."""

    def __init__(self, settings: StudentSettings) -> None:
        super().__init__()
        self.table = Table(VOCABULARY_SIZE, settings.embedding_dim)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [batch, time, 1] -> [batch, time, dim]."""
        return self.table(ids[..., 0])
