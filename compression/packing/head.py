"""Writing a packed file's head: bytes, numbers of seven bits a byte, texts; and whose each byte is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class HeadWriter:
    """Bytes written one after the other, in the forms that runtime.Reader reads.

    owners: (owner, bytes written for it), in order.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.owners: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def owner(self, name: str) -> Iterator[None]:
        """Count what is written within for this owner. Owners do not nest."""
        before = len(self.data)
        yield
        self.owners.append((name, len(self.data) - before))

    def byte(self, value: int) -> None:
        """Write one byte."""
        self.data.append(value)

    def bytes(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.data += data

    def number(self, value: int) -> None:
        """Write seven bits a byte, lowest first, the eighth bit set where more follow."""
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def text(self, value: str) -> None:
        """Write a length in bytes, then UTF-8."""
        data = value.encode()
        self.number(len(data))
        self.data += data
