"""Writing a packed file's head: bytes, numbers of seven bits a byte, texts; and who each byte is written for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class HeadWriter:
    """Bytes written one after the other, in the forms that runtime.Reader reads."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._owners: list[tuple[str, int]] = []

    @property
    def data(self) -> bytes:
        """All that has been written."""
        return bytes(self._data)

    @property
    def owners(self) -> list[tuple[str, int]]:
        """(owner, bytes written for it), in order."""
        return self._owners

    @contextlib.contextmanager
    def owner(self, name: str) -> Iterator[None]:
        """Write what follows for this owner. Owners do not nest."""
        before = len(self._data)
        yield
        self._owners.append((name, len(self._data) - before))

    def byte(self, value: int) -> None:
        """One byte."""
        self._data.append(value)

    def bytes(self, data: bytes) -> None:
        """Bytes as they are."""
        self._data += data

    def number(self, value: int) -> None:
        """Seven bits a byte, lowest first, the eighth bit where more follow."""
        while value > 127:
            self._data.append(value & 127 | 128)
            value >>= 7
        self._data.append(value)

    def text(self, value: str) -> None:
        """A length in bytes, then UTF-8."""
        data = value.encode()
        self.number(len(data))
        self._data += data
