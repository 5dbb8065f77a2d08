"""Byte pairs exactly as sentencepiece's BPE encodes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..words import Cache
from .merges import Merges
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
        self._known = Cache(self._ids_of, self.most_words)

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
            return list(self._merges.encode(SPACE.join([first, *words])))
        known = self._known
        ids = [i for word in words for i in known[word]]
        return [*self._merges.encode(first), *ids] if first else ids

    def _ids_of(self, word: str) -> tuple[int, ...]:
        return self._merges.encode(SPACE + word)
