"""Byte pairs exactly as sentencepiece's BPE encodes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import heappop, heappush

from compression.runtime.tokenizers.normalisation import SPACE, Normaliser

DUMMY_PREFIX, SQUEEZE, WORDS = 1, 2, 4
"""Flags: sentencepiece's add_dummy_prefix and remove_extra_whitespaces; no piece goes on beyond a word's end."""
USED, UNUSED, UNKNOWN = range(3)
"""State of a symbol: it has an id, it is a merge that is split again, or a character that counts as unknown."""
_DIGIT = re.compile(r"\d")

Splits = dict[str, tuple[str, str]]
"""Unused piece -> the two symbols it was merged from."""


def prepare(text: str) -> str:
    """Return the text in lower case, digits as zeros: bpemb's preprocessing."""
    return _DIGIT.sub("0", text.lower())


class BytePairs:
    """Joins the two neighbours that come first in the order of merges, over and over.

    symbols: characters, then merges in their order; states: USED, UNUSED or UNKNOWN of each. Ids: 0 is unknown, then
    one for each used symbol, in order. flags: DUMMY_PREFIX, SQUEEZE, WORDS.
    """

    after_word = ""
    most_words = 1 << 16
    """Words whose ids are kept."""

    def __init__(
        self, characters: int, symbols: Sequence[str], states: Sequence[int], normaliser: Normaliser, flags: int
    ) -> None:
        self._normaliser, self._flags = normaliser, flags
        self._order = {symbol: i for i, symbol in enumerate(symbols) if i >= characters}
        self._unused = {symbol for symbol, state in zip(symbols, states, strict=True) if state == UNUSED}
        used = [symbol for symbol, state in zip(symbols, states, strict=True) if state == USED]
        self._ids = {symbol: i for i, symbol in enumerate(used, 1)}
        self.size = 1 + len(used)
        # Neighbouring unknown characters are one token: words are independent only where the space between is known.
        self._words = bool(flags & WORDS) and SPACE in self._ids
        self._known: dict[str, tuple[int, ...]] = {}
        self._splits: dict[str, Splits] = {}

    def encode(self, text: str) -> list[int]:
        """Return one id a piece."""
        if not text:
            return []
        squeeze, prefix = self._flags & SQUEEZE, self._flags & DUMMY_PREFIX
        clean = self._normaliser(prepare(text), bool(squeeze)).replace(SPACE, " ")
        if not clean and (squeeze or not prefix):
            return []
        first, *words = (" " + clean if prefix else clean).split(" ")
        if not self._words:
            return list(self._encode(SPACE.join([first, *words]))[0])
        known = self._known
        try:
            ids = [i for word in words for i in known[word]]
        except KeyError:
            self._learn(words)
            ids = [i for word in words for i in known[word]]
        if self._splits and self._disagree(words):
            return list(self._encode(SPACE.join([first, *words]))[0])
        return [*self._encode(first)[0], *ids] if first else ids

    def _learn(self, words: list[str]) -> None:
        if len(self._known) > self.most_words:
            self._known.clear()
            self._splits.clear()
        for word in words:
            if word not in self._known:
                self._known[word], splits = self._encode(SPACE + word)
                if splits:
                    self._splits[word] = splits

    def _disagree(self, words: list[str]) -> bool:
        """Whether an unused piece is split in two ways within a text: sentencepiece takes the later one for all."""
        seen: Splits = {}
        found = (self._splits[word] for word in words if word in self._splits)
        return any(seen.setdefault(piece, split) != split for splits in found for piece, split in splits.items())

    def _encode(self, text: str) -> tuple[tuple[int, ...], Splits]:
        """Return the ids of a stretch of text, and how each unused piece on the way was merged."""
        symbols, splits = self._merge(text)
        if splits:
            symbols = [part for symbol in symbols for part in self._split_again(symbol, splits)]
        ids: list[int] = []
        after_unknown = False
        for symbol in symbols:
            i = self._ids.get(symbol, 0)
            if i or not after_unknown:
                ids.append(i)
            after_unknown = not i
        return tuple(ids), splits

    def _merge(self, text: str) -> tuple[list[str], Splits]:
        parts = list(text)
        after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        queue: list[tuple[int, int, int, str]] = []
        splits: Splits = {}

        def offer(left: int, right: int) -> None:
            piece = parts[left] + parts[right]
            order = self._order.get(piece)
            if order is not None:
                heappush(queue, (order, left, right, piece))
                if piece in self._unused:
                    splits[piece] = parts[left], parts[right]

        for left in range(len(parts) - 1):
            offer(left, left + 1)
        while queue:
            _, left, right, piece = heappop(queue)
            if not parts[left] or not parts[right] or len(parts[left]) + len(parts[right]) != len(piece):
                continue  # one of the two has been joined with another since
            parts[left], parts[right] = piece, ""
            after[left] = following = after[right]
            if before[left] >= 0:
                offer(before[left], left)
            if following < len(parts):
                before[following] = left
                offer(left, following)
        return [part for part in parts if part], splits

    def _split_again(self, symbol: str, splits: Splits) -> list[str]:
        done: list[str] = []
        waiting = [symbol]
        while waiting:
            part = waiting.pop()
            if part in self._unused and part in splits:
                left, right = splits[part]
                waiting += [right, left]
            else:
                done.append(part)
        return done
