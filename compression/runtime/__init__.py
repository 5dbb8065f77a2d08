"""Packed students without PyTorch: reads a .fwt file and answers texts with numpy and the standard library alone.

One file on purpose, with no import from this project: it can be copied beside a .fwt and used as it is. Its parts, in
order: bounded reading, the entropy decoder, matrices, byte pairs, the other tokenizers, the encoders, `load`, the
command line. The format is told byte by byte in docs/format.md; compression/packing writes it.

    python -m compression.runtime NAME.fwt "a gorgeous , witty film"

Files are not trusted: every length is checked before anything is allocated, and whatever is wrong is a PackedError.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

if __name__ == "__main__":
    # Before numpy loads: products this small gain nothing from threads, which take time to start and to wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

MAGIC = b"FWT"
VERSION = 1
ARCHS = ("ffn", "rnn", "bilstm", "conv", "transformer", "recursive")
TRANSFORMERS = ARCHS[4:]
"""Those that read a pair as one text."""
EMBEDDINGS = ("bpe", "hash", "char", "wordpiece")
GATES = {"rnn": 1, "bilstm": 4}
PAIR, POOL_MAX, TOKENS = 1, 2, 4
"""Bits of the settings' flags."""
RAW, CONSTANT, CODED, BY_ROW, BY_COLUMN = range(5)
"""How an array is stored."""
FLOAT32, FLOAT16, AFFINE, CODEBOOK, PRODUCT = range(5)
"""How a matrix is stored."""
MASKED, RESIDUAL = 1, 1
"""Options of float matrices and of affine codes."""
DUMMY_PREFIX, SQUEEZE, WORDS = 1, 2, 4
"""Bits of a vocabulary's flags: sentencepiece's add_dummy_prefix, remove_extra_whitespaces; pieces end at words."""
USED, UNUSED, UNKNOWN = range(3)
"""State of a symbol: it has a row, it is a union that is split again, or a letter that counts as unknown."""
IDENTITY, NFKC, NMT_NFKC = range(3)
"""Normalisations that need no rules of their own in a file."""
BLOCK = 64
"""Arrays of one dimension are taken as rows of this many numbers."""
CODE_BITS, PAIR_BITS = 13, 16
"""log2 of the sum of a table's frequencies: for codes, and for byte pairs."""
MOST_VALUES = 1 << 24
MOST_TABLES = 128
MOST_STEPS = 4096
MOST_HEAD = 1 << 22
MOST_PIECES = 1 << 15
MOST_PIECE_LENGTH = 512
MOST_WORD_PIECES = 1 << 18
MOST_LETTERS = 1 << 23
"""Characters of all word pieces together."""
LOWERCASE = 1
"""Bit of the flags of word pieces: text is lower-cased, and its accents removed."""
LARGEST = np.float32(1e4)
"""No weight is larger, so that logits of any text are finite."""
_STATE = 1 << 16
_SYMBOLS_PER_BYTE = 352
"""A symbol takes at least log2(64 / 63) of a bit: no table gives one more than 63 / 64."""
_QUARTERS = np.array((65536, 77936, 92682, 110218), np.int64)
_SPACE = "\u2581"


class PackedError(ValueError):
    """Something is wrong with a packed file, or with what is asked of it. One line."""


# Bounded reading


class Reader:
    """Bytes read from the front; every read is checked against what is left."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self._place = memoryview(data), 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._place

    def take(self, count: int) -> memoryview:
        """The next bytes. Raises PackedError when fewer are left."""
        if count > self.left:
            raise PackedError("the file ends too early")
        self._place += count
        return self._data[self._place - count : self._place]

    def rest(self) -> memoryview:
        """All that is left, still to be taken."""
        return self._data[self._place :]

    def byte(self, below: int = 256) -> int:
        """One byte, smaller than `below`."""
        value = self.take(1)[0]
        if value >= below:
            raise PackedError(f"a field is {value}, which this version does not know")
        return value

    def number(self, most: int = MOST_VALUES) -> int:
        """A number of seven bits a byte, lowest first, at most `most`."""
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                if value > most:
                    break
                return value
        raise PackedError(f"a number in the file is larger than {most:,}")

    def size(self) -> int:
        """A number that is at least one."""
        value = self.number()
        if not value:
            raise PackedError("a size in the file is zero")
        return value

    def text(self) -> str:
        """A length in bytes, then UTF-8."""
        try:
            return bytes(self.take(self.number())).decode()
        except UnicodeDecodeError:
            raise PackedError("a text in the file is no UTF-8") from None

    def end(self) -> None:
        """Raises PackedError when something is left."""
        if self.left:
            raise PackedError(f"{self.left} bytes too many")


# The entropy decoder: rANS (Duda, 2013) with many states side by side, one symbol each a step


def frequencies(weights: np.ndarray, bits: int) -> np.ndarray:
    """Whole frequencies that sum to 1 << bits, in proportion to weights (int64, not negative), at least 1 where a
    weight is, and never more than 63 / 64 of all. Raises PackedError for fewer than two symbols or too many."""
    present = int(np.count_nonzero(weights))
    whole = 1 << bits
    if not 2 <= present <= whole >> 1:
        raise PackedError(f"a table of {present} symbols")
    result = np.where(weights > 0, np.maximum(1, weights * (whole - present) // weights.sum()), 0)
    top = int(result.argmax())
    result[top] += whole - result.sum()
    excess = result[top] - (whole - whole // 64)
    if excess > 0:
        others = result.copy()
        others[top] = 0
        result[top] -= excess
        result[others.argmax()] += excess
    return result


def step_weights(steps: np.ndarray) -> np.ndarray:
    """Weights of a table's bytes: 0 where a symbol is absent, else 2 ** (step / 4), int64."""
    return np.where(steps > 0, _QUARTERS[steps & 3] << (steps >> 2).astype(np.int64), 0)


