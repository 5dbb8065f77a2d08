"""Embeddings: each file holds a tokenizer and the torch module that turns its token ids into vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from compression.tokenizers.bpe import BpeEmbedding, BpeTokenizer
from compression.tokenizers.char import CharEmbedding, CharTokenizer
from compression.tokenizers.hash import HashEmbedding, HashTokenizer
from compression.tokenizers.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from torch import nn

    from common.data.ragged import EncodedText
    from compression.students.settings import StudentSettings


class Tokenizer(Protocol):
    """What students ask of a tokenizer."""

    max_tokens: int
    """Tokens that a text is cut at."""
    after_word: str
    """What stands after each word where words are encoded one by one: the space, where that is a token."""

    @property
    def identity(self) -> str:
        """Equal for tokenizers that give the same tokens."""
        ...

    def encode(self, sentences: list[str]) -> EncodedText:
        """Token ids of every sentence; an empty one gets one token."""
        ...

    def save(self, folder: Path) -> None:
        """Write what `load` needs into a model folder."""
        ...


def load_tokenizer(settings: StudentSettings, folder: Path) -> Tokenizer:
    """The tokenizer saved in a model folder. Raises UserError when its files are missing or damaged."""
    kinds = {"bpe": BpeTokenizer, "hash": HashTokenizer, "char": CharTokenizer, "wordpiece": WordPieceTokenizer}
    return kinds[settings.embedding_type].load(settings, folder)


def make_embedding(settings: StudentSettings) -> nn.Module:
    """A fresh embedding module: ids [batch, time, width] -> vectors [batch, time, embedding_dim]."""
    # One vector a piece, whatever the pieces are.
    kinds = {"bpe": BpeEmbedding, "hash": HashEmbedding, "char": CharEmbedding, "wordpiece": BpeEmbedding}
    return kinds[settings.embedding_type](settings)
