"""Reading what a sentencepiece model file holds: pieces, and how it normalises text. A small protocol buffer reader.

Field numbers are those of sentencepiece_model.proto: ModelProto has pieces (1), trainer_spec (2), normalizer_spec (3).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

from common.errors import UserError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Kinds of pieces, as sentencepiece numbers them."""
_BPE = 2


@dataclasses.dataclass(frozen=True)
class Piece:
    """One piece. Of BPE, the higher score is merged first."""

    text: str
    score: float
    kind: int


@dataclasses.dataclass(frozen=True)
class PieceFile:
    """A BPE model. charsmap: compiled rules of normalisation, empty for none."""

    pieces: tuple[Piece, ...]
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_pieces(data: bytes) -> PieceFile:
    """Read a model file's bytes. Raises UserError when they are damaged, or have what a packed file cannot express."""
    try:
        fields = list(_fields(data))
        pieces = tuple(_piece(value) for number, value in fields if number == 1)
        trainer = dict(_fields(b"".join(value for number, value in fields if number == 2)))
        normaliser = dict(_fields(b"".join(value for number, value in fields if number == 3)))
    except (IndexError, ValueError, TypeError, struct.error) as error:
        raise UserError(f"not a sentencepiece model ({error})") from None
    refused = {
        "is no BPE model": trainer.get(3, 1) != _BPE,
        "falls back to bytes": trainer.get(35, 0) or any(piece.kind == BYTE for piece in pieces),
        "marks words at their end": trainer.get(24, 0),
        "does not mark words": not normaliser.get(5, 1),
        "has pieces of the user's own": any(piece.kind == USER_DEFINED for piece in pieces),
        "has no unknown piece in the first place": [i for i, p in enumerate(pieces) if p.kind == UNKNOWN] != [0],
    }
    for why, is_so in refused.items():
        if is_so:
            raise UserError(f"cannot be packed, it {why}")
    return PieceFile(pieces, normaliser.get(2, b""), bool(normaliser.get(3, 1)), bool(normaliser.get(4, 1)))


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    return Piece(fields[1].decode(), struct.unpack("<f", fields.get(2, bytes(4)))[0], fields.get(3, NORMAL))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message's fields. Raises ValueError or IndexError when it is cut."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(data, place)
        else:
            length = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                length, place = _varint(data, place)
            if length is None or place + length > len(data):
                raise ValueError("a field is cut short")
            value = data[place : place + length]
            place += length
        yield key >> 3, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
