"""Hash embeddings (Svenstrup et al., 2017): no vocabulary; a word's vector is a weighted sum of three shared ones."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence

import numpy as np

from ..words import split_words

HASHES = 3


def hash_codes(words: Sequence[str], count: int) -> np.ndarray:
    """Return three codes below `count` per word, int64 [words, 3]: MD5 of the word with 0, 1 or 2 appended (section
    6.1.5 of the thesis); not a security use."""
    from hashlib import md5  # slow to import: it loads OpenSSL

    codes = [
        int.from_bytes(md5(f"{word}{i}".encode(), usedforsecurity=False).digest()[:8], "little") % count
        for word in words
        for i in range(HASHES)
    ]
    return np.array(codes, np.int64).reshape(-1, HASHES)


_GROWING = threading.Lock()
"""Held while words are added to a cache. One for all models: an object with a lock of its own cannot be pickled."""
if hasattr(os, "register_at_fork"):  # else a process that is forked meanwhile would wait for it forever
    os.register_at_fork(before=_GROWING.acquire, after_in_parent=_GROWING.release, after_in_child=_GROWING.release)


class HashedWords:
    """Words as ids in the order in which they first appear, and the vectors of these words.

    Threads may share an object: words are added, and never removed. If it is `full`, it is replaced by another one.
    """

    word_format = "{}"
    most_values = 3 << 20
    """Numbers in the table of a full cache."""

    def __init__(
        self, vocab_size: int, shared: np.ndarray, importance: np.ndarray, max_tokens: int, plain: bool = False
    ) -> None:
        """shared: float32 [rows, dim]; importance: float32 [3 vocab_size, 1]; plain: as in `split_words`."""
        self._vocab_size, self._shared, self._importance = vocab_size, shared, importance[:, 0]
        self._max_tokens, self._plain = max_tokens, plain
        self._ids = {"": 0}  # the token of an empty text
        self._table = np.zeros((0, self._shared.shape[1]), np.float32)

    def encode(self, text: str) -> list[int]:
        """Return one id per word or sign, which is valid for the table of this object."""
        words = split_words(text, self._plain)[: self._max_tokens]
        ids = self._ids
        try:
            return [ids[word] for word in words]
        except KeyError:
            with _GROWING:  # two words would get one id
                return [ids.setdefault(word, len(ids)) for word in words]

    def table(self) -> np.ndarray:
        """Return the vectors of all words so far, float32 [words, dim]."""
        if len(self._table) < len(self._ids):
            with _GROWING:
                new = list(itertools.islice(self._ids, len(self._table), None))
                if new:  # another thread may have added them
                    self._table = np.concatenate([self._table, self._vectors(new)])
        return self._table

    @property
    def full(self) -> bool:
        """Whether there are more words than should be kept from one batch to the next."""
        return self._table.size > self.most_values

    def without_words(self) -> HashedWords:
        """Return the same tokenizer with an empty cache."""
        return HashedWords(self._vocab_size, self._shared, self._importance[:, None], self._max_tokens, self._plain)

    def _vectors(self, words: list[str]) -> np.ndarray:
        vectors = np.zeros((len(words), self._shared.shape[1]), np.float32)
        codes = hash_codes(words, self._vocab_size * len(self._shared))
        for sector in range(HASHES):
            weights = self._importance[codes[:, sector] % self._vocab_size + sector * self._vocab_size]
            vectors += weights[:, None] * self._shared[codes[:, sector] // self._vocab_size]
        return vectors
