"""Byte pairs exactly as sentencepiece's BPE encodes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from compression.runtime.tokenizers.merges import Merges, Splits
from compression.runtime.tokenizers.normalisation import SPACE, Normaliser

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
        self._words = bool(flags & WORDS) and self._merges.has_id(SPACE)
        self._known: dict[str, tuple[int, ...]] = {}
        self._splits: dict[str, Splits] = {}

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
        known = self._known
        try:
            ids = [i for word in words for i in known[word]]
        except KeyError:
            self._learn(words)
            ids = [i for word in words for i in known[word]]
        if self._splits and self._disagree(words):
            return list(self._merges.encode(SPACE.join([first, *words]))[0])
        return [*self._merges.encode(first)[0], *ids] if first else ids

    def _learn(self, words: list[str]) -> None:
        if len(self._known) > self.most_words:
            self._known.clear()
            self._splits.clear()
        for word in words:
            if word not in self._known:
                self._known[word], splits = self._merges.encode(SPACE + word)
                if splits:
                    self._splits[word] = splits

    def _disagree(self, words: list[str]) -> bool:
        """Return whether a text splits an unused piece in two ways: sentencepiece takes the later one for all."""
        seen: Splits = {}
        found = (self._splits[word] for word in words if word in self._splits)
        return any(seen.setdefault(piece, split) != split for splits in found for piece, split in splits.items())
