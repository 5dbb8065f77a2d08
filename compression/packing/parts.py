"""Where a packed file's bytes go: shares of streams that several tensors have in common, in whole bytes that sum up."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class PackedPart:
    """Bytes of one tensor, or of something else, in one coder's hands.

    name: the tensor's name in the weights file, or header, settings, vocabulary, checksum. part: embedding, encoder or
    classifier, or the name again. coder: rans, deflate (tables and settings), or stored.
    """

    name: str
    part: str
    bytes: int
    coder: str


class Shares:
    """Bytes by (name, coder), in the order in which they are first met."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[str, str], int] = {}

    def add_exactly(self, coder: str, owners: Sequence[tuple[str, int]]) -> None:
        """Bytes whose owners are known."""
        for name, count in owners:
            self._bytes[name, coder] = self._bytes.get((name, coder), 0) + count

    def add(self, coder: str, owners: Sequence[tuple[str, float]], total: int) -> None:
        """`total` bytes of a stream, shared out by weight; what is over goes to the largest remainders."""
        if not owners:
            owners = [("header", 1.0)]
        weights = np.array([weight for _, weight in owners], np.float64)
        exact = weights * total / weights.sum() if weights.sum() else np.eye(len(weights))[0] * total
        whole = np.floor(exact).astype(np.int64)
        for place in np.argsort(whole - exact, kind="stable")[: total - whole.sum()]:
            whole[place] += 1
        self.add_exactly(coder, [(name, int(count)) for (name, _), count in zip(owners, whole, strict=True)])

    def parts(self) -> list[PackedPart]:
        """All of them; none without bytes."""
        return [
            PackedPart(name, name.split(".")[0], count, "stored" if coder in ("header", "checksum") else coder)
            for (name, coder), count in self._bytes.items()
            if count
        ]
