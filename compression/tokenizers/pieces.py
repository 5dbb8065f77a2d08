"""Pieces of a sentencepiece model marked as unused, in the bytes of its file: sentencepiece itself offers no way.

A model file is a protocol buffer, ModelProto of sentencepiece_model.proto. Its field 1, repeated, is a piece with the
fields 1 string, 2 score, 3 type. A piece of type UNUSED is still merged, then split again into what it was merged from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from common.errors import UserError

_PIECE = 1
_PIECE_KEY = b"\x0a"
"""Field 1, bytes of a length told before them."""
_UNUSED_TYPE = b"\x18\x05"
"""Field 3, a number: 5. Of a field that comes twice the last one counts, so this is put at the end."""
_FIXED = {1: 8, 5: 4}
"""Wire type -> bytes of its value."""


def mark_unused(model: bytes, pieces: Collection[int]) -> bytes:
    """The model with some pieces, given by their places, of type UNUSED; all else is as it was.

    Raises UserError when the bytes are no protocol buffer.
    """
    made, place = [], 0
    for number, head, value in _fields(model):
        if number == _PIECE:
            if place in pieces:
                value += _UNUSED_TYPE
                head = _PIECE_KEY + _varint(len(value))
            place += 1
        made.append(head + value)
    return b"".join(made)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number of each field, the bytes before its value (key, and length where it has one), its value."""
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == 2:
            length, at = _read_varint(message, at)
            end = at + length
        elif kind in _FIXED:
            end = at + _FIXED[kind]
        elif kind == 0:
            _, end = _read_varint(message, at)
        else:
            raise UserError("not a sentencepiece model")
        if end > len(message):
            raise UserError("not a sentencepiece model: it is cut short")
        yield key >> 3, message[start:at], message[at:end]
        at = end


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise UserError("not a sentencepiece model: it is cut short")
        byte = message[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise UserError("not a sentencepiece model")


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])
