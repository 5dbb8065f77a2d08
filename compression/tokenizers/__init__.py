"""Tokenizers of students: those of the runtime, applied to many sentences at a time, and their files."""

from __future__ import annotations

from pathlib import Path

from common.data.ragged import EncodedText


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
