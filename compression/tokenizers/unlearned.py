"""Tokenizers without a vocabulary: characters, and hash codes of words (Svenstrup, Hansen and Winther, 2017).

Characters have 33 ids for letters and signs (section 6.1.5 of the thesis). Hash i of a word picks one of `vocab_size`
importance scalars of its own sector and one of `vocab_size / hash_ratio` shared vectors: code = row of the shared table
* vocab_size + row of the sector.
"""

from __future__ import annotations

import numpy as np

from common.errors import UserError
from common.kinds.ragged import EncodedText
from compression.runtime import ALPHABET, Characters, HashedWords, hash_codes
from compression.runtime.words import split_words
from compression.tokenizers import Tokenizer

VOCABULARY_SIZE = 1 + len(ALPHABET)


class CharTokenizer(Tokenizer):
    """Lower-cased characters without accents, one id each. Nothing is learned or stored."""

    word_format = Characters.word_format

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens, self.identity = max_tokens, "char"
        self._characters = Characters()

    def encode(self, sentences: list[str]) -> EncodedText:
        encoded = [self._characters.encode(sentence) for sentence in sentences]
        ids = np.frombuffer(b"".join(encoded), np.uint8).astype(np.int32)[:, None]
        return EncodedText.from_flat(ids, np.array([*map(len, encoded)], np.int64), self.unknown, self.max_tokens)


def shared_rows(vocab_size: int, hash_ratio: int) -> int:
    """Return the vectors in the shared table. 5000 and 10 give 500, and the parameter counts of table 7.1."""
    return max(1, vocab_size // hash_ratio)


class HashTokenizer(Tokenizer):
    """Lower-cased words, each as three hash codes. Nothing is learned or stored."""

    word_format = HashedWords.word_format

    def __init__(self, vocab_size: int, hash_ratio: int, max_tokens: int) -> None:
        """Raises UserError if a code would not fit into 32 bits."""
        self.codes = vocab_size * shared_rows(vocab_size, hash_ratio)
        self.max_tokens = max_tokens
        self.identity = f"hash {self.codes}"
        if self.codes > np.iinfo(np.int32).max:
            raise UserError(f"--vocab-size {vocab_size}: too large for hash embeddings of ratio {hash_ratio}")
        self.unknown = hash_codes([""], self.codes)[0].tolist()

    def encode(self, sentences: list[str]) -> EncodedText:
        index: dict[str, int] = {}  # distinct words, in order of appearance
        words = [[index.setdefault(word, len(index)) for word in split_words(sentence)] for sentence in sentences]
        encoded = EncodedText.from_lists(words, width=1, empty=(len(index),), max_tokens=self.max_tokens)
        codes = hash_codes([*index, ""], self.codes).astype(np.int32)
        return EncodedText(codes[encoded.ids[:, 0]], encoded.offsets)
