"""Byte pairs exactly as sentencepiece's BPE encodes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .merges import Merges, Splits
from .normalisation import SPACE, Normaliser

DUMMY_PREFIX, SQUEEZE, WORDS = 1, 2, 4
"""Flags: sentencepiece's add_dummy_prefix and remove_extra_whitespaces; no piece extends beyond a word."""
_DIGIT = re.compile(r"\d")


def prepare(text: str) -> str:
    """Return the text in lower case, digits as zeros: bpemb's preprocessing."""
    return _DIGIT.sub("0", text.lower())


class BytePairs:
    """Sentencepiece's tokens. flags: DUMMY_PREFIX, SQUEEZE, WORDS; see Merges for the rest."""

    word_format = "{}"
    most_words = 1 << 16
    """Most words whose ids are cached."""

    def __init__(
        self, characters: int, symbols: Sequence[str], states: Sequence[int], normaliser: Normaliser, flags: int
    ) -> None:
        self._normaliser, self._flags = normaliser, flags
        self._merges = Merges(characters, symbols, states)
        self.size = self._merges.size
        # Adjacent unknown characters are one token, so words are independent only if the space between them is known.
        self._words = bool(flags & WORDS) and SPACE in self._merges.ids
        self._cache: tuple[dict[str, tuple[int, ...]], dict[str, Splits]] = {}, {}
        """The ids of words, and the splits of those that have any. When it is full, it is replaced by another one,
        because other threads may read it."""

    def encode(self, text: str) -> list[int]:
        """Return one id per piece."""
        if not text:
            return []
        squeeze, prefix = self._flags & SQUEEZE, self._flags & DUMMY_PREFIX
        clean = self._normaliser(prepare(text), bool(squeeze)).replace(SPACE, " ")
        if not clean and (squeeze or not prefix):
            return []
        first, *words = (" " + clean if prefix else clean).split(" ")
        if not self._words:
            return list(self._merges.encode(SPACE.join([first, *words]))[0])
        known, splits = self._cache
        try:
            ids = [i for word in words for i in known[word]]
        except KeyError:
            known, splits = self._learned(words)
            ids = [i for word in words for i in known[word]]
        if splits and _disagree(words, splits):
            return list(self._merges.encode(SPACE.join([first, *words]))[0])
        return [*self._merges.encode(first)[0], *ids] if first else ids

    def _learned(self, words: list[str]) -> tuple[dict[str, tuple[int, ...]], dict[str, Splits]]:
        """Return a cache that has these words."""
        known, splits = self._cache
        if len(known) > self.most_words:
            known, splits = self._cache = {}, {}
        for word in words:
            if word not in known:
                ids, of_word = self._merges.encode(SPACE + word)
                if of_word:
                    splits[word] = of_word
                known[word] = ids  # last: another thread that finds the ids also finds the splits
        return known, splits


def _disagree(words: list[str], splits: dict[str, Splits]) -> bool:
    """Return whether a text splits an unused piece in two ways: sentencepiece takes the later one for all."""
    seen: Splits = {}
    of_words = (splits[word] for word in words if word in splits)
    return any(seen.setdefault(piece, split) != split for of_word in of_words for piece, split in of_word.items())
