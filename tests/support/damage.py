"""Damaged packed files. Most have the length and the checksum of an honest file, so that later checks are reached."""

import zlib

from compression.runtime.model import MAGIC, VERSION
from compression.runtime.reader import Reader

SIZES = {"embedding_dim": 3, "encoder_hidden_dim": 2, "cls_hidden_dim": 2, "vocab_size": 20, "labels": ["a", "b"]}
"""Of very small students."""
TINY = (
    ("ffn", "char", "affine-row", {}),
    ("ffn", "hash", "pruned", {}),
    ("ffn", "bpe", "codebook", {"vocab_size": 72}),
    ("rnn", "hash", "product", {"pair": True}),
    ("bilstm", "char", "ternary", {"pooling": "max"}),
    ("conv", "hash", "affine-row", {"pair": True}),
)
"""Their architecture, embedding, form of weights and other settings."""


def take_apart(data):
    """Return a packed file's header, inflated, and what follows it up to the checksum."""
    reader = Reader(memoryview(data)[8:-4])
    stored, size = reader.number(), reader.number()
    header = bytes(reader.take(stored))
    return header if stored == size else zlib.decompress(header, -15), bytes(reader.rest())


def assemble(header, rest):
    """Return a file with this header and the right length and checksum."""
    size = len(header)
    number = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    body = number + number + header + rest
    data = MAGIC + bytes([VERSION]) + (len(body) + 12).to_bytes(4, "little") + body
    return data + zlib.crc32(data).to_bytes(4, "little")


def flip(rng, data):
    """Change one to four bits."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5) if data else 0):
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return bytes(data)


def cut(rng, data):
    return data[: rng.integers(len(data) + 1)]


def grow(rng, data):
    index = rng.integers(len(data) + 1)
    return data[:index] + rng.bytes(rng.integers(1, 40)) + data[index:]


def splice(rng, data):
    """Copy a stretch over another one."""
    a, b, n = rng.integers(len(data) + 1, size=3)
    return data[:a] + data[b : b + n % 50] + data[a + n % 50 :]


HUGE = (b"\xff" * 9, b"\xff\xff\xff\x07", b"\x80\x80\x80\x08", b"\xff\xff\x03", b"\xff\x7f", b"\x80\x80\x04", b"\x00")


def huge(rng, data):
    """Replace a byte by a number far too large, or just within bounds."""
    index = rng.integers(len(data) + 1)
    return data[:index] + HUGE[rng.integers(len(HUGE))] + data[index + 1 :]


def extreme(rng, data):
    """Make a few bytes all zero or all one."""
    index, n = rng.integers(len(data) + 1), rng.integers(1, 9)
    return data[:index] + bytes([255 * rng.integers(2)]) * n + data[index + n :]


CHANGES = (flip, cut, grow, splice, huge, extreme)


def damaged(rng, honest):
    """Return a damaged file. honest: (header, rest) of some files, see `take_apart`."""
    header, rest = honest[rng.integers(len(honest))]
    change = CHANGES[rng.integers(len(CHANGES))]
    where = rng.integers(10)
    if where < 5:
        return assemble(change(rng, header), rest)
    if where < 8:
        return assemble(header, change(rng, rest))
    if where < 9:
        return assemble(header, honest[rng.integers(len(honest))][1])
    return change(rng, assemble(header, rest))
