"""Damaged packed files. Most have the length and the checksum of an honest file, so that later checks are reached."""

import zlib
from typing import NamedTuple

from compression.runtime.header import Header
from compression.runtime.model import MAGIC, VERSION
from compression.runtime.reader import MOST_VALUES, Reader
from compression.runtime.weights import KRONECKER, PRODUCT

SIZES = {"embedding_dim": 3, "encoder_hidden_dim": 2, "cls_hidden_dim": 2, "vocab_size": 20, "labels": ["a", "b"]}
"""Of very small students."""
TINY = (
    ("ffn", "char", "affine-row", {}),
    ("ffn", "hash", "pruned", {}),
    ("ffn", "bpe", "codebook", {"vocab_size": 72}),
    ("rnn", "hash", "product", {"pair": True}),
    ("bilstm", "char", "ternary", {"pooling": "max"}),
    ("conv", "hash", "affine-row", {"pair": True}),
    ("bilstm", "hash", "affine-row", {"pair": True, "pooling": "max", "pair_encoder": "align", "symmetric": True}),
    ("conv", "char", "pruned", {"pair": True, "pair_encoder": "align", "f1": True}),
    ("bilstm", "char", "affine-row", {"pair": True, "pooling": "max", "pair_encoder": "compose"}),
    ("ffn", "hash", "affine-row", {"kind": "multilabel"}),
    ("ffn", "char", "affine-row", {"pair": True, "pooling": "both"}),
    ("ffn", "ngrams", "affine-row", {}),
)
"""Their architecture, embedding, form of weights and other settings."""


def take_apart(data):
    """Return a packed file's header, inflated, and what follows it up to the checksum."""
    reader = Reader(memoryview(data)[8:-4])
    stored, size = reader.number(), reader.number()
    header = bytes(reader.take(stored))
    return header if stored == size else zlib.decompress(header, -15), bytes(reader.rest())


def assemble(header, rest, stored=None):
    """Return a file with this header and the right length and checksum. stored: the header's deflated form."""
    stored = header if stored is None else stored
    sizes = (bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) for size in (len(stored), len(header)))
    body = b"".join(sizes) + stored + rest
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


class Honest(NamedTuple):
    """An honest file, taken apart. fields: (start, end, kind) of each field of the header."""

    header: bytes
    rest: bytes
    fields: tuple[tuple[int, int, str], ...]

    @classmethod
    def of(cls, header, rest):
        return cls(header, rest, fields_of(header))


class RecordingReader(Reader):
    """Records where each field is: a byte, a number, a text."""

    def __init__(self, data):
        super().__init__(data)
        self.fields = []

    def _recorded(self, kind, read, *given):
        start, count = self._position, len(self.fields)
        value = read(*given)
        del self.fields[count:]  # those within it
        self.fields.append((start, self._position, kind))
        return value

    def byte(self, below=256):
        return self._recorded("matrix" if below == KRONECKER + 1 else "byte", super().byte, below)

    def number(self, most=MOST_VALUES):
        return self._recorded("number", super().number, most)

    def text(self):
        return self._recorded("text", super().text)


def fields_of(header):
    """Return start, end and kind of each field of a header. Kinds: byte, number, text, matrix (or array: a form)."""
    reader = RecordingReader(header)
    Header(reader)
    return tuple(reader.fields)


def written(number):
    """Return a number in seven bits a byte."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def nested(rng):
    """Return the beginning of products of products."""
    return bytes([PRODUCT, rng.integers(1, 3)]) * int(rng.integers(1, 2000))


def read_number(data):
    """Return a number written in seven bits a byte."""
    return sum((byte & 127) << 7 * place for place, byte in enumerate(data))


def change_field(rng, honest):
    """Return a header with another value in one field, or another form of a matrix, or fields of another header."""
    start, end, kind = honest.fields[rng.integers(len(honest.fields))]
    old = honest.header[start:end]
    if kind == "number":
        value = read_number(old)
        near = (value + 1, max(0, value - 1), 2 * value, 0, 1, 16_384, 16_385, int(rng.integers(300)))
        new = HUGE[rng.integers(len(HUGE))] if rng.integers(12) == 0 else written(near[rng.integers(len(near))])
    elif kind == "byte":
        new = bytes([rng.integers(256) if rng.integers(2) else rng.integers(8)])
    elif kind == "text":
        texts = ("", "\n", "a", "\u00e9" * 3, "\0", "##", "\u2581a", "\U0001f600", "a" * 600)
        text = texts[rng.integers(len(texts))].encode()
        new = written(len(text)) + text
    else:
        new = nested(rng) if rng.integers(3) == 0 else bytes([rng.integers(6)])
    return honest.header[:start] + new + honest.header[end:]


def move_fields(rng, honest, other):
    """Return a header with a stretch of fields left out, repeated, or taken from another header."""
    first, last = sorted(rng.integers(len(honest.fields), size=2))
    start, end = honest.fields[first][0], honest.fields[last][1]
    if rng.integers(3) == 0:
        return honest.header[:start] + honest.header[end:]
    if rng.integers(2):
        return honest.header[:end] + honest.header[start:]
    begin, stop = sorted(rng.integers(len(other.fields), size=2))
    return honest.header[:start] + other.header[other.fields[begin][0] : other.fields[stop][1]] + honest.header[end:]


def mutated(rng, students):
    """Return a damaged file, half of them by its structure. students: list of Honest."""
    honest, other = (students[i] for i in rng.integers(len(students), size=2))
    where = rng.integers(20)
    if where < 10:
        header, rest = damaged_parts(rng, honest, other, where)
        if rng.integers(4) == 0:  # a second damage, often behind the first
            header = change_field(rng, Honest(header, rest, honest.fields))
        return assemble(header, rest)
    return damaged(rng, [(honest.header, honest.rest), (other.header, other.rest)])


def damaged_parts(rng, honest, other, where):
    if where < 7:
        return change_field(rng, honest), honest.rest
    if where < 9:
        return move_fields(rng, honest, other), honest.rest
    return honest.header, flip(rng, honest.rest)
