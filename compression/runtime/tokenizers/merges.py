"""The algorithm of byte-pair encoding: neighbours are merged in the order of a vocabulary (Sennrich et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

USED, UNUSED, UNKNOWN = range(3)
"""State of a symbol: it has an id, it is a merge that is split again, or a character that counts as unknown."""

Splits = dict[str, tuple[str, str]]
"""Unused piece -> the two symbols it was merged from. They are the same wherever the piece stands: until it is whole,
what is around it does not change the order of the merges within it."""


class Merges:
    """Repeatedly joins the two neighbours whose merge comes first in the order of merges.

    symbols: characters, then merges in their order; states: USED, UNUSED or UNKNOWN of each. Ids: 0 is unknown, then
    one for each used symbol, in order.
    """

    def __init__(self, characters: int, symbols: Sequence[str], states: Sequence[int]) -> None:
        self._order = {symbol: i for i, symbol in enumerate(symbols) if i >= characters}
        self._unused = {symbol for symbol, state in zip(symbols, states) if state == UNUSED}
        used = [symbol for symbol, state in zip(symbols, states) if state == USED]
        self.ids = {symbol: i for i, symbol in enumerate(used, 1)}
        self.size = 1 + len(used)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text."""
        symbols, splits = self._merge(text)
        if splits:
            symbols = [part for symbol in symbols for part in self._split_again(symbol, splits)]
        ids: list[int] = []
        after_unknown = False
        for symbol in symbols:
            i = self.ids.get(symbol, 0)
            if i or not after_unknown:
                ids.append(i)
            after_unknown = not i
        return tuple(ids)

    def last_merge(self, piece: str) -> tuple[str, str] | None:
        """Return the two symbols that an unused piece is finally merged from; None if it is never merged."""
        symbols, splits = self._merge(piece)
        return splits.get(piece) if symbols == [piece] else None

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
