"""Hash embeddings (Svenstrup et al., 2017): no vocabulary; a word's vector is a weighted sum of three shared ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

HASHES = 3
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*|[^\w\s]|_")


def split_words(text: str) -> list[str]:
    """Return lower-cased words and single punctuation marks. "It's fun!" -> ["it's", "fun", "!"]."""
    return _WORD.findall(text.lower())


def hash_codes(words: Sequence[str], count: int) -> np.ndarray:
    """Return three codes below `count` per word, int64 [words, 3]: MD5 of the word with 0, 1 or 2 appended (section
    6.1.5 of the thesis); not a security use."""
    from hashlib import md5  # slow to import: it loads OpenSSL

    found = [
        int.from_bytes(md5(f"{word}{i}".encode(), usedforsecurity=False).digest()[:8], "little") % count
        for word in words
        for i in range(HASHES)
    ]
    return np.array(found, np.int64).reshape(-1, HASHES)


class HashedWords:
    """Words as ids in the order in which they first appear, and the vectors of these words."""

    word_format = "{}"
    most_values = 3 << 20
    """Numbers in the table that is kept from one batch to the next."""

    def __init__(self, vocab_size: int, shared: np.ndarray, importance: np.ndarray, max_tokens: int) -> None:
        """shared: float32 [rows, dim]; importance: float32 [3 vocab_size, 1]."""
        self._vocab_size, self._shared, self._importance = vocab_size, shared, importance[:, 0]
        self._max_tokens = max_tokens
        self._start()

    def _start(self) -> None:
        self._ids = {"": 0}  # the token of an empty text
        self._table = np.zeros((0, self._shared.shape[1]), np.float32)

    def encode(self, text: str) -> list[int]:
        """Return one id per word or sign. Ids are valid until `forget` is called."""
        words = split_words(text)[: self._max_tokens]
        ids = self._ids
        try:
            return [ids[word] for word in words]
        except KeyError:
            return [ids.setdefault(word, len(ids)) for word in words]

    def table(self) -> np.ndarray:
        """Return the vectors of all words so far, float32 [words, dim]."""
        table = self._table
        if len(table) < len(self._ids):
            new = list(self._ids)[len(table) :]
            table = self._table = np.concatenate([table, self._vectors(new)])
        return table

    def forget(self) -> None:
        """Remove all words from the cache if there are too many."""
        if self._table.size > self.most_values:
            self._start()

    def _vectors(self, words: list[str]) -> np.ndarray:
        vectors = np.zeros((len(words), self._shared.shape[1]), np.float32)
        codes = hash_codes(words, self._vocab_size * len(self._shared))
        for sector in range(HASHES):
            weights = self._importance[codes[:, sector] % self._vocab_size + sector * self._vocab_size]
            vectors += weights[:, None] * self._shared[codes[:, sector] // self._vocab_size]
        return vectors
