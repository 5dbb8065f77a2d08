"""Characters: 33 ids for letters and signs (section 6.1.5 of the thesis)."""

from __future__ import annotations

import numpy as np

from common.kinds.ragged import EncodedText
from compression.runtime import ALPHABET, Characters
from compression.tokenizers import Tokenizer

OTHER = 0
"""Id of every character that is not in ALPHABET."""
VOCABULARY_SIZE = 1 + len(ALPHABET)


class CharTokenizer(Tokenizer):
    """Lower-cased characters without accents. Nothing is learned or stored."""

    word_format = Characters.word_format

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens, self.identity = max_tokens, "char"
        self._characters = Characters()

    def encode(self, sentences: list[str]) -> EncodedText:
        """Return one id per character, width 1."""
        encoded = [self._characters.encode(sentence) for sentence in sentences]
        ids = np.frombuffer(b"".join(encoded), np.uint8).astype(np.int32)[:, None]
        return EncodedText.from_flat(ids, np.array([*map(len, encoded)], np.int64), (OTHER,), self.max_tokens)
