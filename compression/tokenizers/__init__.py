"""Tokenizers of students: those of the runtime, applied to many sentences at a time, and their files."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from common.errors import UserError
from common.kinds.ragged import EncodedText

UNKNOWN = 0
"""Row of the pieces that have no row of their own."""
UNCUT = 2**31
"""A number of tokens at which no text is cut."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """Turns text into token ids."""

    max_tokens: int
    """Number of tokens at which a text is cut."""
    word_format: str
    """Format of words that are encoded one by one: with the space, if that is a token."""
    identity: str
    """Equal for tokenizers that give the same tokens up to `max_tokens`."""
    unknown: Sequence[int] = (UNKNOWN,)
    """The token of text that has no other."""

    def encode(self, sentences: list[str]) -> EncodedText:
        """Return the token ids of every sentence; an empty one gets one token."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files, if it has any, into a model folder."""


class PieceTokenizer(Tokenizer):
    """Splits text into the pieces of a vocabulary, each with a row of the embedding's table. Rows can be removed."""

    file: ClassVar[str]
    """Name of its file in a model folder."""
    pieces: list[str]
    """By row."""
    runtime: Any
    """The runtime's tokenizer."""

    @classmethod
    def load(cls, folder: Path, vocab_size: int, max_tokens: int) -> PieceTokenizer:
        """Return a saved tokenizer. Raises UserError when it is missing, malformed or not of this size."""
        tokenizer = cls.read(folder / cls.file, max_tokens)
        if tokenizer.vocab_size != vocab_size:
            raise UserError(f"{folder / cls.file}: {tokenizer.vocab_size} pieces, the student has {vocab_size}")
        return tokenizer

    @classmethod
    def read(cls, file: Path, max_tokens: int) -> PieceTokenizer:
        """Return the tokenizer of a file. Raises UserError when it is missing or malformed."""
        raise NotImplementedError

    @property
    def word_format(self) -> str:
        return self.runtime.word_format

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding's table."""
        return len(self.pieces)

    @property
    def droppable(self) -> np.ndarray:
        """Rows that can be removed, bool [rows]: text has smaller pieces instead, or becomes unknown."""
        return np.arange(self.vocab_size) != UNKNOWN

    def encode(self, sentences: list[str]) -> EncodedText:
        """Return one row per piece, width 1."""
        rows = [self.runtime.encode(sentence) for sentence in sentences]
        return EncodedText.from_lists(rows, width=1, empty=self.unknown, max_tokens=self.max_tokens)

    def without(self, rows: Collection[int]) -> PieceTokenizer:
        """Return a tokenizer without some rows; the others keep their order."""
        raise NotImplementedError


class TeacherTokenizer(PieceTokenizer):
    """Splits text into the pieces of a teacher: BERT's word pieces, or RoBERTa's byte-level pairs."""

    begins_word: np.ndarray
    """Rows of pieces that begin a word, bool [rows]."""

    def cut_at(self, max_tokens: int) -> TeacherTokenizer:
        """Return the same tokenizer with another length at which text is cut."""
        tokenizer = copy.copy(self)
        tokenizer.max_tokens = max_tokens
        return tokenizer


def are_texts(value: Any) -> bool:
    """Return whether a value of a JSON file is a list of texts, without lone surrogates, which UTF-8 cannot hold."""
    return isinstance(value, list) and all(isinstance(item, str) and not _SURROGATE.search(item) for item in value)