class Array:
    """Numbers of one byte (of two in byte pairs), [rows, columns], to be decoded: how they are stored, and then what
    they are. Of one dimension: rows of BLOCK numbers, the last one shorter."""

    def __init__(self, count: int, columns: int = BLOCK, weights: Sequence[np.ndarray] = ()) -> None:
        self.count, self.columns = count, columns
        self.mode, self.constant = CODED, 0
        self.weights = list(weights)
        self.classes: Array | None = None
        self.values = np.zeros(0, np.uint8)

    @classmethod
    def read(cls, reader: Reader, count: int, columns: int = BLOCK) -> Array:
        """Read how an array of the main stream is stored."""
        array = cls(count, columns)
        array.mode = reader.byte(BY_COLUMN + 1)
        if array.mode in (BY_ROW, BY_COLUMN):
            tables = reader.byte(MOST_TABLES)
            array.classes = cls.read_aside(reader, array.rows if array.mode == BY_ROW else columns)
            array.weights = [_table(reader) for _ in range(tables)]
        else:
            array._read_plain(reader)
        return array

    @classmethod
    def read_aside(cls, reader: Reader, count: int) -> Array:
        """Read how an array of the first stream is stored: never by classes; raw numbers lie in the head itself."""
        array = cls(count)
        array.mode = reader.byte(CODED + 1)
        array._read_plain(reader)
        if array.mode == RAW:
            array.values = np.frombuffer(reader.take(count), np.uint8)
        return array

    def _read_plain(self, reader: Reader) -> None:
        if self.mode == CONSTANT:
            self.constant = reader.byte()
        elif self.mode == CODED:
            self.weights = [_table(reader)]

    @property
    def rows(self) -> int:
        """Rows, the last one perhaps shorter."""
        return -(-self.count // self.columns)

    def tables(self) -> np.ndarray:
        """Which of its tables each number is coded with, uint16 [count]."""
        if self.classes is None:
            return np.zeros(self.count, np.uint16)
        classes = self.classes.values.astype(np.uint16)
        if len(classes) and classes.max() >= len(self.weights):
            raise PackedError("a row of numbers has no table")
        if self.mode == BY_ROW:
            return np.repeat(classes, self.columns)[: self.count]
        return np.tile(classes, self.rows)[: self.count]


def _table(reader: Reader) -> np.ndarray:
    deltas = np.frombuffer(reader.take(1 + reader.byte()), np.uint8)
    steps = np.cumsum(deltas, dtype=np.uint8)
    if steps.max(initial=0) > 63:
        raise PackedError("a table's entry is too large")
    return step_weights(steps)


def decode_stream(reader: Reader, arrays: Sequence[Array], bits: int, limit: int) -> bytes:
    """Decode all coded arrays of one stream, and fill in the constant ones. Returns the bytes the states carried."""
    coded = [array for array in arrays if array.mode >= CODED and array.count]
    for array in arrays:
        if array.mode == CONSTANT:
            array.values = np.full(array.count, array.constant, np.uint8)
        elif array.mode >= CODED and not array.count:
            array.values = np.zeros(0, np.uint8)
    total = sum(array.count for array in coded)
    if not total:
        return b""
    if total > limit or sum(len(array.weights) for array in coded) > MOST_TABLES:
        raise PackedError("a stream claims more numbers than it can hold")
    slots, names, first = _slots(coded, bits)
    lanes = reader.number(total)
    if not lanes or -(-total // lanes) > MOST_STEPS:
        raise PackedError("a stream has too few lanes")
    states = np.frombuffer(reader.take(4 * lanes), "<u4").astype(np.uint32)
    read = np.frombuffer(reader.rest(), "<u2", reader.left // 2)
    places = np.concatenate([array.tables() + np.uint16(start) for array, start in zip(coded, first, strict=True)])
    places = places.astype(np.uint32)
    places <<= bits
    reader.take(2 * _run(states, read, places, slots, bits))
    start = 0
    for array in coded:
        array.values = names[places[start : start + array.count]]
        start += array.count
    payload = states - _STATE
    if states.min() < _STATE or payload.max() >= _STATE:
        raise PackedError("a stream does not end where it began")
    return payload.astype("<u2").tobytes()


def _slots(coded: Sequence[Array], bits: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """For each slot of each table: frequency << 16 | place within the symbol, and the symbol. And each array's first
    table."""
    slots, names, first = [], [], []
    for array in coded:
        first.append(len(slots))
        for weights in array.weights:
            frequency = frequencies(weights, bits)
            symbols = np.repeat(np.arange(len(frequency), dtype=np.uint16), frequency)
            starts = np.cumsum(frequency) - frequency
            slots.append((frequency[symbols] << 16 | np.arange(1 << bits) - starts[symbols]).astype(np.uint32))
            names.append(symbols)
    return np.concatenate(slots), np.concatenate(names), first


def _run(states: np.ndarray, read: np.ndarray, places: np.ndarray, slots: np.ndarray, bits: int) -> int:
    """Decode into `places`, which holds each number's table << bits and gets its slot. Returns the words read; `states`
    are left as they are at the end."""
    lanes, place, mask = len(states), 0, np.uint32((1 << bits) - 1)
    shift, half, low = np.uint32(bits), np.uint32(16), np.uint32(0xFFFF)
    for start in range(0, len(places), lanes):
        slot = places[start : start + lanes]
        x = states[: len(slot)]
        slot |= x & mask
        entry = slots[slot]
        x >>= shift
        x *= entry >> half
        x += entry & low
        small = (x < _STATE).nonzero()[0]
        if len(small):
            words = read[place : place + len(small)]
            if len(words) < len(small):
                raise PackedError("a stream ends too early")
            x[small] = x[small] << half | words
            place += len(small)
    return place


# Matrices


class Numbers:
    """All arrays of a file, in the streams' order, and the float32 numbers that matrices and biases share."""

    def __init__(self) -> None:
        self.side: list[Array] = []
        self.main: list[Array] = []
        self.floats = 0
        self.total = 0

    def count(self, rows: int, columns: int) -> int:
        """Numbers of a matrix that is to be held. Raises PackedError when a file's are too many."""
        self.total += rows * columns
        if self.total > MOST_VALUES:
            raise PackedError(f"more than {MOST_VALUES:,} numbers")
        return rows * columns

    def aside(self, reader: Reader, count: int) -> Array:
        """An array that is decoded before the others."""
        self.side.append(Array.read_aside(reader, count))
        return self.side[-1]

    def array(self, reader: Reader, count: int, columns: int = BLOCK) -> Array:
        """An array of the main stream; its classes are decoded before."""
        self.main.append(array := Array.read(reader, count, columns))
        if array.classes is not None:
            self.side.append(array.classes)
        return array

    def more_floats(self, count: int) -> slice:
        """Reserve float32 numbers."""
        self.count(1, count)
        self.floats += count
        return slice(self.floats - count, self.floats)


class Matrix:
    """A matrix as stored: read from the head, and made float32 [rows, columns] when the streams are decoded."""

    def __init__(self, reader: Reader, numbers: Numbers, rows: int, columns: int) -> None:
        self.shape = rows, columns
        count, width = numbers.count(rows, columns), columns if columns > 1 else BLOCK
        self.form = reader.byte(PRODUCT + 1)
        self.option = 0 if self.form == PRODUCT else reader.byte(8)
        if self.form in (FLOAT32, FLOAT16):
            self.mask = numbers.aside(reader, count) if self.option & MASKED else None
            self.planes = [numbers.array(reader, count, width) for _ in range(4 if self.form == FLOAT32 else 2)]
            if self.mask is not None and any(plane.classes is not None for plane in self.planes):
                raise PackedError("numbers behind a mask have no classes")
        elif self.form == AFFINE:
            self.by_row, self.by_column = bool(self.option & 2), bool(self.option & 4)
            lines = (rows if self.by_row else 1) * (columns if self.by_column else 1)
            self.zero_point = numbers.aside(reader, lines)
            self.codes = numbers.array(reader, count, width)
            self.floats = numbers.more_floats(lines)
        elif self.form == CODEBOOK:
            self.by_row = bool(self.option & 2)
            self.levels = reader.byte() + 1
            self.codes = numbers.array(reader, count, width)
            self.floats = numbers.more_floats(self.levels * (rows if self.by_row else 1))
        else:
            rank = reader.size()
            self.left = Matrix(reader, numbers, rows, rank)
            self.right = Matrix(reader, numbers, rank, columns)

    def measure(self) -> None:
        """Once masks are known: how many numbers the planes hold."""
        if self.form == PRODUCT:
            self.left.measure()
            self.right.measure()
        elif self.form in (FLOAT32, FLOAT16) and self.mask is not None:
            if self.mask.values.max(initial=0) > 1:
                raise PackedError("a mask is no mask")
            for plane in self.planes:
                plane.count = int(np.count_nonzero(self.mask.values))

    def value(self, floats: np.ndarray) -> np.ndarray:
        """float32 [rows, columns]."""
        if self.form == PRODUCT:
            return _checked(self.left.value(floats) @ self.right.value(floats))
        if self.form in (FLOAT32, FLOAT16):
            values = join_planes(self.planes, "<f4" if self.form == FLOAT32 else "<f2")
            if self.mask is not None:
                whole = np.zeros(self.mask.count, np.float32)
                whole[self.mask.values > 0] = values
                values = whole
            return _checked(values).reshape(self.shape)
        codes = self.codes.values.reshape(self.shape)
        if self.form == AFFINE:
            shape = self.shape[0] if self.by_row else 1, self.shape[1] if self.by_column else 1
            zero_point = self.zero_point.values.astype(np.uint8).reshape(shape)
            if self.option & RESIDUAL:
                codes = codes.astype(np.uint8) + zero_point
            values = codes.astype(np.float32)
            values -= zero_point
            values *= floats[self.floats].reshape(shape)
            return _checked(values)
        if codes.max(initial=0) >= self.levels:
            raise PackedError("a code has no centroid")
        book = floats[self.floats].reshape(-1, self.levels)
        return book[0][codes] if len(book) == 1 else np.take_along_axis(book, codes.astype(np.int64), 1)


def join_planes(planes: Sequence[Array], kind: str) -> np.ndarray:
    """Float32 numbers from arrays of their bytes, lowest first. kind: little-endian float type."""
    joined = np.stack([plane.values.astype(np.uint8) for plane in planes], 1)
    return joined.view(kind)[:, 0].astype(np.float32)


def _checked(values: np.ndarray) -> np.ndarray:
    # Written so that a NaN fails too.
    if values.size and not np.abs(values).max() <= LARGEST:
        raise PackedError(f"a weight is not finite, or larger than {LARGEST:g}")
    return values


# Byte pairs: sentencepiece's normalisation and merging


def _nmt_rules() -> dict[str, str | None]:
    """What sentencepiece's nmt_nfkc does beyond NFKC: control characters vanish, invisible ones become spaces."""
    gone = [*range(0x1, 0x9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F]
    spaces = [0x9, 0xA, 0xC, 0xD, 0x61C, 0x1680, 0x200B, 0x200C, 0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]
    return {chr(c): "" for c in gone} | {chr(c): " " for c in spaces} | {"\uff5e": None}


def _later_letters() -> dict[str, str]:
    """Compatibility letters of Unicode 15 and 16, which sentencepiece's rules know and older Pythons do not."""
    cyrillic = "абвгдежзиклмопрстуфхцчшыэюꚉәіјөүӏабвгдежзиклопсуфхцчшъыґіѕџҫꙑұ"
    outlined = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    letters = {chr(0x1E030 + i): c for i, c in enumerate(cyrillic)}
    return letters | {chr(0x1CCD6 + i): c for i, c in enumerate(outlined)} | {"\ua7f1": "S"}


def _later_unions() -> dict[str, str]:
    """Compositions of Unicode 16, likewise: pairs of what is joined, and what it becomes."""
    todhri = "\U000105d2\u0307 \U000105c9 \U000105da\u0307 \U000105e4"
    tulu = (
        "\U00011382\U000113c9 \U00011383 \U00011384\U000113bb \U00011385 \U0001138b\U000113c2 \U0001138e "
        "\U00011390\U000113c9 \U00011391 \U000113c2\U000113b8 \U000113c7 \U000113c2\U000113c2 \U000113c5 "
        "\U000113c2\U000113c9 \U000113c8"
    )
    gurung = (
        "\U0001611e\U0001611e \U00016121 \U0001611e\U0001611e\U0001611f \U00016126 "
        "\U0001611e\U0001611e\U00016120 \U00016128 \U0001611e\U0001611f \U00016123 \U0001611e\U00016120 \U00016125 "
        "\U0001611e\U00016129 \U00016122 \U0001611e\U00016129\U0001611f \U00016127 \U00016129\U0001611f \U00016124"
    )
    kirat = "\U00016d63\U00016d67 \U00016d69 \U00016d63\U00016d67\U00016d67 \U00016d6a \U00016d67\U00016d67 \U00016d68"
    words = " ".join((todhri, tulu, gurung, kirat)).split()
    return dict(zip(words[::2], words[1::2], strict=True))


class Normaliser:
    """sentencepiece's normalisation: the longest rule at each place replaces what it matches, from left to right.

    base: IDENTITY, NFKC or NMT_NFKC. more: rules that differ from the base's, None where the base's does not hold.
    """

    def __init__(self, base: int, more: dict[str, str | None]) -> None:
        self._nfkc = base != IDENTITY
        self.own = (_later_unions() if self._nfkc else {}) | (_nmt_rules() if base == NMT_NFKC else {}) | more
        self.later = _later_letters() if self._nfkc else {}
        self._longest = max(4 if self._nfkc else 1, max(map(len, more), default=1))
        self._plain_seconds = any(len(key) > 1 and key[1] < "\x80" for key in more)
        self._known: dict[str, tuple[str, int]] = {}
        # Printable ASCII stays as it is, unless a file says otherwise.
        self._ascii_stays = not any(key.isascii() and key.isprintable() for key in more)

    def __call__(self, text: str, squeeze: bool) -> str:
        """The text with every rule applied, spaces still spaces. squeeze: no space at the ends, none after another."""
        if self._ascii_stays and text.isascii() and text.isprintable():
            return " ".join(text.split()) if squeeze else text
        made, after_space = [], squeeze
        for value in self._replaced(text):
            part = value.lstrip(" ") if after_space else value
            if part:
                made.append(part)
                after_space = squeeze and part[-1] == " "
        whole = "".join(made)
        return whole.rstrip(" " + _SPACE) if squeeze else whole

    def _replaced(self, text: str) -> Iterator[str]:
        place = 0
        while place < len(text):
            # All rules of the base that match more than one character go on with one that is not ASCII.
            lone = text[place + 1 : place + 2] < "\x80" and not self._plain_seconds
            window = text[place : place + (1 if lone else self._longest)]
            found = self._known.get(window)
            if found is None:
                found = self._match(window)
                if len(self._known) < 1 << 16:
                    self._known[window] = found
            yield found[0]
            place += found[1]

    def _match(self, window: str) -> tuple[str, int]:
        for length in range(len(window), 0, -1):
            value = self.rule(window[:length])
            if value is not None:
                return value, length
        return window[0], 1

    def rule(self, key: str) -> str | None:
        """What these characters together become, or None where no rule is for just them."""
        if key in self.own:
            return self.own[key]
        if not self._nfkc:
            return None
        if len(key) == 1:
            value = self.later.get(key) or unicodedata.normalize("NFKC", key)
            return value if value != key else None
        # A sequence has a rule when it is, letter by letter, the decomposition of one composed character.
        letters = [self.decomposed(c) for c in key]
        if not all(len(letter) == 1 for letter in letters):
            return None
        joined = "".join(letters)
        composed = unicodedata.normalize("NFC", joined)
        return composed if len(composed) == 1 and unicodedata.normalize("NFKD", composed) == joined else None

    def decomposed(self, character: str) -> str:
        """One character as its letters and marks."""
        return self.later.get(character) or unicodedata.normalize("NFKD", character)


_DIGIT = re.compile(r"\d")


def prepare(text: str) -> str:
    """bpemb's preprocessing: lower case, digits as zeros."""
    return _DIGIT.sub("0", text.lower())


class BytePairs:
    """sentencepiece's BPE: the neighbours whose union comes first in the merges' order are joined, over and over.

    symbols: letters, then unions in their order. states: USED, UNUSED or UNKNOWN of each. Rows: 0 is the unknown
    piece's, then one a used symbol, in order. flags: DUMMY_PREFIX, SQUEEZE, WORDS.
    """

    def __init__(
        self, letters: int, symbols: Sequence[str], states: Sequence[int], normaliser: Normaliser, flags: int
    ) -> None:
        self.normaliser, self._flags = normaliser, flags
        self._order = {symbol: i for i, symbol in enumerate(symbols) if i >= letters}
        self._unused = {symbol for symbol, state in zip(symbols, states, strict=True) if state == UNUSED}
        used = [symbol for symbol, state in zip(symbols, states, strict=True) if state == USED]
        self._rows = {symbol: row for row, symbol in enumerate(used, 1)}
        self.rows = 1 + len(used)
        # Unknown letters side by side are one: words are apart only where their mark is known.
        self._words = bool(flags & WORDS) and _SPACE in self._rows
        self._known: dict[str, tuple[int, ...]] = {}
        self._splits: dict[str, dict[str, tuple[str, str]]] = {}

    def encode(self, text: str) -> list[int]:
        """Rows of a text's pieces."""
        if not text:
            return []
        squeeze, prefix = self._flags & SQUEEZE, self._flags & DUMMY_PREFIX
        clean = self.normaliser(prepare(text), bool(squeeze)).replace(_SPACE, " ")
        if not clean and (squeeze or not prefix):
            return []
        first, *words = (" " + clean if prefix else clean).split(" ")
        if not self._words:
            return list(self._pieces(_SPACE.join([first, *words]))[0])
        known = self._known
        try:
            rows = [row for word in words for row in known[word]]
        except KeyError:
            self._learn(words)
            rows = [row for word in words for row in known[word]]
        if self._splits and self._disagree(words):
            return list(self._pieces(_SPACE.join([first, *words]))[0])
        return [*self._pieces(first)[0], *rows] if first else rows

    def _learn(self, words: list[str]) -> None:
        if len(self._known) > 1 << 16:
            self._known.clear()
            self._splits.clear()
        for word in words:
            if word not in self._known:
                self._known[word], splits = self._pieces(_SPACE + word)
                if splits:
                    self._splits[word] = splits

    def _disagree(self, words: list[str]) -> bool:
        """Whether an unused piece is split in two ways within a text: sentencepiece takes the later one for all."""
        seen: dict[str, tuple[str, str]] = {}
        found = (self._splits[word] for word in words if word in self._splits)
        return any(seen.setdefault(piece, split) != split for splits in found for piece, split in splits.items())

    def _pieces(self, text: str) -> tuple[tuple[int, ...], dict[str, tuple[str, str]]]:
        """Rows of a stretch of text, and how each unused piece met on the way is to be split again."""
        symbols, splits = self._merged(text)
        if splits:
            symbols = [part for symbol in symbols for part in self._split_again(symbol, splits)]
        rows: list[int] = []
        after_unknown = False
        for symbol in symbols:
            row = self._rows.get(symbol, 0)
            if row or not after_unknown:
                rows.append(row)
            after_unknown = not row
        return tuple(rows), splits

    def _merged(self, text: str) -> tuple[list[str], dict[str, tuple[str, str]]]:
        parts = list(text)
        after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        queue: list[tuple[int, int, int, str]] = []
        splits: dict[str, tuple[str, str]] = {}

        def offer(left: int, right: int) -> None:
            piece = parts[left] + parts[right]
            order = self._order.get(piece)
            if order is not None:
                heappush(queue, (order, left, right, piece))
                if piece in self._unused:
                    splits[piece] = parts[left], parts[right]

        for left in range(len(parts) - 1):
            offer(left, left + 1)
        while queue:
            _, left, right, piece = heappop(queue)
            if not parts[left] or not parts[right] or len(parts[left]) + len(parts[right]) != len(piece):
                continue  # one of the two has been joined with another since
            parts[left], parts[right] = piece, ""
            after[left] = following = after[right]
            if before[left] >= 0:
                offer(before[left], left)
            if following < len(parts):
                before[following] = left
                offer(left, following)
        return [part for part in parts if part], splits

    def _split_again(self, symbol: str, splits: dict[str, tuple[str, str]]) -> list[str]:
        done: list[str] = []
        waiting = [symbol]
        while waiting:
            part = waiting.pop()
            if part in self._unused and part in splits:
                left, right = splits[part]
                waiting += [right, left]
            else:
                done.append(part)
        return done


class PieceTable:
    """Byte pairs' vectors."""

    after_word = ""
    """What stands after each word where words are encoded one by one: the space, where that is a token."""

    def __init__(self, pieces: BytePairs, table: np.ndarray) -> None:
        self.table, self.encode, self.empty = table, pieces.encode, 0

    def make_room(self) -> None:
        """Nothing is learned, so nothing is forgotten."""


class WordPieces:
    """BERT's tokens (Wu et al., 2016; Devlin et al., 2019): of each word the longest pieces from the left, of which all
    but its first begin with ##."""

    after_word = ""
    longest = 100
    """Characters of a word beyond which it is unknown, as in BERT."""
    most = 1 << 17
    """Words kept from one batch to the next."""

    def __init__(self, pieces: Sequence[str], lowercase: bool, table: np.ndarray | None = None) -> None:
        """pieces: by row; the first one stands for what is unknown. table: their vectors, float32 [pieces, dim]."""
        self.table, self.empty = table, 0
        self._row_of = {piece: row for row, piece in enumerate(pieces)}
        self._most = max(map(len, pieces), default=0)
        self._lowercase = lowercase
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """One row a piece."""
        found: list[int] = []
        for word in words_of(text, self._lowercase):
            if word not in self._known:
                self._known[word] = self._split(word)
            found += self._known[word]
        return found

    def _split(self, word: str) -> list[int]:
        if len(word) > self.longest:
            return [0]
        rows, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(min(len(word), start + self._most), start, -1)
            found = next(((end, row) for end in ends if (row := self._row_of.get(mark + word[start:end], 0))), None)
            if found is None:
                return [0]
            start, row = found
            rows.append(row)
        return rows

    def make_room(self) -> None:
        """Forget words when there are too many."""
        if len(self._known) > self.most:
            self._known.clear()


_ASCII_WORD = re.compile(r"[!-/:-@\[-`{-~]|[0-9A-Za-z]+")
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127))
_IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
               (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))  # fmt: skip


def words_of(text: str, lowercase: bool) -> list[str]:
    """Words and signs as BERT's basic tokenizer finds them; with `lowercase` accents are removed too."""
    if not text.isascii():
        text = "".join(map(_cleaned, text))
        if lowercase:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
        text = "".join(f" {c} " if _is_sign(c) else c for c in text)
        return ("".join(map(str.lower, text)) if lowercase else text).split()
    text = text.translate(_CONTROL)
    return _ASCII_WORD.findall(text.lower() if lowercase else text)


def _cleaned(character: str) -> str:
    code, category = ord(character), unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    if code == 0xFFFD or category in ("Cc", "Cf", "Co"):
        return ""
    return f" {character} " if any(first <= code <= last for first, last in _IDEOGRAPHS) else character


def _is_sign(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" or (character.isascii() and character in _ASCII_SIGNS)


_ASCII_SIGNS = "".join(chr(code) for code in (*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)))


# The other tokenizers: each knows the rows of a text's tokens, and the table that these rows are of


class Letters:
    """33 vectors for letters and signs, accents removed."""

    alphabet = " abcdefghijklmnopqrstuvwxyz'.,!?"
    after_word = " "

    def __init__(self, table: np.ndarray) -> None:
        self.table, self.empty = table, 0
        self._rows = {letter: row for row, letter in enumerate(self.alphabet, 1)}

    def encode(self, text: str) -> list[int]:
        """One row a character."""
        text = text.lower().replace("\u2019", "'")
        if not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        get = self._rows.get
        return [get(letter, 0) for letter in text]

    def make_room(self) -> None:
        """Nothing is learned, so nothing is forgotten."""


_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*|[^\w\s]|_")


class HashedWords:
    """Hash embeddings (Svenstrup et al., 2017): a word's vector is a weighted sum of three. Vectors of words met before
    are kept: the table grows, and starts anew where it has become large."""

    after_word = ""
    most = 3 << 20
    """Numbers kept from one batch to the next."""

    def __init__(self, vocab_size: int, shared: np.ndarray, importance: np.ndarray, max_tokens: int) -> None:
        from hashlib import md5

        self._md5, self._vocab_size, self._shared, self._importance = md5, vocab_size, shared, importance[:, 0]
        self._codes, self._max_tokens = vocab_size * len(shared), max_tokens
        self._start()

    def _start(self) -> None:
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((0, self._shared.shape[1]), np.float32)
        self.empty = self._row("")

    def _row(self, word: str) -> int:
        return self._rows.setdefault(word, len(self._rows))

    def make_room(self) -> None:
        """Forget words when there are too many; rows given before mean nothing then."""
        if self._vectors.size > self.most:
            self._start()

    def encode(self, text: str) -> list[int]:
        """One row a word or sign."""
        words = _WORD.findall(text.lower())[: self._max_tokens]
        rows = self._rows
        try:
            return [rows[word] for word in words]
        except KeyError:
            return [self._row(word) for word in words]

    @property
    def table(self) -> np.ndarray:
        """Vectors of all words met, float32 [words, dim]."""
        known = len(self._vectors)
        if known < len(self._rows):
            new = list(self._rows)[known:]
            self._vectors = np.concatenate([self._vectors, self._embed(new)])
        return self._vectors

    def _embed(self, words: list[str]) -> np.ndarray:
        """MD5 of a word with 0, 1 or 2 appended says which vectors and which weights."""
        vectors = np.zeros((len(words), self._shared.shape[1]), np.float32)
        for sector in range(3):
            digests = (self._md5(f"{word}{sector}".encode(), usedforsecurity=False).digest() for word in words)
            codes = np.array([int.from_bytes(digest[:8], "little") % self._codes for digest in digests], np.int64)
            weights = self._importance[codes % self._vocab_size + sector * self._vocab_size]
            vectors += weights[:, None] * self._shared[codes // self._vocab_size]
        return vectors


# Encoders: rows of a batch's tokens, one after the other, to one vector a text


class Mean:
    """The mean of a text's vectors."""

    def __call__(self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """table: float32 [words, dim]; rows: int64 [tokens]; lengths: int64 [texts], none zero -> [texts, dim]."""
        sums = np.zeros((len(lengths), table.shape[1]), np.float32)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        block = max(1, _NUMBERS_AT_ONCE // table.shape[1])
        for start in range(0, len(rows), block):
            own = owner[start : start + block]
            first = np.flatnonzero(np.diff(own, prepend=-1))
            sums[own[first]] += np.add.reduceat(table.take(rows[start : start + block], 0), first)
        return sums / lengths[:, None].astype(np.float32)


_NUMBERS_AT_ONCE, _IN_CACHE = 1 << 20, 1 << 17


class Recurrent:
    """One layer in each direction, both at once; the second reads each text from its last token to its first."""

    def __init__(self, inputs: np.ndarray, states: np.ndarray, bias: np.ndarray, lstm: bool, pool_max: bool) -> None:
        """inputs: [2, gates * hidden, dim]; states: [2, gates * hidden, hidden]; bias: [2, gates * hidden]."""
        hidden = states.shape[2]
        if lstm:
            # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: all gates are one tanh. PyTorch's order is input, forget,
            # candidate, output; the three sigmoids come first here.
            order = np.arange(4 * hidden).reshape(4, hidden)[[0, 1, 3, 2]].reshape(-1)
            half = np.repeat(np.array((0.5, 0.5, 0.5, 1), np.float32), hidden)
            inputs, states = (matrix[:, order] * half[:, None] for matrix in (inputs, states))
            bias = bias[:, order] * half
        self._inputs = np.ascontiguousarray(inputs.transpose(0, 2, 1))
        self._states = np.ascontiguousarray(states.transpose(0, 2, 1))
        self._bias = bias[:, None]
        self._hidden, self._lstm, self._pool_max = hidden, lstm, pool_max

    def __call__(self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """As Mean; [texts, 2 hidden]."""
        return self._read(table, rows, lengths)

    def states(self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The same at each token: [tokens, 2 hidden]."""
        every = np.empty((len(rows), 2 * self._hidden), np.float32)
        self._read(table, rows, lengths, every)
        return every

    def _read(
        self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray, every: np.ndarray | None = None
    ) -> np.ndarray:
        """What pooling makes of each text. Texts go in batches by falling length. every: see `_batch`."""
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")
        result = np.empty((len(lengths), 2 * self._hidden), np.float32)
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            result[batch] = self._batch(table, rows, starts[batch], lengths[batch], every)
        return result

    def _batch(
        self,
        table: np.ndarray,
        rows: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
        every: np.ndarray | None = None,
    ) -> np.ndarray:
        """Longest first: at each step those texts that go on are the first ones, and nothing is padded.

        every: where given, it gets the state at each token, [tokens, 2 hidden].
        """
        size = len(lengths)
        state = np.zeros((2, size, self._hidden), np.float32)
        cell = np.zeros_like(state) if self._lstm else None
        best = np.full_like(state, -np.inf) if self._pool_max else None
        block = max(1, _NUMBERS_AT_ONCE // (size * max(self._bias.size, 2 * table.shape[1])))
        for first in range(0, lengths[0], block):
            steps = np.arange(first, min(first + block, lengths[0]))[:, None]
            inside = np.minimum(steps, lengths - 1)
            places = np.stack([starts + inside, starts + lengths - 1 - inside])
            given = np.matmul(table.take(rows[places.reshape(2, -1)], 0), self._inputs)
            given += self._bias
            given = given.reshape(2, len(steps), size, -1)
            going = (steps < lengths).sum(1)
            changes = [0, *(np.flatnonzero(np.diff(going)) + 1).tolist(), len(steps)]
            for start, end in itertools.pairwise(changes):
                live = int(going[start])
                views = [None if array is None else array[:, :live] for array in (state, cell, best)]
                seen = None if every is None else np.empty((2, end - start, live, self._hidden), np.float32)
                self._run(given[:, start:end, :live], *views, seen)
                if every is not None:
                    every[places[0, start:end, :live], : self._hidden] = seen[0]
                    every[places[1, start:end, :live], self._hidden :] = seen[1]
        return (state if best is None else best).transpose(1, 0, 2).reshape(size, -1)

    def _run(
        self,
        given: np.ndarray,
        state: np.ndarray,
        cell: np.ndarray | None,
        best: np.ndarray | None,
        seen: np.ndarray | None,
    ) -> None:
        """Steps of as many texts, in place. given: [2, steps, texts, gates * hidden], what inputs and biases give;
        state, cell, best: [2, texts, hidden]; seen: [2, steps, texts, hidden], gets the state of each step."""
        gates = np.empty((2, *given.shape[2:]), np.float32)
        take, forget, give, candidate = np.split(gates, 4, 2) if cell is not None else (gates,) * 4
        sigmoids = gates[..., : 3 * self._hidden]
        for number, step in enumerate(given.swapaxes(0, 1)):
            np.matmul(state, self._states, gates)
            np.add(gates, step, gates)
            np.tanh(gates, state if cell is None else gates)
            if cell is not None:
                np.multiply(sigmoids, _HALF, sigmoids)
                np.add(sigmoids, _HALF, sigmoids)
                np.multiply(cell, forget, cell)
                np.multiply(candidate, take, candidate)
                np.add(cell, candidate, cell)
                np.tanh(cell, state)
                np.multiply(state, give, state)
            if best is not None:
                np.maximum(best, state, out=best)
            if seen is not None:
                seen[:, number] = state


class Convolution:
    """Gated units over a window of tokens centred at each one, and the largest of each unit's states."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray, width: int) -> None:
        """weight: [2 * hidden, width * dim], values first, gates last; bias: [2 * hidden]."""
        # value * sigmoid(gate) = value / 2 * (tanh(gate / 2) + 1): all is halved once.
        self._weight, self._bias = np.ascontiguousarray(weight.T) * _HALF, bias * _HALF
        self._hidden, self._reach = len(bias) // 2, width // 2

    def __call__(self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """As Mean; [texts, hidden]."""
        best = np.full((len(lengths), self._hidden), -np.inf, np.float32)
        for own, states in self._blocks(table, rows, lengths):
            first = np.flatnonzero(np.diff(own, prepend=-1))
            texts = own[first]
            best[texts] = np.maximum(best[texts], np.maximum.reduceat(states, first))
        return np.clip(best, -LARGEST, LARGEST, best)  # no real state is cut; logits of any file stay finite

    def states(self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The same at each token: [tokens, hidden]."""
        states = np.concatenate([states for _, states in self._blocks(table, rows, lengths)])
        return np.clip(states, -LARGEST, LARGEST, states)

    def _blocks(
        self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some tokens at a time: the text that each is of, and its units' states [tokens, hidden]."""
        owner, ends = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths)
        window = np.arange(-self._reach, self._reach + 1)
        block = max(1, _IN_CACHE // max(self._weight.shape))
        for start in range(0, len(rows), block):
            own = owner[start : start + block]
            places = np.arange(start, start + len(own))[:, None] + window
            end = ends[own][:, None]
            vectors = table.take(rows.take(places, mode="clip"), 0)
            vectors[(places < end - lengths[own][:, None]) | (places >= end)] = 0
            yield own, self._states(vectors.reshape(len(own), -1))

    def _states(self, windows: np.ndarray) -> np.ndarray:
        """windows: float32 [tokens, width * dim] -> [tokens, hidden]."""
        both = windows @ self._weight
        both += self._bias
        values, gates = both[:, : self._hidden], both[:, self._hidden :]
        np.tanh(gates, gates)
        gates += 1
        values *= gates
        return values


class Transformer:
    """Layers of attention and feed-forward maps; a pair is one text. compression.students.transformer says more."""

    def __init__(self, matrices: dict[str, np.ndarray], size: EncoderSize) -> None:
        """matrices: by the names of `encoder_shapes`."""
        self._size, self._pair = size, size.pair
        self._positions, self._segments = matrices["positions.weight"], matrices["segments.weight"]
        self._marks, self._all = matrices["marks.weight"], matrices

    def __call__(self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """As Mean, of single texts or of both sentences of each pair one after the other; [texts, hidden]."""
        result = np.empty((len(lengths) // (1 + self._pair), self._size.hidden), np.float32)
        for batch, states in self._batches(table, rows, lengths):
            result[batch] = states[:, 0]
        return result

    def states(self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Of single texts the state at each token: [tokens, hidden]."""
        starts = np.cumsum(lengths) - lengths
        result = np.empty((len(rows), self._size.hidden), np.float32)
        for batch, states in self._batches(table, rows, lengths):
            steps = np.arange(states.shape[1] - 2)
            inside = steps < lengths[batch, None]
            result[(starts[batch, None] + steps)[inside]] = states[:, 1:-1][inside]
        return result

    def _batches(
        self, table: np.ndarray, rows: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some texts at a time: their numbers, and their states [texts, time, hidden], those of marks among them."""
        sentences = 1 + self._pair
        owner = np.repeat(np.arange(len(lengths)), lengths)
        # Before a token stand a first mark for each text so far and a separator for each sentence that has ended.
        places = np.arange(len(rows)) + owner // sentences + 1 + owner
        whole = lengths.reshape(-1, sentences).sum(1) + sentences + 1
        starts = np.cumsum(whole) - whole
        framed = np.full(whole.sum(), -1)
        framed[starts], framed[places] = -2, rows
        segments = np.zeros(len(framed), np.int64)
        if self._pair:
            segments[places[owner % 2 == 1]] = 1
            segments[starts + whole - 1] = 1
        order = np.argsort(-whole, kind="stable")
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            steps = np.arange(whole[batch[0]])
            inside = steps < whole[batch, None]
            read = starts[batch, None] + np.minimum(steps, whole[batch, None] - 1)
            states = self._start(table, framed[read], segments[read])
            for number in range(self._size.depth):
                states = self._layer(states, inside, number)
            yield batch, states

    def _start(self, table: np.ndarray, framed: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """[texts, time] -> [texts, time, hidden]."""
        vectors = table.take(np.maximum(framed, 0), 0)
        vectors[framed == -2], vectors[framed == -1] = self._marks
        if "projection.weight" in self._all:
            vectors = self._linear(vectors, "projection")
        return self._norm(vectors + self._positions[: framed.shape[1]] + self._segments[segments], "norm")

    def _layer(self, states: np.ndarray, inside: np.ndarray, number: int) -> np.ndarray:
        name = f"blocks.{0 if self._size.shared else number}."
        read = self._adapted(self._attend(states, inside, f"{name}attention."), f"adapters.{number}.0.")
        states = self._norm(states + read, f"{name}attention_norm")
        made = self._linear(gelu(self._linear(states, f"{name}up")), f"{name}down")
        return self._norm(states + self._adapted(made, f"adapters.{number}.1."), f"{name}output_norm")

    def _attend(self, states: np.ndarray, inside: np.ndarray, name: str) -> np.ndarray:
        texts, time, _ = states.shape
        query, key, value = (
            self._linear(states, f"{name}{part}").reshape(texts, time, self._size.heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(query.shape[-1] ** 0.5)
        scores = np.where(inside[:, None, None], scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        read = (powers / powers.sum(-1, keepdims=True)) @ value
        return self._linear(read.transpose(0, 2, 1, 3).reshape(states.shape), f"{name}output")

    def _adapted(self, states: np.ndarray, name: str) -> np.ndarray:
        if not self._size.adapters:
            return states
        return states + self._linear(gelu(self._linear(states, f"{name}down")), f"{name}up")

    def _linear(self, states: np.ndarray, name: str) -> np.ndarray:
        return states @ self._all[f"{name}.weight"].T + self._all[f"{name}.bias"]

    def _norm(self, states: np.ndarray, name: str) -> np.ndarray:
        states = np.clip(states, -_FAR, _FAR)  # no real state is cut; squares of any file's stay finite
        states = states - states.mean(-1, keepdims=True)
        deviation = np.sqrt(np.square(states).mean(-1, keepdims=True) + np.float32(1e-12))
        return states / deviation * self._all[f"{name}.weight"] + self._all[f"{name}.bias"]


_FAR = np.float32(1e12)


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution's share below x (Hendrycks and Gimpel, 2016), float32."""
    return x * _HALF * (1 + erf(x * np.float32(0.5**0.5)))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function to float32's precision: a quotient of polynomials, as Eigen's library has it."""
    x = np.clip(x, -4, 4)
    square = x * x
    above, below = (np.full_like(x, first) for first in (_ERF_ABOVE[0], _ERF_BELOW[0]))
    for polynomial, coefficients in ((above, _ERF_ABOVE), (below, _ERF_BELOW)):
        for coefficient in coefficients[1:]:
            polynomial *= square
            polynomial += np.float32(coefficient)
    return x * above / below


_ERF_ABOVE = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_BELOW = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
_HALF = np.float32(0.5)
_BATCH = 64
_TEXTS_AT_ONCE, _TOKENS_AT_ONCE = 1024, 1 << 14


class Model:
    """A packed student.

    name, task: as it was called and what it was trained for. labels: none for a regression. pair: whether it reads two
    sentences. tokens: whether every word (between single spaces) has an answer. arch: one of ARCHS. embedding: one of
    EMBEDDINGS.
    """

    def __init__(self, head: Head, matrices: dict[str, np.ndarray]) -> None:
        self.name, self.task, self.labels, self.pair = head.name, head.task, head.labels, head.pair
        self.arch, self.embedding, self.max_tokens = head.arch, head.embedding, head.max_tokens
        self.outputs, self.tokens = head.outputs, head.tokens
        table = matrices["embedding.table"]
        if head.embedding == "bpe":
            self._tokens = PieceTable(head.pieces, table)
        elif head.embedding == "wordpiece":
            self._tokens = WordPieces(*head.word_pieces, table)
        elif head.embedding == "char":
            self._tokens = Letters(table)
        else:
            self._tokens = HashedWords(head.vocab_size, table, matrices["embedding.importance"], head.max_tokens)
        self._encoder = _encoder(head, matrices)
        self._layers = [
            (np.ascontiguousarray(matrices[f"classifier.{i}.weight"].T), matrices[f"classifier.{i}.bias"])
            for i in (0, 3)
        ]

    def logits(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> np.ndarray:
        """float32 [texts, outputs]; of a regression, the score scaled to [0, 1]; of tokens [texts, words, outputs], NaN
        past a text's last word. Raises PackedError for no text."""
        parts, counts = [np.zeros((0, self.outputs), np.float32)], []
        self._tokens.make_room()
        rows: list[int] = []
        lengths: list[int] = []
        words: list[int] = []
        for place, text in enumerate(texts, 1):
            for sentence in self._sentences(text):
                found, starts = self._encoded(sentence)
                words += [len(rows) + start for start in starts]
                rows += found
                lengths.append(len(found))
                counts.append(len(starts))
            if place == len(texts) or len(lengths) >= _TEXTS_AT_ONCE * (1 + self.pair) or len(rows) > _TOKENS_AT_ONCE:
                parts.append(self._forward(np.array(rows), np.array(lengths), np.array(words)))
                rows, lengths, words = [], [], []
                self._tokens.make_room()
        logits = np.concatenate(parts)
        return _by_text(logits, np.array(counts, np.int64)) if self.tokens else logits

    def _encoded(self, sentence: str) -> tuple[list[int], list[int]]:
        """Rows of a sentence's tokens; and where words have answers, the place of each one's first token."""
        encode, empty = self._tokens.encode, self._tokens.empty
        if not self.tokens:
            return encode(sentence)[: self.max_tokens] or [empty], []
        rows: list[int] = []
        starts: list[int] = []
        for word in sentence.split(" "):
            starts.append(min(len(rows), self.max_tokens - 1))
            rows += encode(word + self._tokens.after_word)[: self.max_tokens] or [empty]
        return rows[: self.max_tokens], starts

    def _sentences(self, text: str | tuple[str, str]) -> list[str]:
        sentences = list(text) if isinstance(text, tuple | list) else [text]
        if len(sentences) != 1 + self.pair or not all(isinstance(sentence, str) for sentence in sentences):
            raise PackedError(f"{self.name} reads {'pairs of texts' if self.pair else 'single texts'}")
        return [sentence if sentence.isascii() else _whole(sentence) for sentence in sentences]

    def _forward(self, rows: np.ndarray, lengths: np.ndarray, words: np.ndarray) -> np.ndarray:
        if self.tokens:
            encoded = self._encoder.states(self._tokens.table, rows, lengths)[words]
        else:
            encoded = self._encoder(self._tokens.table, rows, lengths)
        if self.pair and self.arch not in TRANSFORMERS:
            u, v = encoded[::2], encoded[1::2]
            encoded = np.concatenate([u, v, np.abs(u - v), u * v], 1)
        (first, first_bias), (last, last_bias) = self._layers
        hidden = encoded @ first
        hidden += first_bias
        return np.maximum(hidden, 0, out=hidden) @ last + last_bias

    def probabilities(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> np.ndarray:
        """Softmax of the logits, float32 [texts, labels], or [texts, words, labels]; of a regression, the score itself
        [texts, 1]."""
        logits = self.logits(texts)
        if not self.labels:
            return logits
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)


def _encoder(head: Head, matrices: dict[str, np.ndarray]) -> Mean | Recurrent | Convolution | Transformer:
    if head.arch in TRANSFORMERS:
        return Transformer(matrices, head.size)
    if head.arch == "ffn":
        return Mean()
    if head.arch == "conv":
        return Convolution(matrices["convolution.weight"], matrices["convolution.bias"], head.size.kernel_width)
    ways = ("forward_rnn", "backward_rnn")
    both = [np.stack([matrices[f"{way}.{name}"] for way in ways]) for name in ("weight_ih", "weight_hh", "bias")]
    return Recurrent(*both, head.arch == "bilstm", head.pool_max)


def _by_text(flat: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[words of all texts, outputs] -> [texts, words, outputs], NaN past a text's last word."""
    inside = np.arange(counts.max(initial=0)) < counts[:, None]
    made = np.full((*inside.shape, flat.shape[1]), np.nan, np.float32)
    made[inside] = flat
    return made


def _whole(text: str) -> str:
    """Halves of surrogate pairs, which no UTF-8 has, become the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


# Loading


class EncoderSize(NamedTuple):
    """What shapes an encoder. depth: layers, or times that the one is used; positions: places that a text can have."""

    arch: str
    pair: bool
    dim: int
    hidden: int
    kernel_width: int = 0
    depth: int = 0
    heads: int = 0
    intermediate: int = 0
    adapters: int = 0
    positions: int = 0

    @property
    def shared(self) -> bool:
        """Whether one layer serves all iterations."""
        return self.arch == "recursive"

    @property
    def output(self) -> int:
        """Width of what the classifier reads."""
        width = {"ffn": self.dim, "rnn": 2 * self.hidden, "bilstm": 2 * self.hidden}.get(self.arch, self.hidden)
        return width * (4 if self.pair and self.arch not in TRANSFORMERS else 1)


def positions_of(max_tokens: int, pair: bool) -> int:
    """Places that a text can have: one sentence or two of max_tokens, each with a mark after it, and the first mark."""
    return 1 + (1 + pair) * (max_tokens + 1)


Shapes = dict[str, tuple[int, ...]]


def encoder_shapes(size: EncoderSize) -> Shapes:
    """What an encoder multiplies with and adds, by the names that students give it, in a file's order."""
    dim, hidden = size.dim, size.hidden
    if size.arch == "ffn":
        return {}
    if size.arch == "conv":
        return _linear_shapes("convolution", size.kernel_width * dim, 2 * hidden)
    if size.arch in TRANSFORMERS:
        return _transformer_shapes(size)
    gates, shapes = GATES[size.arch] * hidden, {}
    for way in ("forward_rnn", "backward_rnn"):
        shapes[f"{way}.weight_ih"], shapes[f"{way}.weight_hh"] = (gates, dim), (gates, hidden)
        shapes[f"{way}.bias"] = (gates,)
    return shapes


def _linear_shapes(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _transformer_shapes(size: EncoderSize) -> Shapes:
    hidden = size.hidden
    shapes = _linear_shapes("projection", size.dim, hidden) if size.dim != hidden else {}
    shapes |= {"marks.weight": (2, size.dim), "positions.weight": (size.positions, hidden)}
    shapes |= {"segments.weight": (2, hidden), **_norm_shapes("norm", hidden)}
    for number in range(1 if size.shared else size.depth):
        name = f"blocks.{number}."
        for part in ("query", "key", "value", "output"):
            shapes |= _linear_shapes(f"{name}attention.{part}", hidden, hidden)
        shapes |= _norm_shapes(f"{name}attention_norm", hidden)
        shapes |= _linear_shapes(f"{name}up", hidden, size.intermediate)
        shapes |= _linear_shapes(f"{name}down", size.intermediate, hidden)
        shapes |= _norm_shapes(f"{name}output_norm", hidden)
    for number in range(size.depth if size.adapters else 0):
        for place in (0, 1):
            shapes |= _linear_shapes(f"adapters.{number}.{place}.down", hidden, size.adapters)
            shapes |= _linear_shapes(f"adapters.{number}.{place}.up", size.adapters, hidden)
    return shapes


def _norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


class Head:
    """A file's settings, vocabulary and the list of what its streams hold."""

    def __init__(self, reader: Reader) -> None:
        """Read all of the head. Raises PackedError."""
        self.arch = ARCHS[reader.byte(len(ARCHS))]
        self.embedding = EMBEDDINGS[reader.byte(len(EMBEDDINGS))]
        flags = reader.byte(8)
        self.pair, self.pool_max, self.tokens = bool(flags & PAIR), bool(flags & POOL_MAX), bool(flags & TOKENS)
        self.name, self.task = reader.text(), reader.text()
        self.labels = tuple(reader.text() for _ in range(reader.number(1 << 16)))
        self.outputs = len(self.labels) or 1
        if self.tokens and (self.pair or not self.labels or self.arch == "ffn"):
            raise PackedError("words that have answers, of a model that cannot give them")
        self.max_tokens, self.dim, self.classifier = reader.size(), reader.size(), reader.size()
        self.size = self._encoder_size(reader)
        self.vocab_size = reader.size() if self.embedding == "hash" else 0
        self.numbers = Numbers()
        self.vocabulary = Vocabulary(reader, self.numbers) if self.embedding == "bpe" else None
        self.word_pieces = read_word_pieces(reader) if self.embedding == "wordpiece" else None
        self._rows = self._read_rows(reader)
        self.matrices = {
            name: Matrix(reader, self.numbers, *shape) for name, shape in self.shapes().items() if len(shape) == 2
        }
        self.vectors = {name: self.numbers.more_floats(*s) for name, s in self.shapes().items() if len(s) == 1}
        self.floats = [self.numbers.array(reader, self.numbers.floats) for _ in range(4)]
        reader.end()

    def _read_rows(self, reader: Reader) -> int:
        """Rows of the embedding's table."""
        if self.word_pieces is not None:
            return len(self.word_pieces[0])
        return reader.size() if self.embedding != "char" else 1 + len(Letters.alphabet)

    def _encoder_size(self, reader: Reader) -> EncoderSize:
        """Raises PackedError for sizes that do not go together."""
        size = EncoderSize(self.arch, self.pair, self.dim, reader.size() if self.arch != "ffn" else 0)
        if self.arch == "conv":
            size = size._replace(kernel_width=reader.byte())
            if not (self.pool_max and size.kernel_width % 2):
                raise PackedError("a convolution whose windows have no middle, or that does not take the maximum")
        if self.arch in TRANSFORMERS:
            depth, heads = reader.byte(), reader.byte()
            size = size._replace(depth=depth, heads=heads, intermediate=reader.size(), adapters=reader.number())
            size = size._replace(positions=positions_of(self.max_tokens, self.pair))
            if not depth or not heads or size.hidden % heads:
                raise PackedError("a transformer without layers, or whose heads do not divide its width")
        return size

    def shapes(self) -> Shapes:
        """Everything a model multiplies with and adds, in the file's order: (rows, columns), or (length,)."""
        shapes: Shapes = {"embedding.table": (self._rows, self.dim)}
        if self.embedding == "hash":
            shapes["embedding.importance"] = (3 * self.vocab_size, 1)
        shapes |= encoder_shapes(self.size)
        shapes["classifier.0.weight"] = (self.classifier, self.size.output)
        shapes["classifier.0.bias"] = (self.classifier,)
        shapes["classifier.3.weight"] = (self.outputs, self.classifier)
        shapes["classifier.3.bias"] = (self.outputs,)
        return shapes

    def read_streams(self, reader: Reader) -> None:
        """Decode everything after the head, to its last byte. Raises PackedError."""
        numbers = self.numbers
        limit = min(MOST_VALUES, _SYMBOLS_PER_BYTE * (reader.left + 8))
        carried = decode_stream(reader, numbers.side, CODE_BITS, limit)
        for matrix in self.matrices.values():
            matrix.measure()
        if self.vocabulary is not None:
            carried += self.vocabulary.read_pairs(reader)
            self.pieces = self.vocabulary.pieces()
            if self.pieces.rows != self._rows:
                raise PackedError(f"{self.pieces.rows} pieces have {self._rows} vectors")
        carried += decode_stream(reader, numbers.main, CODE_BITS, limit)
        raw = [array for array in numbers.main if array.mode == RAW]
        wanted = sum(array.count for array in raw)
        if reader.left != max(0, wanted - len(carried)) or any(carried[wanted:]):
            raise PackedError("the numbers stored as they are have another length than they should")
        pool = np.frombuffer(carried[:wanted] + bytes(reader.rest()), np.uint8)
        start = 0
        for array in raw:
            array.values = pool[start : start + array.count]
            start += array.count

    def values(self) -> dict[str, np.ndarray]:
        """Name -> float32 of everything in `shapes`."""
        floats = _checked(join_planes(self.floats, "<f4"))
        made = {name: matrix.value(floats) for name, matrix in self.matrices.items()}
        return made | {name: floats[place] for name, place in self.vectors.items()}


def read_word_pieces(reader: Reader) -> tuple[list[str], bool]:
    """Word pieces by row, an empty one for what is unknown first, and whether text is lower-cased."""
    lowercase = bool(reader.byte(LOWERCASE + 1))
    pieces, left = [""], MOST_LETTERS
    for _ in range(reader.number(MOST_WORD_PIECES)):
        piece = pieces[-1][: reader.number(len(pieces[-1]))] + reader.text()
        left -= len(piece)
        if not pieces[-1] < piece or len(piece) > MOST_PIECE_LENGTH or left < 0:
            raise PackedError("word pieces that are out of order, or too many letters of them")
        pieces.append(piece)
    return pieces, lowercase


class Vocabulary:
    """Byte pairs as stored: letters, then unions of two symbols in the merges' order."""

    def __init__(self, reader: Reader, numbers: Numbers) -> None:
        self.flags, base = reader.byte(8), reader.byte(NMT_NFKC + 1)
        rules: dict[str, str | None] = {}
        for _ in range(reader.number(1 << 16)):
            key, holds = reader.text(), reader.byte(2)
            if not key or len(key) > MOST_PIECE_LENGTH:
                raise PackedError("a rule of normalisation matches nothing")
            rules[key] = reader.text() if holds else None
        self.normaliser = Normaliser(base, rules)
        self.letters = reader.text()
        self.unions = reader.number(MOST_PIECES)
        self.spelt: dict[int, str] = {}
        place = -1
        for _ in range(reader.number(self.unions)):
            place += 1 + reader.number(MOST_PIECES)
            self.spelt[place] = reader.text()
        if place >= self.unions:
            raise PackedError("a piece is beyond the last one")
        self.states = numbers.aside(reader, numbers.count(1, len(self.letters) + self.unions))

    def read_pairs(self, reader: Reader) -> bytes:
        """Decode both parts of all unions that are not spelt out. Returns the bytes the states carried."""
        self._pairs = np.zeros((self.unions - len(self.spelt), 2), np.int64)
        if not len(self._pairs):
            return b""
        lanes = pair_lanes(len(self._pairs))
        states = np.frombuffer(reader.take(4 * lanes), "<u4").astype(np.int64)
        read = np.frombuffer(reader.rest(), "<u2", reader.left // 2).astype(np.int64)
        place = 0
        model = PairModel(self.letters, self._places(), bool(self.flags & WORDS))
        for first in range(0, len(self._pairs), lanes):
            block = self._pairs[first : first + lanes]
            x = states[: len(block)]
            for side in (0, 1):
                frequency = model.frequencies(side, first + len(block))
                ends = np.cumsum(frequency)
                slot = x & 0xFFFF
                part = np.searchsorted(ends, slot, "right")
                x[:] = frequency[part] * (x >> 16) + slot - ends[part] + frequency[part]
                small = (x < _STATE).nonzero()[0]
                words = read[place : place + len(small)]
                if len(words) < len(small):
                    raise PackedError("the pairs end too early")
                x[small] = x[small] << 16 | words
                place += len(small)
                block[:, side] = part
            model.learn(first, block)
        reader.take(2 * place)
        payload = states - _STATE
        if payload.min() < 0 or payload.max() >= _STATE:
            raise PackedError("the pairs do not end where they began")
        return payload.astype("<u2").tobytes()

    def _places(self) -> np.ndarray:
        """Number of each union that is not spelt out, among all symbols."""
        spelt = np.zeros(self.unions, bool)
        spelt[list(self.spelt)] = True
        return len(self.letters) + np.flatnonzero(~spelt)

    def pieces(self) -> BytePairs:
        """The vocabulary. Raises PackedError when it makes no sense."""
        symbols = list(self.letters)
        coded = iter(self._pairs.tolist())
        for place in range(self.unions):
            if place in self.spelt:
                symbols.append(self.spelt[place])
                continue
            left, right = next(coded)
            if max(left, right) >= len(symbols):
                raise PackedError("a piece is made of a later one")
            symbols.append(symbols[left] + symbols[right])
            if len(symbols[-1]) > MOST_PIECE_LENGTH:
                raise PackedError("a piece is too long")
        if len(set(symbols)) != len(symbols) or self.states.values.max(initial=0) > UNKNOWN:
            raise PackedError("a vocabulary that repeats itself")
        return BytePairs(len(self.letters), symbols, self.states.values.tolist(), self.normaliser, self.flags)


def pair_lanes(unions: int) -> int:
    """How many unions are coded side by side."""
    return min(unions, 128, max(8, unions // 16))


class PairModel:
    """How likely each symbol is the left or the right part of the next unions: by how often it has been one so far.

    letters: the first symbols. places: int64, each coded union's number among all symbols. words: no right part begins
    with the mark of a word.
    """

    def __init__(self, letters: str, places: np.ndarray, words: bool) -> None:
        self._places, self._letters = places, len(letters)
        size = max(len(letters), int(places.max()) + 1)
        self._seen = np.zeros((2, size), np.int64)
        self._right = np.ones(size, bool)
        if words:
            self._right[: len(letters)] = [letter != _SPACE for letter in letters]

    def frequencies(self, side: int, unions: int) -> np.ndarray:
        """Frequencies (sum 1 << PAIR_BITS) of the symbols before the given number of coded unions; side 0 is left."""
        known = int(self._places[unions - 1]) + 1
        weights = 4 * self._seen[side, :known] + 2
        if side:
            weights = np.where(self._right[:known], weights + 1, 0)
        return frequencies(weights, PAIR_BITS)

    def learn(self, first: int, pairs: np.ndarray) -> None:
        """Count the parts of coded unions from number `first` on. pairs: int64 [unions, 2]."""
        places = self._places[first : first + len(pairs)]
        for place, left in zip(places.tolist(), pairs[:, 0].tolist(), strict=True):
            # In order: a union may be made of one before it in the same block.
            self._right[place] = self._right[left]
        for side in (0, 1):
            np.add.at(self._seen[side], pairs[:, side], 1)


def load_bytes(data: bytes) -> Model:
    """A model from a packed file's bytes. Raises PackedError for anything wrong with them."""
    if len(data) < 16 or data[:3] != MAGIC:
        raise PackedError("no packed student" if data else "an empty file")
    if data[3] != VERSION:
        raise PackedError(f"version {data[3]} of the format; this runtime reads version {VERSION}")
    length = int.from_bytes(data[4:8], "little")
    if length != len(data):
        raise PackedError(f"{len(data):,} bytes instead of {length:,}: truncated, or something was appended")
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise PackedError("its checksum is wrong: it is damaged")
    reader = Reader(memoryview(data)[8:-4])
    stored, size = reader.number(), reader.number(MOST_HEAD)
    head = Head(Reader(_inflate(bytes(reader.take(stored)), size)))
    head.read_streams(reader)
    return Model(head, head.values())


def _inflate(stored: bytes, size: int) -> bytes:
    """The head, of `size` bytes: as it is where it has that many, else raw deflate."""
    if len(stored) == size:
        return stored
    inflater = zlib.decompressobj(-15)
    try:
        head = inflater.decompress(stored, size + 1)
    except zlib.error as error:
        raise PackedError(f"its head cannot be read ({error})") from None
    if len(head) != size or not inflater.eof or inflater.unused_data:
        raise PackedError("its head has another length than it says")
    return head


def load(path: str | os.PathLike) -> Model:
    """A model from a file. Raises PackedError, whose text begins with the path, for anything wrong with it."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this file to read
            data = file.read(MOST_FILE + 1)
    except OSError as error:
        raise PackedError(f"{os.fspath(path)}: {error.strerror or error}") from None
    if len(data) > MOST_FILE:
        raise PackedError(f"{os.fspath(path)}: larger than any packed student")
    try:
        return load_bytes(data)
    except PackedError as error:
        raise PackedError(f"{os.fspath(path)}: {error}") from None


MOST_FILE = 1 << 27


# The command line


def lines_of(stream: Iterator[bytes]) -> Iterator[str]:
    """Lines of UTF-8. Raises PackedError naming the first that is none."""
    for number, line in enumerate(stream, 1):
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise PackedError(f"line {number}: not UTF-8") from None


def tidy(text: str) -> str:
    """What the project's reader makes of text: NFC, every run of white space one space, ends stripped."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def answers(model: Model, texts: Sequence[str] | Sequence[tuple[str, str]]) -> Iterator[str]:
    """A line for each text: the label and all probabilities, or a regression's score; of tokens a line for each word,
    with its tag, and an empty one."""
    for text, row in zip(texts, model.probabilities(texts).tolist(), strict=True):
        if model.tokens:
            tags = (model.labels[each.index(max(each))] for each in row)
            yield "".join(f"{word}\t{tag}\n" for word, tag in zip(text.split(), tags, strict=False))
            continue
        if not model.labels:
            yield f"{row[0]:.6f}"
            continue
        shares = "\t".join(f"{label} {share:.6f}" for label, share in zip(model.labels, row, strict=True))
        yield f"{model.labels[row.index(max(row))]}\t{shares}"


def main(words: Sequence[str]) -> None:
    """Answer the texts given, or the lines of standard input. Raises PackedError."""
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m compression.runtime FILE.fwt [TEXT ...]   (lines of standard input without TEXT;")
        print("       a model of pairs takes two TEXTs a pair, or lines of two texts with a tab between them)")
        return
    model = load(words[0])
    sys.stdout.reconfigure(encoding="utf-8")
    texts = [tidy(word) for word in words[1:]]
    if texts and model.pair and len(texts) % 2:
        raise PackedError(f"{model.name} reads pairs of texts: give an even number of them")
    if texts:
        _print(answers(model, list(zip(texts[::2], texts[1::2], strict=True)) if model.pair else texts))
        return
    batch: list = []
    longest = 0
    for number, line in enumerate(lines_of(sys.stdin.buffer), 1):
        batch.append(_asked(model, line, number))
        longest = max(longest, len(line))
        # Answers to words are padded to the longest line.
        if len(batch) == 1 << 12 or (model.tokens and longest * len(batch) > 1 << 20):
            _print(answers(model, batch))
            batch, longest = [], 0
    _print(answers(model, batch))


def _asked(model: Model, line: str, number: int) -> str | tuple[str, ...]:
    if not model.pair:
        return tidy(line)
    texts = tuple(tidy(part) for part in line.split("\t"))
    if len(texts) != 2:
        raise PackedError(f"line {number}: {len(texts)} texts; {model.name} reads two with a tab between them")
    return texts


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PackedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read has enough. Python would complain at exit when it flushes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
