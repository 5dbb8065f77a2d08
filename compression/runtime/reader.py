"""Bounded reading: every length is checked against the bytes that are left before anything is allocated."""

from __future__ import annotations

import struct

MOST_VALUES = 1 << 25
"""Most values in one file, and the largest number that may be stored in it."""
MOST_WIDTH = 1 << 14
"""Most values of a vector, or of a layer's output, which a prediction allocates for a token or a text."""


class PackedError(ValueError):
    """A packed file is damaged, or a model is asked for something it cannot give. The message is one line."""


class Reader:
    """Reads bytes from front to back. Every method raises PackedError if the bytes are not as it expects."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self._position = memoryview(data), 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._position

    def take(self, count: int) -> memoryview:
        """Return the next bytes."""
        if count > self.left:
            raise PackedError("the file ends too early")
        self._position += count
        return self._data[self._position - count : self._position]

    def rest(self) -> memoryview:
        """Return all bytes that are left without reading past them."""
        return self._data[self._position :]

    def byte(self, below: int = 256) -> int:
        """Return one byte, smaller than `below`."""
        value = self.take(1)[0]
        if value >= below:
            raise PackedError(f"a field has the unknown value {value}")
        return value

    def number(self, most: int = MOST_VALUES) -> int:
        """Return a number written in seven bits per byte, lowest first, at most `most`."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                break
        if byte > 127 or value > most:
            raise PackedError(f"a number in the file is larger than {most:,}")
        return value

    def size(self, most: int = MOST_VALUES) -> int:
        """Return a number that is at least one, and at most `most`."""
        value = self.number(most)
        if not value:
            raise PackedError("a size in the file is zero")
        return value

    def width(self) -> int:
        """Return the size of a layer's output."""
        return self.size(MOST_WIDTH)

    def units(self) -> int:
        """Return the size of a layer's output; 0 if there is no such layer."""
        return self.number(MOST_WIDTH)

    def float_within(self, least: float, most: float) -> float:
        """Return a float32 of at least `least` and at most `most`."""
        (value,) = struct.unpack("<f", self.take(4))
        if not least <= value <= most:  # refuses NaN too
            raise PackedError(f"a number in the file is not between {least:g} and {most:g}")
        return value

    def text(self) -> str:
        """Return a text: its length in bytes, then UTF-8."""
        try:
            return bytes(self.take(self.number())).decode()
        except UnicodeDecodeError:
            raise PackedError("a text in the file is not UTF-8") from None

    def end(self) -> None:
        """Check that nothing is left."""
        if self.left:
            raise PackedError(f"{self.left} bytes too many")
