"""Where a packed file's bytes go: streams that several tensors share are divided into whole bytes that sum up."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class PackedSection:
    """Bytes of one tensor, or of something else, as one coder writes them.

    name: a tensor's name, such as embedding.table.weight.codes, or header, settings, vocabulary, checksum; part:
    embedding, encoder or classifier, or the name again; coder: rans, deflate (tables and settings), or stored.
    """

    name: str
    part: str
    bytes: int
    coder: str


class ByteCounts:
    """Bytes by (owner, coder), in the order in which they are first counted."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[str, str], int] = {}

    def add(self, coder: str, owners: Sequence[tuple[str, int]]) -> None:
        """Count bytes whose owners are known."""
        for name, count in owners:
            self._bytes[name, coder] = self._bytes.get((name, coder), 0) + count

    def divide(self, coder: str, owners: Sequence[tuple[str, float]], total: int) -> None:
        """Divide the `total` bytes of a stream by weight; the remainder goes to the largest fractions."""
        owners = owners or [("header", 1.0)]
        weights = np.array([weight for _, weight in owners], np.float64)
        exact = weights * total / weights.sum() if weights.sum() else np.eye(len(weights))[0] * total
        whole = np.floor(exact).astype(np.int64)
        whole[np.argsort(whole - exact, kind="stable")[: total - whole.sum()]] += 1
        self.add(coder, [(name, int(count)) for (name, _), count in zip(owners, whole, strict=True)])

    def sections(self) -> list[PackedSection]:
        """Return all that have bytes."""
        return [
            PackedSection(name, name.split(".")[0], count, coder)
            for (name, coder), count in self._bytes.items()
            if count
        ]
