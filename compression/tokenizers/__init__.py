"""Tokenizers of students: the runtime's, over many sentences at a time, with their files."""

from __future__ import annotations

from pathlib import Path

from common.data.ragged import EncodedText


class Tokenizer:
    """Turns text into token ids."""

    max_tokens: int
    """Tokens that a text is cut at."""
    word_format: str
    """How a word is written where words are encoded one by one: with the space, where that is a token."""
    identity: str
    """Equal for tokenizers that give the same tokens."""

    def encode(self, sentences: list[str]) -> EncodedText:
        """Return the token ids of every sentence; an empty one gets one token."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Write the tokenizer's files, if it has any, into a model folder."""
