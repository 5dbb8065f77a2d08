"""Writing a packed file's header, and counting the file's bytes by owner."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from common.errors import UserError
from compression.runtime.reader import MOST_WIDTH


class HeaderWriter:
    """Writes bytes in the forms that the runtime's Reader reads.

    owners: (owner, bytes written for it), in order.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.owners: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def owner(self, name: str) -> Iterator[None]:
        """Count the bytes written inside the context for this owner. Owners do not nest."""
        before = len(self.data)
        yield
        self.owners.append((name, len(self.data) - before))

    def byte(self, value: int) -> None:
        """Write one byte."""
        self.data.append(value)

    def number(self, value: int) -> None:
        """Write seven bits per byte, lowest first; the eighth bit is set if more bytes follow."""
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    size = number

    def width(self, value: int) -> None:
        """Write the size of a layer's output. Raises UserError if it is larger than readers accept."""
        if value > MOST_WIDTH:
            raise UserError(f"cannot be packed: a layer has {value:,} units, more than {MOST_WIDTH:,}")
        self.number(value)

    units = width

    def text(self, value: str) -> None:
        """Write a text's length in bytes, then the text in UTF-8."""
        data = value.encode()
        self.number(len(data))
        self.data += data


@dataclasses.dataclass(frozen=True)
class PackedSection:
    """The bytes that one coder writes for a tensor or another part of a file.

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
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, coder: str, owners: Sequence[tuple[str, int]]) -> None:
        """Count bytes whose owners are known."""
        for name, count in owners:
            self._bytes[name, coder] += count

    def divide(self, coder: str, owners: Sequence[tuple[str, float]], total: int) -> None:
        """Divide a stream's `total` bytes among owners by weight; the remainder goes to the largest fractions."""
        owners = owners or [("header", 1.0)]
        weights = np.array([weight for _, weight in owners], np.float64)
        exact = weights * total / weights.sum() if weights.sum() else np.eye(len(weights))[0] * total
        whole = np.floor(exact).astype(np.int64)
        whole[np.argsort(whole - exact, kind="stable")[: total - whole.sum()]] += 1
        self.add(coder, [(name, int(count)) for (name, _), count in zip(owners, whole, strict=True)])

    def sections(self) -> list[PackedSection]:
        """Return the sections that are not empty."""
        counts = self._bytes.items()
        return [PackedSection(name, name.split(".")[0], count, coder) for (name, coder), count in counts if count]
