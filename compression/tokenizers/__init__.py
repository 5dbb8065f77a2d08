"""Tokenizers of students: those of the runtime, applied to many sentences at a time, and their files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from common.kinds.ragged import EncodedText


class Tokenizer:
    """Turns text into token ids."""

    max_tokens: int
    """Number of tokens at which a text is cut."""
    word_format: str
    """Format of words that are encoded one by one: with the space, if that is a token."""
    identity: str
    """Equal for tokenizers that give the same tokens."""

    def encode(self, sentences: list[str]) -> EncodedText:
        """Return the token ids of every sentence; an empty one gets one token."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files, if it has any, into a model folder."""


class PieceTokenizer(Tokenizer):
    """Splits text into the pieces of a vocabulary, each with a row of the embedding's table. Rows can be removed."""

    pieces: list[str]
    """By row."""
    vocab_size: int
    """Rows of the embedding's table."""
    droppable: np.ndarray
    """Whether each row can be removed, bool [rows]."""

    @classmethod
    def load(cls, folder: Path, vocab_size: int, max_tokens: int) -> PieceTokenizer:
        """Return a saved tokenizer. Raises UserError when it is missing, malformed or not of this size."""
        raise NotImplementedError

    def without(self, rows: Collection[int]) -> PieceTokenizer:
        """Return a tokenizer without some rows; the others keep their order."""
        raise NotImplementedError


class TeacherTokenizer(PieceTokenizer):
    """Splits text into the pieces of a teacher: BERT's word pieces, or RoBERTa's byte-level pairs."""

    begins_word: np.ndarray
    """Rows of pieces that begin a word, bool [rows]."""

    def cut_at(self, max_tokens: int) -> TeacherTokenizer:
        """Return the same tokenizer with another length at which text is cut."""
        raise NotImplementedError
