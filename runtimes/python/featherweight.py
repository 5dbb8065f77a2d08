"""Packed students without PyTorch: loads a .fwt file and answers texts with numpy and the standard library alone.

    model = load("sst-2-12k")    # a name of the zoo, or the path of a packed file
    model.labels, model.predict(["a gorgeous , witty film"]), model.probabilities(["a gorgeous , witty film"])

or `python -m compression.runtime sst-2-12k "a gorgeous , witty film"`. docs/format.md has the format byte by byte;
compression/packing writes it. Read the modules in the order reader, entropy, weights, shapes, tokenizers, vocabulary,
header, encoders, zoo, model, __main__. They import nothing of the project, and `make runtime` joins them into one file.

Files are not trusted: every length is checked before anything is allocated, and whatever is wrong is a PackedError.

Joined from compression.runtime by `make runtime`: change it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from heapq import heappop
from heapq import heappush
from typing import NamedTuple
import itertools
import os
import re
import struct
import sys
import unicodedata
import zlib

if __name__ == "__main__":
    # Before numpy loads: products this small gain nothing from threads, which take time to start and to wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


import numpy as np

# compression.runtime.tokenizers.hash


HASHES = 3
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*|[^\w\s]|_")


def split_words(text: str) -> list[str]:
    """Return lower-cased words and single punctuation marks. "It's fun!" -> ["it's", "fun", "!"]."""
    return _WORD.findall(text.lower())


def hash_codes(words: Sequence[str], count: int) -> np.ndarray:
    """Return three codes below `count` a word, int64 [words, 3]: MD5 of the word with 0, 1 or 2 appended (section 6.1.5
    of the thesis); not a security use."""
    from hashlib import md5  # slow to import: it loads OpenSSL

    found = [
        int.from_bytes(md5(f"{word}{i}".encode(), usedforsecurity=False).digest()[:8], "little") % count
        for word in words
        for i in range(HASHES)
    ]
    return np.array(found, np.int64).reshape(-1, HASHES)


class HashedWords:
    """Words as ids in the order in which they first appear, and the vectors of these words."""

    after_word = ""
    most_values = 3 << 20
    """Numbers in the table that is kept from one batch to the next."""

    def __init__(self, vocab_size: int, shared: np.ndarray, importance: np.ndarray, max_tokens: int) -> None:
        """shared: float32 [rows, dim]; importance: float32 [3 vocab_size, 1]."""
        self._vocab_size, self._shared, self._importance = vocab_size, shared, importance[:, 0]
        self._max_tokens = max_tokens
        self._start()

    def _start(self) -> None:
        self._ids = {"": 0}  # the token of an empty text
        self._table = np.zeros((0, self._shared.shape[1]), np.float32)

    def encode(self, text: str) -> list[int]:
        """Return one id a word or sign. It is valid until `table` is called."""
        words = split_words(text)[: self._max_tokens]
        ids = self._ids
        try:
            return [ids[word] for word in words]
        except KeyError:
            return [ids.setdefault(word, len(ids)) for word in words]

    def table(self) -> np.ndarray:
        """Return the vectors of all words met, float32 [words, dim]; they are forgotten when there are too many."""
        table = self._table
        if len(table) < len(self._ids):
            new = list(self._ids)[len(table) :]
            table = self._table = np.concatenate([table, self._vectors(new)])
        if table.size > self.most_values:
            self._start()
        return table

    def _vectors(self, words: list[str]) -> np.ndarray:
        vectors = np.zeros((len(words), self._shared.shape[1]), np.float32)
        codes = hash_codes(words, self._vocab_size * len(self._shared))
        for sector in range(HASHES):
            weights = self._importance[codes[:, sector] % self._vocab_size + sector * self._vocab_size]
            vectors += weights[:, None] * self._shared[codes[:, sector] // self._vocab_size]
        return vectors

# compression.runtime.shapes


ARCHS = ("ffn", "rnn", "bilstm", "conv", "transformer", "recursive")
TRANSFORMERS = ARCHS[4:]
"""Architectures that read a pair as one text."""
EMBEDDINGS = ("bpe", "hash", "char", "wordpiece")
GATES = {"rnn": 1, "bilstm": 4}
ENCODER_FIELDS = {
    "ffn": {},
    "conv": {"hidden": "width", "kernel_width": "byte"},
    **{arch: {"hidden": "width"} for arch in GATES},
    **{
        arch: {"hidden": "width", "depth": "byte", "heads": "byte", "intermediate": "width", "adapters": "units"}
        for arch in TRANSFORMERS
    },
}
"""Architecture -> the fields of EncoderSize that its files have, and the methods that read and write them."""

Shapes = dict[str, tuple[int, ...]]
"""Name of a matrix or vector -> (rows, columns), or (length,)."""


class EncoderSize(NamedTuple):
    """The sizes of an encoder. depth: layers, or how often the one layer is used."""

    arch: str
    pair: bool
    max_tokens: int
    dim: int
    hidden: int = 0
    kernel_width: int = 0
    depth: int = 0
    heads: int = 0
    intermediate: int = 0
    adapters: int = 0

    @property
    def shared(self) -> bool:
        """Whether one layer serves all iterations."""
        return self.arch == "recursive"

    @property
    def positions(self) -> int:
        """Most tokens of a transformer's text: one sentence or two, a special token after each, one in front."""
        return 1 + (1 + self.pair) * (self.max_tokens + 1)

    @property
    def output(self) -> int:
        """Width of the classifier's input."""
        width = {"ffn": self.dim, "rnn": 2 * self.hidden, "bilstm": 2 * self.hidden}.get(self.arch, self.hidden)
        return width * (4 if self.pair and self.arch not in TRANSFORMERS else 1)


def student_shapes(size: EncoderSize, rows: int, vocab_size: int, classifier: int, outputs: int) -> Shapes:
    """Return the shapes of all matrices and vectors, by the names that students give them.

    rows: of the embedding's table; vocab_size: of hash embeddings, else 0; classifier: the hidden layer's units.
    """
    shapes: Shapes = {"embedding.table.weight": (rows, size.dim)}
    if vocab_size:
        shapes["embedding.importance.weight"] = (HASHES * vocab_size, 1)
    shapes |= {f"encoder.{name}": shape for name, shape in _encoder_shapes(size).items()}
    return shapes | _layer("classifier.0", classifier, size.output) | _layer("classifier.3", outputs, classifier)


def _encoder_shapes(size: EncoderSize) -> Shapes:
    dim, hidden = size.dim, size.hidden
    shapes: Shapes = {}
    if size.arch == "conv":
        return _layer("convolution", 2 * hidden, size.kernel_width * dim)
    if size.arch in TRANSFORMERS:
        return _transformer_shapes(size)
    if size.arch in GATES:
        gates = GATES[size.arch] * hidden
        for name in ("forward_rnn", "backward_rnn"):
            shapes |= {
                f"{name}.weight_ih": (gates, dim),
                f"{name}.weight_hh": (gates, hidden),
                f"{name}.bias": (gates,),
            }
    return shapes


def _transformer_shapes(size: EncoderSize) -> Shapes:
    hidden = size.hidden
    shapes = _layer("projection", hidden, size.dim) if size.dim != hidden else {}
    # marks: the vectors of the two special tokens.
    shapes |= {"marks.weight": (2, size.dim), "positions.weight": (size.positions, hidden)}
    shapes |= {"segments.weight": (2, hidden), **_layer("norm", hidden)}
    for number in range(1 if size.shared else size.depth):
        name = f"blocks.{number}."
        for part in ("query", "key", "value", "output"):
            shapes |= _layer(f"{name}attention.{part}", hidden, hidden)
        shapes |= _layer(f"{name}attention_norm", hidden)
        shapes |= _layer(f"{name}up", size.intermediate, hidden) | _layer(f"{name}down", hidden, size.intermediate)
        shapes |= _layer(f"{name}output_norm", hidden)
    for number in range(size.depth if size.adapters else 0):
        for name in (f"adapters.{number}.0", f"adapters.{number}.1"):
            shapes |= _layer(f"{name}.down", size.adapters, hidden) | _layer(f"{name}.up", hidden, size.adapters)
    return shapes


def _layer(name: str, outputs: int, *inputs: int) -> Shapes:
    """Return the shapes of a linear layer, or without inputs of a normalisation."""
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}

# compression.runtime.reader


MOST_VALUES = 1 << 24
"""Numbers that one file may hold, and the largest number that may stand in it."""
MOST_WIDTH = 1 << 14
"""Numbers of a vector, or of a layer's output: what a prediction allocates for a token or a text."""


class PackedError(ValueError):
    """A packed file is damaged, or a model is asked for something it cannot give. One line."""


class Reader:
    """Reads bytes from front to back. Every method raises PackedError where the bytes are not as it expects."""

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
            raise PackedError(f"a field is {value}, which this version does not know")
        return value

    def number(self, most: int = MOST_VALUES) -> int:
        """Return a number written in seven bits a byte, lowest first, at most `most`."""
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
        """Return the size of a layer's output; 0 where there is no such layer."""
        return self.number(MOST_WIDTH)

    def float_within(self, least: float, most: float) -> float:
        """Return a float32 of at least `least` and at most `most`."""
        (value,) = struct.unpack("<f", self.take(4))
        if not least <= value <= most:  # NaN neither
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

# compression.runtime.entropy


RAW, CONSTANT, CODED, BY_ROW, BY_COLUMN = range(5)
"""How an array is stored: as it is, as one value, coded with one table, or with a table for each class of rows or
columns."""
BLOCK = 64
"""Columns of an array that has one dimension."""
CODE_BITS = 13
"""log2 of the sum of a table's frequencies."""
LOWEST_STATE = 1 << 16
MOST_TABLES = 128
MOST_STEPS = 4096
SYMBOLS_PER_BYTE = 352
"""No table gives a symbol more than 63 / 64, so that each takes at least log2(64 / 63) of a bit."""
_QUARTER_POWERS = np.array((65536, 77936, 92682, 110218), np.int64)
"""2 ** (16 + i / 4)."""


def frequencies(weights: np.ndarray, bits: int = CODE_BITS) -> np.ndarray:
    """Return integer frequencies in proportion to weights (int64, not negative) that sum to 1 << bits.

    A frequency is at least 1 where the weight is positive, and at most 63 / 64 of the sum. Raises PackedError for fewer
    than two symbols or too many.
    """
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
    """Return the weights, int64, that a table's bytes stand for: 2 ** (16 + step / 4), or 0 where the step is 0."""
    return np.where(steps > 0, _QUARTER_POWERS[steps & 3] << (steps >> 2).astype(np.int64), 0)


class Array:
    """An array [rows, columns] of bytes: how it is stored, and once its stream is decoded its values.

    values: uint8 or uint16 [count]; of one dimension: rows of BLOCK values, the last one shorter. weights: int64, of
    each table; classes: the table of each row or column.
    """

    def __init__(self, count: int, columns: int = BLOCK, mode: int = CODED, weights: Sequence[np.ndarray] = ()) -> None:
        self.count, self.columns, self.mode, self.weights = count, columns, mode, weights
        self.constant = 0
        self.classes: Array | None = None
        self.values = np.zeros(0, np.uint8)

    @classmethod
    def read(cls, reader: Reader, count: int, columns: int = BLOCK, first: bool = False) -> Array:
        """Read how an array is stored. first: of the first stream, without classes, and raw values in the header."""
        array = cls(count, columns, reader.byte((CODED if first else BY_COLUMN) + 1))
        tables = int(array.mode == CODED)
        if array.mode > CODED:
            tables = reader.byte(MOST_TABLES)
            if not tables:
                raise PackedError("an array has no tables")
            array.classes = cls.read(reader, array.rows if array.mode == BY_ROW else columns, first=True)
        elif array.mode == CONSTANT:
            array.constant = reader.byte()
        elif array.mode == RAW and first:
            array.values = np.frombuffer(reader.take(count), np.uint8)
        array.weights = [_read_table(reader) for _ in range(tables)]
        return array

    @property
    def rows(self) -> int:
        """Rows, the last one perhaps shorter."""
        return -(-self.count // self.columns)

    def tables(self) -> np.ndarray:
        """Return the index of the table that each value is coded with, uint16 [count]."""
        if self.classes is None:
            return np.zeros(self.count, np.uint16)
        classes = self.classes.values.astype(np.uint16)
        if classes.max() >= len(self.weights):
            raise PackedError("a row of numbers has no table")
        spread = np.repeat(classes, self.columns) if self.mode == BY_ROW else np.tile(classes, self.rows)
        return spread[: self.count]


def _read_table(reader: Reader) -> np.ndarray:
    deltas = np.frombuffer(reader.take(1 + reader.byte()), np.uint8)
    steps = np.cumsum(deltas, dtype=np.uint8)
    if steps.max(initial=0) > 63:
        raise PackedError("a table's entry is too large")
    return step_weights(steps)


class Lanes:
    """The states of a stream, uint32, and the words that refill them."""

    def __init__(self, reader: Reader, count: int) -> None:
        self._reader = reader
        self.states = np.frombuffer(reader.take(4 * count), "<u4").astype(np.uint32)
        self._words = np.frombuffer(reader.rest(), "<u2", reader.left // 2)
        self._read = 0

    def refill(self, states: np.ndarray) -> None:
        """Shift a word into each of some states that has become too small, in place."""
        small = (states < LOWEST_STATE).nonzero()[0]
        if len(small):
            words = self._words[self._read : self._read + len(small)]
            if len(words) < len(small):
                raise PackedError("a stream ends too early")
            states[small] = states[small] << np.uint32(16) | words
            self._read += len(small)

    def end(self) -> bytes:
        """Go past the words that were read, and return the two bytes that each state carries."""
        self._reader.take(2 * self._read)
        carried = self.states - np.uint32(LOWEST_STATE)  # wraps around where the state is smaller
        if carried.max() >= LOWEST_STATE:
            raise PackedError("a stream does not end where it began")
        return carried.astype("<u2").tobytes()


def decode_stream(reader: Reader, arrays: Sequence[Array], limit: int) -> bytes:
    """Fill in the values of all coded and constant arrays of a stream. Returns the bytes that its states carry."""
    for array in arrays:
        if array.mode == CONSTANT:
            array.values = np.full(array.count, array.constant, np.uint8)
    coded = [array for array in arrays if array.mode >= CODED and array.count]
    total = sum(array.count for array in coded)
    if not total:
        return b""
    if total > limit:
        raise PackedError("a stream claims more numbers than it can hold")
    slots, symbols, first = _slots(coded)
    count = reader.number(total)
    if not count or -(-total // count) > MOST_STEPS:
        raise PackedError("a stream has too few lanes")
    lanes = Lanes(reader, count)
    decoded = np.concatenate([array.tables() + np.uint16(start) for array, start in zip(coded, first, strict=True)])
    decoded = decoded.astype(np.uint32)
    decoded <<= CODE_BITS
    _decode(lanes, decoded, slots)
    carried = lanes.end()
    start = 0
    for array in coded:
        array.values = symbols[decoded[start : start + array.count]]
        start += array.count
    return carried


def _slots(coded: Sequence[Array]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return for each slot of each table frequency << 16 | offset within the symbol's interval, and the symbol; and the
    index of each array's first table."""
    slots, symbols, first = [], [], []
    for array in coded:
        first.append(len(slots))
        for weights in array.weights:
            frequency = frequencies(weights)
            symbol = np.repeat(np.arange(len(frequency), dtype=np.uint16), frequency)
            starts = np.cumsum(frequency) - frequency
            slots.append((frequency[symbol] << 16 | np.arange(1 << CODE_BITS) - starts[symbol]).astype(np.uint32))
            symbols.append(symbol)
    return np.concatenate(slots), np.concatenate(symbols), first


def _decode(lanes: Lanes, decoded: np.ndarray, slots: np.ndarray) -> None:
    """Decode in place. decoded: table index << CODE_BITS of each value, becomes the index of its slot."""
    mask, shift, half, low = map(np.uint32, ((1 << CODE_BITS) - 1, CODE_BITS, 16, 0xFFFF))
    for start in range(0, len(decoded), len(lanes.states)):
        slot = decoded[start : start + len(lanes.states)]
        x = lanes.states[: len(slot)]
        slot |= x & mask
        entry = slots[slot]
        x >>= shift
        x *= entry >> half
        x += entry & low
        lanes.refill(x)

# compression.runtime.weights


FLOAT32, FLOAT16, AFFINE, CODEBOOK, PRODUCT = range(5)
"""How a matrix is stored."""
MASKED, RESIDUAL, PER_ROW, PER_COLUMN = 1, 1, 2, 4
"""Options: of float matrices; of affine codes; scales (or codebooks) for each row, scales for each column."""
LARGEST = np.float32(1e4)
"""No weight is larger, so that the logits of any text are finite."""


class Streams:
    """All arrays of a file in the order of its two streams, and the number of float32 values that matrices share.

    first: arrays that are decoded before the others, which depend on them: masks, zero points, classes, states. masked:
    a mask, and the byte planes of the values that it leaves.
    """

    def __init__(self) -> None:
        self.first: list[Array] = []
        self.main: list[Array] = []
        self.masked: list[tuple[Array, list[Array]]] = []
        self.floats = 0
        self._total = self._first_tables = self._main_tables = 0

    def count(self, rows: int, columns: int = 1) -> int:
        """Return rows * columns. Raises PackedError when the values of a file are too many."""
        self._total += rows * columns
        if self._total > MOST_VALUES:
            raise PackedError(f"more than {MOST_VALUES:,} numbers")
        return rows * columns

    def add_first(self, reader: Reader, count: int) -> Array:
        """Read the description of an array of the first stream. Raises PackedError when its tables are too many."""
        return self._add_first(Array.read(reader, count, first=True))

    def _add_first(self, array: Array) -> Array:
        self.first.append(array)
        self._first_tables = _counted(self._first_tables, array)
        return array

    def add(self, reader: Reader, count: int, columns: int = BLOCK) -> Array:
        """Read the description of an array of the main stream; its classes belong to the first one.

        Raises PackedError when a stream's tables are too many.
        """
        self.main.append(array := Array.read(reader, count, columns))
        self._main_tables = _counted(self._main_tables, array)
        if array.classes is not None:
            self._add_first(array.classes)
        return array

    def add_floats(self, count: int) -> slice:
        """Reserve float32 values. Returns where they are among the shared ones."""
        self.floats += self.count(count)
        return slice(self.floats - count, self.floats)

    def apply_masks(self) -> None:
        """Once the first stream is decoded: set how many values the masked byte planes hold."""
        for mask, planes in self.masked:
            if mask.values.max(initial=0) > 1:
                raise PackedError("a mask holds more than zeros and ones")
            for plane in planes:
                plane.count = int(np.count_nonzero(mask.values))


def _counted(tables: int, array: Array) -> int:
    tables += len(array.weights)
    if tables > MOST_TABLES:
        raise PackedError("a stream has too many tables")
    return tables


class Matrix:
    """A matrix: its description is read from the header, its value follows when the streams are decoded.

    factor: whether it is one of a product's, which is no product itself.
    """

    def __init__(self, reader: Reader, streams: Streams, rows: int, columns: int, factor: bool = False) -> None:
        self.shape = rows, columns
        count, width = streams.count(rows, columns), columns if columns > 1 else BLOCK
        self.form = reader.byte(PRODUCT + 1)
        if self.form == PRODUCT:
            if factor:
                raise PackedError("a factor of a product is a product")
            rank = reader.size()
            self.left = Matrix(reader, streams, rows, rank, factor=True)
            self.right = Matrix(reader, streams, rank, columns, factor=True)
            return
        self.option = reader.byte(8)
        by_row, by_column = bool(self.option & PER_ROW), bool(self.option & PER_COLUMN)
        if self.form in (FLOAT32, FLOAT16):
            self.mask = streams.add_first(reader, count) if self.option & MASKED else None
            self.planes = [streams.add(reader, count, width) for _ in range(4 if self.form == FLOAT32 else 2)]
            if self.mask is not None:
                streams.masked.append((self.mask, self.planes))
                if any(plane.classes is not None for plane in self.planes):
                    raise PackedError("numbers behind a mask have no classes")
        elif self.form == AFFINE:
            self._scales_shape = rows if by_row else 1, columns if by_column else 1
            scales = self._scales_shape[0] * self._scales_shape[1]
            self.zero_point = streams.add_first(reader, scales)
            self.codes = streams.add(reader, count, width)
            self.floats = streams.add_floats(scales)
        else:
            self.levels = reader.byte() + 1
            self.codes = streams.add(reader, count, width)
            self.floats = streams.add_floats(self.levels * (rows if by_row else 1))

    def value(self, floats: np.ndarray) -> np.ndarray:
        """Return the matrix, float32 [rows, columns]. floats: float32, all shared values."""
        if self.form == PRODUCT:
            return checked(self.left.value(floats) @ self.right.value(floats))
        if self.form in (FLOAT32, FLOAT16):
            values = join_planes(self.planes, "<f4" if self.form == FLOAT32 else "<f2")
            if self.mask is not None:
                whole = np.zeros(self.mask.count, np.float32)
                whole[self.mask.values > 0] = values
                values = whole
            return checked(values).reshape(self.shape)
        codes = self.codes.values.reshape(self.shape)
        if self.form == AFFINE:
            zero_point = self.zero_point.values.astype(np.uint8).reshape(self._scales_shape)
            if self.option & RESIDUAL:
                codes = codes.astype(np.uint8) + zero_point
            values = codes.astype(np.float32)
            values -= zero_point
            values *= floats[self.floats].reshape(self._scales_shape)
            return checked(values)
        if codes.max(initial=0) >= self.levels:
            raise PackedError("a code has no centroid")
        codebook = floats[self.floats].reshape(-1, self.levels)
        return codebook[0][codes] if len(codebook) == 1 else np.take_along_axis(codebook, codes.astype(np.int64), 1)


def join_planes(planes: Sequence[Array], kind: str) -> np.ndarray:
    """Return float32 values from arrays of their bytes, lowest byte first. kind: a little-endian float type."""
    joined = np.stack([plane.values.astype(np.uint8) for plane in planes], 1)
    return joined.view(kind)[:, 0].astype(np.float32)


def checked(values: np.ndarray) -> np.ndarray:
    """Return the values. Raises PackedError where one is not finite, or too large."""
    # Written so that a NaN fails too.
    if values.size and not np.abs(values).max() <= LARGEST:
        raise PackedError(f"a weight is not finite, or larger than {LARGEST:g}")
    return values

# compression.runtime.encoders


Weights = dict[str, np.ndarray]


class Encoder:
    """Base of all encoders. weights: by the names of `student_shapes`, without "encoder."; pool_max: whether the last
    states are not taken but the maximum over all.

    Calling an encoder returns float32 [texts, width], its method `states` float32 [tokens, width]. table: float32 [ids,
    dim]; ids: int64 [tokens of all texts]; lengths: int64 [texts], none zero.
    """

    def __init__(self, weights: Weights, size: EncoderSize, pool_max: bool) -> None:
        self._weights, self._size, self._pool_max = weights, size, pool_max


class Mean(Encoder):
    """The mean of a text's vectors. It has no states of tokens."""

    values_at_once = 1 << 20

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, dim]."""
        sums = np.zeros((len(lengths), table.shape[1]), np.float32)
        owner = owners(lengths)
        block = max(1, self.values_at_once // table.shape[1])
        for start in range(0, len(ids), block):
            texts = owner[start : start + block]
            first = np.flatnonzero(np.diff(texts, prepend=-1))
            sums[texts[first]] += np.add.reduceat(table.take(ids[start : start + block], 0), first)
        return sums / lengths[:, None].astype(np.float32)


class Convolution(Encoder):
    """Gated units over a window of tokens centred at each one, and the maximum of each unit over the tokens."""

    values_at_once = 1 << 17
    """Few enough for the processor's cache."""

    def __init__(self, weights: Weights, size: EncoderSize, pool_max: bool) -> None:
        super().__init__({}, size, pool_max)
        # value * sigmoid(gate) = value / 2 * (tanh(gate / 2) + 1): all is halved once. Values are first, gates last.
        half = np.float32(0.5)
        self._weight = np.ascontiguousarray(weights["convolution.weight"].T) * half
        self._bias = weights["convolution.bias"] * half

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, hidden]."""
        best = np.full((len(lengths), self._size.hidden), -np.inf, np.float32)
        for owner, states in self._blocks(table, ids, lengths):
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            texts = owner[first]
            best[texts] = np.maximum(best[texts], np.maximum.reduceat(states, first))
        return np.clip(best, -LARGEST, LARGEST, best)  # no real state is cut; logits of any file stay finite

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, hidden]."""
        states = np.concatenate([states for _, states in self._blocks(table, ids, lengths)])
        return np.clip(states, -LARGEST, LARGEST, states)

    def _blocks(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for some tokens at a time the index of the text of each, and their states [tokens, hidden]."""
        owner, ends = owners(lengths), np.cumsum(lengths)
        reach, hidden = self._size.kernel_width // 2, self._size.hidden
        window = np.arange(-reach, reach + 1)
        block = max(1, self.values_at_once // max(self._weight.shape))
        for start in range(0, len(ids), block):
            texts = owner[start : start + block]
            tokens = np.arange(start, start + len(texts))[:, None] + window
            end = ends[texts][:, None]
            vectors = table.take(ids.take(tokens, mode="clip"), 0)
            vectors[(tokens < end - lengths[texts][:, None]) | (tokens >= end)] = 0
            both = vectors.reshape(len(texts), -1) @ self._weight
            both += self._bias
            values, gates = both[:, :hidden], both[:, hidden:]
            np.tanh(gates, gates)
            gates += 1
            values *= gates
            yield texts, values


class Recurrent(Encoder):
    """A bidirectional LSTM or Elman RNN: both directions are computed together, the second one from last to first."""

    batch_size = 64
    values_at_once = 1 << 20

    def __init__(self, weights: Weights, size: EncoderSize, pool_max: bool) -> None:
        super().__init__({}, size, pool_max)
        weight_ih, weight_hh, bias = (
            np.stack([weights[f"{direction}_rnn.{name}"] for direction in ("forward", "backward")])
            for name in ("weight_ih", "weight_hh", "bias")
        )
        self._hidden, self._lstm = size.hidden, size.arch == "bilstm"
        if self._lstm:
            # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: all gates are one tanh. PyTorch's order is input, forget,
            # candidate, output; the three sigmoids come first here.
            order = np.arange(4 * size.hidden).reshape(4, -1)[[0, 1, 3, 2]].reshape(-1)
            half = np.repeat(np.array((0.5, 0.5, 0.5, 1), np.float32), size.hidden)
            weight_ih, weight_hh = (matrix[:, order] * half[:, None] for matrix in (weight_ih, weight_hh))
            bias = bias[:, order] * half
        self._weight_ih = np.ascontiguousarray(weight_ih.transpose(0, 2, 1))
        self._weight_hh = np.ascontiguousarray(weight_hh.transpose(0, 2, 1))
        self._bias = bias[:, None]

    def __call__(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray, states: np.ndarray | None = None
    ) -> np.ndarray:
        """Return [texts, 2 hidden]: the last state of each direction, or the maximum over its states.

        states: filled in where given, [tokens, 2 hidden].
        """
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")  # texts of similar length are read together
        result = np.empty((len(lengths), 2 * self._hidden), np.float32)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            result[batch] = self._batch(table, ids, starts[batch], lengths[batch], states)
        return result

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, 2 hidden]."""
        states = np.empty((len(ids), 2 * self._hidden), np.float32)
        self(table, ids, lengths, states)
        return states

    def _batch(
        self, table: np.ndarray, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, states: np.ndarray | None
    ) -> np.ndarray:
        """Longest text first: at each step the texts that go on are the first ones, and nothing is padded."""
        size = len(lengths)
        state = np.zeros((2, size, self._hidden), np.float32)
        cell = np.zeros_like(state) if self._lstm else None
        best = np.full_like(state, -np.inf) if self._pool_max else None
        block = max(1, self.values_at_once // (size * max(self._bias.size, 2 * table.shape[1])))
        for first in range(0, lengths[0], block):
            steps = np.arange(first, min(first + block, lengths[0]))[:, None]
            step = np.minimum(steps, lengths - 1)
            tokens = np.stack([starts + step, starts + lengths - 1 - step])
            inputs = np.matmul(table.take(ids[tokens.reshape(2, -1)], 0), self._weight_ih)
            inputs += self._bias
            inputs = inputs.reshape(2, len(steps), size, -1)
            live = (steps < lengths).sum(1)
            changes = [0, *(np.flatnonzero(np.diff(live)) + 1).tolist(), len(steps)]
            for start, end in itertools.pairwise(changes):
                texts = int(live[start])
                views = [None if array is None else array[:, :texts] for array in (state, cell, best)]
                seen = None if states is None else np.empty((2, end - start, texts, self._hidden), np.float32)
                self._steps(inputs[:, start:end, :texts], *views, seen)
                if states is not None:
                    states[tokens[0, start:end, :texts], : self._hidden] = seen[0]
                    states[tokens[1, start:end, :texts], self._hidden :] = seen[1]
        return (state if best is None else best).transpose(1, 0, 2).reshape(size, -1)

    def _steps(
        self,
        inputs: np.ndarray,
        state: np.ndarray,
        cell: np.ndarray | None,
        best: np.ndarray | None,
        seen: np.ndarray | None,
    ) -> None:
        """Take steps with the same texts, in place.

        inputs: [2, steps, texts, gates * hidden], of weight_ih and bias; state, cell, best: [2, texts, hidden];
        seen: [2, steps, texts, hidden], becomes the states.
        """
        gates = np.empty((2, *inputs.shape[2:]), np.float32)
        take, forget, give, candidate = np.split(gates, 4, 2) if cell is not None else (gates,) * 4
        sigmoids = gates[..., : 3 * self._hidden]
        half = np.float32(0.5)
        for number, step in enumerate(inputs.swapaxes(0, 1)):
            np.matmul(state, self._weight_hh, gates)
            np.add(gates, step, gates)
            np.tanh(gates, state if cell is None else gates)
            if cell is not None:
                np.multiply(sigmoids, half, sigmoids)
                np.add(sigmoids, half, sigmoids)
                np.multiply(cell, forget, cell)
                np.multiply(candidate, take, candidate)
                np.add(cell, candidate, cell)
                np.tanh(cell, state)
                np.multiply(state, give, state)
            if best is not None:
                np.maximum(best, state, out=best)
            if seen is not None:
                seen[:, number] = state


class Transformer(Encoder):
    """Layers of self-attention and feed-forward maps, or one layer used several times; the state at the first token.

    A pair is one text.
    """

    batch_size = 64
    values_at_once = 1 << 20
    """Numbers of a batch's largest array, of which a few are needed at a time: of attention, which takes the square of
    a text's tokens for each head, or of a layer's units."""
    largest_state = np.float32(1e12)

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, hidden]. ids, lengths: of single texts, or of both sentences of each pair in a row."""
        result = np.empty((len(lengths) // (1 + self._size.pair), self._size.hidden), np.float32)
        for batch, states in self._batches(table, ids, lengths):
            result[batch] = states[:, 0]
        return result

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, hidden], of single texts only."""
        starts = np.cumsum(lengths) - lengths
        result = np.empty((len(ids), self._size.hidden), np.float32)
        for batch, states in self._batches(table, ids, lengths):
            steps = np.arange(states.shape[1] - 2)
            mask = steps < lengths[batch, None]
            result[(starts[batch, None] + steps)[mask]] = states[:, 1:-1][mask]
        return result

    def _batches(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the indexes of some texts, and their states [texts, time, hidden] with those of special tokens."""
        count = 1 + self._size.pair
        tokens, ends = ids.tolist(), np.cumsum(lengths).tolist()
        sentences = [[*tokens[start:end], SEPARATOR] for start, end in itertools.pairwise([0, *ends])]
        texts = [[FIRST, *itertools.chain(*sentences[i : i + count])] for i in range(0, len(sentences), count)]
        order = np.argsort([-len(text) for text in texts], kind="stable")
        units = max(self._size.intermediate, self._size.hidden, self._size.dim)
        start = 0
        while start < len(order):
            time = len(texts[order[start]])  # the longest that is left
            fitting = max(1, self.values_at_once // (time * max(self._size.heads * time, units)))
            batch = order[start : start + min(self.batch_size, fitting)]
            start += len(batch)
            whole = np.array([len(texts[i]) for i in batch])
            mask = np.arange(whole[0]) < whole[:, None]
            tokens = np.full(mask.shape, SEPARATOR)
            tokens[mask] = [*itertools.chain.from_iterable(texts[i] for i in batch)]
            separators = tokens == SEPARATOR
            segments = np.minimum(np.cumsum(separators, 1) - separators, count - 1)  # separators before the token
            states = self._embed(table, tokens, segments)
            for number in range(self._size.depth):
                states = self._layer(states, mask, number)
            yield batch, states

    def _embed(self, table: np.ndarray, tokens: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """tokens, segments: [texts, time] -> [texts, time, hidden]."""
        vectors = table.take(np.maximum(tokens, 0), 0)
        vectors[tokens == FIRST], vectors[tokens == SEPARATOR] = self._weights["marks.weight"]
        if "projection.weight" in self._weights:
            vectors = self._linear(vectors, "projection")
        positions = self._weights["positions.weight"][: tokens.shape[1]]
        return self._norm(vectors + positions + self._weights["segments.weight"][segments], "norm")

    def _layer(self, states: np.ndarray, mask: np.ndarray, number: int) -> np.ndarray:
        """states: [texts, time, hidden] -> the same shape. mask: bool [texts, time], the tokens of each text."""
        name = f"blocks.{0 if self._size.shared else number}."
        read = self._adapt(self._attend(states, mask, f"{name}attention."), f"adapters.{number}.0.")
        states = self._norm(states + read, f"{name}attention_norm")
        output = self._linear(gelu(self._linear(states, f"{name}up")), f"{name}down")
        return self._norm(states + self._adapt(output, f"adapters.{number}.1."), f"{name}output_norm")

    def _attend(self, states: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
        texts, time, _ = states.shape
        query, key, value = (
            self._linear(states, f"{name}{part}").reshape(texts, time, self._size.heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        key, outside = key.transpose(0, 1, 3, 2), ~mask[:, None, None]
        read = np.empty_like(value)
        at_once = max(1, self.values_at_once // (texts * self._size.heads * time))
        for start in range(0, time, at_once):
            scores = query[:, :, start : start + at_once] @ key
            scores /= np.float32(query.shape[-1] ** 0.5)
            np.copyto(scores, -np.inf, where=outside)
            scores -= scores.max(-1, keepdims=True)
            powers = np.exp(scores, scores)
            powers /= powers.sum(-1, keepdims=True)
            np.matmul(powers, value, read[:, :, start : start + at_once])
        return self._linear(read.transpose(0, 2, 1, 3).reshape(states.shape), f"{name}output")

    def _adapt(self, states: np.ndarray, name: str) -> np.ndarray:
        if not self._size.adapters:
            return states
        return states + self._linear(gelu(self._linear(states, f"{name}down")), f"{name}up")

    def _linear(self, states: np.ndarray, name: str) -> np.ndarray:
        return states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, states: np.ndarray, name: str) -> np.ndarray:
        # No real state is cut; squares of any file's stay finite.
        states = np.clip(states, -self.largest_state, self.largest_state)
        states = states - states.mean(-1, keepdims=True)
        deviation = np.sqrt(np.square(states).mean(-1, keepdims=True) + np.float32(1e-12))
        return states / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


ENCODERS: dict[str, type[Encoder]] = {
    "ffn": Mean,
    "conv": Convolution,
    **dict.fromkeys(GATES, Recurrent),
    **dict.fromkeys(TRANSFORMERS, Transformer),
}
FIRST, SEPARATOR = -2, -1
"""Ids of a transformer's special tokens, in front of a text and after each of its sentences."""


def owners(lengths: np.ndarray) -> np.ndarray:
    """Return the index of the text of each token."""
    return np.repeat(np.arange(len(lengths)), lengths)


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x times the share of the normal distribution below x (Hendrycks and Gimpel, 2016), float32."""
    return x * np.float32(0.5) * (1 + erf(x * np.float32(0.5**0.5)))


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function to float32's precision: a quotient of polynomials, as in Eigen."""
    x = np.clip(x, -4, 4)
    square = x * x
    numerator, denominator = (np.full_like(x, first) for first in (_ERF_NUMERATOR[0], _ERF_DENOMINATOR[0]))
    for polynomial, coefficients in ((numerator, _ERF_NUMERATOR), (denominator, _ERF_DENOMINATOR)):
        for coefficient in coefficients[1:]:
            polynomial *= square
            polynomial += np.float32(coefficient)
    return x * numerator / denominator


_ERF_NUMERATOR = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_DENOMINATOR = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip

# compression.runtime.tokenizers.normalisation


IDENTITY, NFKC, NMT_NFKC = range(3)
"""Normalisations that need no rules of their own in a file."""
SPACE = "\u2581"
"""sentencepiece's character for a space."""
_LONGEST = 4
"""Most characters that one rule of NFKC replaces: no composed character has a longer decomposition."""


class Normaliser:
    """At each position the longest rule that matches replaces what it matches, from left to right.

    base: IDENTITY, NFKC or NMT_NFKC. more: rules that differ from the base's, None where the base's does not hold.
    """

    def __init__(self, base: int, more: dict[str, str | None]) -> None:
        self._nfkc = base != IDENTITY
        self.own = (_later_compositions() if self._nfkc else {}) | (_nmt_rules() if base == NMT_NFKC else {}) | more
        self.later = _later_characters() if self._nfkc else {}
        self._longest = max(_LONGEST if self._nfkc else 1, max(map(len, more), default=1))
        self._ascii_seconds = any(len(key) > 1 and key[1] < "\x80" for key in more)
        self._known: dict[str, tuple[str, int]] = {}
        # Printable ASCII stays as it is, unless a file has rules for it.
        self._ascii_stays = not any(key.isascii() and key.isprintable() for key in more)

    def __call__(self, text: str, squeeze: bool) -> str:
        """Return the text with all rules applied. squeeze: no space at the ends, none after another."""
        if self._ascii_stays and text.isascii() and text.isprintable():
            return " ".join(text.split()) if squeeze else text
        parts, after_space = [], squeeze
        for value in self._replaced(text):
            part = value.lstrip(" ") if after_space else value
            if part:
                parts.append(part)
                after_space = squeeze and part[-1] == " "
        whole = "".join(parts)
        return whole.rstrip(" " + SPACE) if squeeze else whole

    def _replaced(self, text: str) -> Iterator[str]:
        position = 0
        while position < len(text):
            # In all rules of the base that match more than one character the second one is not ASCII.
            alone = text[position + 1 : position + 2] < "\x80" and not self._ascii_seconds
            window = text[position : position + (1 if alone else self._longest)]
            found = self._known.get(window)
            if found is None:
                found = self._match(window)
                if len(self._known) < 1 << 16:
                    self._known[window] = found
            yield found[0]
            position += found[1]

    def _match(self, window: str) -> tuple[str, int]:
        """Return the replacement of the longest match at the window's start, and the characters it replaces."""
        for length in range(len(window), 0, -1):
            value = self.rule(window[:length])
            if value is not None:
                return value, length
        return window[0], 1

    def rule(self, key: str) -> str | None:
        """Return the replacement of exactly these characters, None where they have no rule."""
        if key in self.own:
            return self.own[key]
        if not self._nfkc or len(key) > _LONGEST:
            return None
        if len(key) == 1:
            value = self.later.get(key) or unicodedata.normalize("NFKC", key)
            return value if value != key else None
        # A sequence has a rule when it is, character by character, the decomposition of one composed character.
        decomposed = [self.decomposed(c) for c in key]
        if not all(len(part) == 1 for part in decomposed):
            return None
        joined = "".join(decomposed)
        composed = unicodedata.normalize("NFC", joined)
        return composed if len(composed) == 1 and unicodedata.normalize("NFKD", composed) == joined else None

    def decomposed(self, character: str) -> str:
        """Return the compatibility decomposition of one character."""
        return self.later.get(character) or unicodedata.normalize("NFKD", character)


def _nmt_rules() -> dict[str, str | None]:
    """Return the rules of nmt_nfkc beyond NFKC: control characters vanish, invisible ones become spaces."""
    gone = [*range(0x1, 0x9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F]
    spaces = [0x9, 0xA, 0xC, 0xD, 0x61C, 0x1680, 0x200B, 0x200C, 0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]
    return {chr(c): "" for c in gone} | {chr(c): " " for c in spaces} | {"\uff5e": None}


def _later_characters() -> dict[str, str]:
    """Return compatibility characters of Unicode 15 and 16: sentencepiece has rules for them, older Pythons do not."""
    cyrillic = "абвгдежзиклмопрстуфхцчшыэюꚉәіјөүӏабвгдежзиклопсуфхцчшъыґіѕџҫꙑұ"
    outlined = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    characters = {chr(0x1E030 + i): c for i, c in enumerate(cyrillic)}
    return characters | {chr(0x1CCD6 + i): c for i, c in enumerate(outlined)} | {"\ua7f1": "S"}


def _later_compositions() -> dict[str, str]:
    """Return compositions of Unicode 16 for the same reason: characters in a row -> the composed one."""
    words = _LATER_COMPOSITIONS.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_LATER_COMPOSITIONS = """
\U000105d2\u0307 \U000105c9 \U000105da\u0307 \U000105e4
\U00011382\U000113c9 \U00011383 \U00011384\U000113bb \U00011385 \U0001138b\U000113c2 \U0001138e
\U00011390\U000113c9 \U00011391 \U000113c2\U000113b8 \U000113c7 \U000113c2\U000113c2 \U000113c5
\U000113c2\U000113c9 \U000113c8
\U0001611e\U0001611e \U00016121 \U0001611e\U0001611e\U0001611f \U00016126
\U0001611e\U0001611e\U00016120 \U00016128 \U0001611e\U0001611f \U00016123 \U0001611e\U00016120 \U00016125
\U0001611e\U00016129 \U00016122 \U0001611e\U00016129\U0001611f \U00016127 \U00016129\U0001611f \U00016124
\U00016d63\U00016d67 \U00016d69 \U00016d63\U00016d67\U00016d67 \U00016d6a \U00016d67\U00016d67 \U00016d68
"""
"""Todhri; Tulu-Tigalari; Gurung Khema; Kirat Rai."""

# compression.runtime.tokenizers.bpe


DUMMY_PREFIX, SQUEEZE, WORDS = 1, 2, 4
"""Flags: sentencepiece's add_dummy_prefix and remove_extra_whitespaces; no piece goes on beyond a word's end."""
USED, UNUSED, UNKNOWN = range(3)
"""State of a symbol: it has an id, it is a merge that is split again, or a character that counts as unknown."""
_DIGIT = re.compile(r"\d")

Splits = dict[str, tuple[str, str]]
"""Unused piece -> the two symbols it was merged from."""


def prepare(text: str) -> str:
    """Return the text in lower case, digits as zeros: bpemb's preprocessing."""
    return _DIGIT.sub("0", text.lower())


class BytePairs:
    """Joins the two neighbours that come first in the order of merges, over and over.

    symbols: characters, then merges in their order; states: USED, UNUSED or UNKNOWN of each. Ids: 0 is unknown, then
    one for each used symbol, in order. flags: DUMMY_PREFIX, SQUEEZE, WORDS.
    """

    after_word = ""
    most_words = 1 << 16
    """Words whose ids are kept."""

    def __init__(
        self, characters: int, symbols: Sequence[str], states: Sequence[int], normaliser: Normaliser, flags: int
    ) -> None:
        self._normaliser, self._flags = normaliser, flags
        self._order = {symbol: i for i, symbol in enumerate(symbols) if i >= characters}
        self._unused = {symbol for symbol, state in zip(symbols, states, strict=True) if state == UNUSED}
        used = [symbol for symbol, state in zip(symbols, states, strict=True) if state == USED]
        self._ids = {symbol: i for i, symbol in enumerate(used, 1)}
        self.size = 1 + len(used)
        # Neighbouring unknown characters are one token: words are independent only where the space between is known.
        self._words = bool(flags & WORDS) and SPACE in self._ids
        self._known: dict[str, tuple[int, ...]] = {}
        self._splits: dict[str, Splits] = {}

    def encode(self, text: str) -> list[int]:
        """Return one id a piece."""
        if not text:
            return []
        squeeze, prefix = self._flags & SQUEEZE, self._flags & DUMMY_PREFIX
        clean = self._normaliser(prepare(text), bool(squeeze)).replace(SPACE, " ")
        if not clean and (squeeze or not prefix):
            return []
        first, *words = (" " + clean if prefix else clean).split(" ")
        if not self._words:
            return list(self._encode(SPACE.join([first, *words]))[0])
        known = self._known
        try:
            ids = [i for word in words for i in known[word]]
        except KeyError:
            self._learn(words)
            ids = [i for word in words for i in known[word]]
        if self._splits and self._disagree(words):
            return list(self._encode(SPACE.join([first, *words]))[0])
        return [*self._encode(first)[0], *ids] if first else ids

    def _learn(self, words: list[str]) -> None:
        if len(self._known) > self.most_words:
            self._known.clear()
            self._splits.clear()
        for word in words:
            if word not in self._known:
                self._known[word], splits = self._encode(SPACE + word)
                if splits:
                    self._splits[word] = splits

    def _disagree(self, words: list[str]) -> bool:
        """Whether an unused piece is split in two ways within a text: sentencepiece takes the later one for all."""
        seen: Splits = {}
        found = (self._splits[word] for word in words if word in self._splits)
        return any(seen.setdefault(piece, split) != split for splits in found for piece, split in splits.items())

    def _encode(self, text: str) -> tuple[tuple[int, ...], Splits]:
        """Return the ids of a stretch of text, and how each unused piece on the way was merged."""
        symbols, splits = self._merge(text)
        if splits:
            symbols = [part for symbol in symbols for part in self._split_again(symbol, splits)]
        ids: list[int] = []
        after_unknown = False
        for symbol in symbols:
            i = self._ids.get(symbol, 0)
            if i or not after_unknown:
                ids.append(i)
            after_unknown = not i
        return tuple(ids), splits

    def _merge(self, text: str) -> tuple[list[str], Splits]:
        parts = list(text)
        after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        queue: list[tuple[int, int, int, str]] = []
        splits: Splits = {}

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

    def _split_again(self, symbol: str, splits: Splits) -> list[str]:
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

# compression.runtime.tokenizers.char


ALPHABET = " abcdefghijklmnopqrstuvwxyz'.,!?"
"""Characters that have ids of their own, from 1 on; 0 is every other one."""
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_IDS = bytes(ALPHABET.find(chr(code)) + 1 for code in range(256))


class Characters:
    """Lower-cased characters without accents."""

    after_word = " "
    """Follows each word where words are encoded one by one."""

    def encode(self, text: str) -> bytes:
        """Return one id a character, a byte each."""
        text = text.lower().replace("\u2019", "'")
        if not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
            text = _NOT_ASCII.sub("\0", text)
        return text.encode().translate(_IDS)

# compression.runtime.vocabulary


PAIR_BITS = 16
"""log2 of the sum of the frequencies of a merge's parts."""
MOST_PIECES = 1 << 15
MOST_PIECE_LENGTH = 512
MOST_REPLACEMENT = 64
"""Characters that a rule of normalisation puts in the place of others."""
MOST_WORD_PIECES = 1 << 18
MOST_CHARACTERS = 1 << 23
"""Characters of all word pieces together."""
LOWERCASE = 1
"""Flag of word pieces: text is lower-cased, and its accents removed."""


def read_word_pieces(reader: Reader) -> tuple[list[str], bool]:
    """Return word pieces by id, an empty one for unknown words first, and whether text is lower-cased."""
    lowercase = bool(reader.byte(LOWERCASE + 1))
    pieces, left = [""], MOST_CHARACTERS
    for _ in range(reader.number(MOST_WORD_PIECES)):
        piece = pieces[-1][: reader.number(len(pieces[-1]))] + reader.text()
        left -= len(piece)
        if not pieces[-1] < piece or len(piece) > MOST_PIECE_LENGTH or left < 0:
            raise PackedError("word pieces out of order, or with too many characters")
        pieces.append(piece)
    return pieces, lowercase


class Vocabulary:
    """Byte pairs: characters, then merges of two symbols, in order."""

    def __init__(self, reader: Reader, streams: Streams) -> None:
        self.flags, base = reader.byte(8), reader.byte(NMT_NFKC + 1)
        rules: dict[str, str | None] = {}
        for _ in range(reader.number(1 << 16)):
            key, has_value = reader.text(), reader.byte(2)
            if not 0 < len(key) <= MOST_PIECE_LENGTH:
                raise PackedError("a rule of normalisation matches nothing, or too much")
            rules[key] = reader.text() if has_value else None
            if len(rules[key] or "") > MOST_REPLACEMENT:
                raise PackedError("a rule of normalisation makes text too long")
        self._normaliser = Normaliser(base, rules)
        self.characters = reader.text()
        self.merges = reader.number(MOST_PIECES)
        self.literal: dict[int, str] = {}
        index = -1
        for _ in range(reader.number(self.merges)):
            index += 1 + reader.number(MOST_PIECES)
            self.literal[index] = reader.text()
        if index >= self.merges:
            raise PackedError("a piece is beyond the last one")
        self._states = streams.add_first(reader, streams.count(len(self.characters) + self.merges))

    def read_pairs(self, reader: Reader) -> bytes:
        """Decode both parts of all merges that are not literal. Returns the bytes that the states carry."""
        indexes = coded_indexes(len(self.characters), self.merges, self.literal)
        self._pairs = np.zeros((len(indexes), 2), np.int64)
        if not len(indexes):
            return b""
        lanes = Lanes(reader, pair_lanes(len(indexes)))
        model = PairModel(self.characters, indexes, bool(self.flags & WORDS))
        for first in range(0, len(indexes), len(lanes.states)):
            block = self._pairs[first : first + len(lanes.states)]
            x = lanes.states[: len(block)]
            for side in (0, 1):
                frequency = model.frequencies(side, first + len(block))
                ends = np.cumsum(frequency)
                slot = x & np.uint32((1 << PAIR_BITS) - 1)
                part = np.searchsorted(ends, slot, "right")
                x[:] = frequency[part] * (x >> np.uint32(PAIR_BITS)) + slot - ends[part] + frequency[part]
                lanes.refill(x)
                block[:, side] = part
            model.learn(first, block)
        return lanes.end()

    def byte_pairs(self) -> BytePairs:
        """Return the tokenizer. Raises PackedError for a vocabulary that contradicts itself."""
        symbols = list(self.characters)
        coded = iter(self._pairs.tolist())
        for index in range(self.merges):
            if index in self.literal:
                symbols.append(self.literal[index])
                continue
            left, right = next(coded)
            if max(left, right) >= len(symbols):
                raise PackedError("a piece is merged from a later one")
            symbols.append(symbols[left] + symbols[right])
            if len(symbols[-1]) > MOST_PIECE_LENGTH:
                raise PackedError("a piece is too long")
        if len(set(symbols)) != len(symbols) or self._states.values.max(initial=0) > UNKNOWN:
            raise PackedError("a vocabulary that repeats itself")
        return BytePairs(len(self.characters), symbols, self._states.values.tolist(), self._normaliser, self.flags)


def coded_indexes(characters: int, merges: int, literal: dict[int, str]) -> np.ndarray:
    """Return the index of each merge that is not literal among all symbols, int64."""
    return characters + np.array([index for index in range(merges) if index not in literal], np.int64)


def pair_lanes(merges: int) -> int:
    """Return how many merges are coded in one step."""
    return min(merges, 128, max(8, merges // 16))


class PairModel:
    """How likely each symbol is the left or the right part of the next merges: by how often it has been one so far.

    characters: the first symbols. indexes: see `coded_indexes`. words: no right part begins with a space.
    """

    def __init__(self, characters: str, indexes: np.ndarray, words: bool) -> None:
        self._indexes = indexes
        size = max(len(characters), int(indexes.max()) + 1)
        self._seen = np.zeros((2, size), np.int64)
        self._right = np.ones(size, bool)
        if words:
            self._right[: len(characters)] = [character != SPACE for character in characters]

    def frequencies(self, side: int, merges: int) -> np.ndarray:
        """Return the frequencies, which sum to 1 << PAIR_BITS, of the symbols before a number of coded merges.

        side: 0 is left, 1 is right.
        """
        known = int(self._indexes[merges - 1]) + 1
        weights = 4 * self._seen[side, :known] + 2
        if side:
            weights = np.where(self._right[:known], weights + 1, 0)
        return frequencies(weights, PAIR_BITS)

    def learn(self, first: int, pairs: np.ndarray) -> None:
        """Count the parts of coded merges from number `first` on. pairs: int64 [merges, 2]."""
        indexes = self._indexes[first : first + len(pairs)]
        for index, left in zip(indexes.tolist(), pairs[:, 0].tolist(), strict=True):
            # In order: a merge may have a part that is a merge of the same block.
            self._right[index] = self._right[left]
        for side in (0, 1):
            np.add.at(self._seen[side], pairs[:, side], 1)

# compression.runtime.header


PAIR, POOL_MAX, TOKENS, MULTILABEL, CALIBRATED = 1, 2, 4, 8, 16
"""Bits of the settings' flags."""
LEAST_TEMPERATURE, MOST_TEMPERATURE = 2.0**-7, 2.0**7


class Header:
    """Reads all of a header; `read_streams` and `weights` read what follows it."""

    def __init__(self, reader: Reader) -> None:
        """Raises PackedError."""
        self.arch = ARCHS[reader.byte(len(ARCHS))]
        self.embedding = EMBEDDINGS[reader.byte(len(EMBEDDINGS))]
        flags = reader.byte(32)
        self.pair, self.pool_max, self.tokens = bool(flags & PAIR), bool(flags & POOL_MAX), bool(flags & TOKENS)
        self.multilabel, self._calibrated, self.temperature = bool(flags & MULTILABEL), bool(flags & CALIBRATED), 1.0
        self.name, self.task = reader.text(), reader.text()
        self.labels = tuple(reader.text() for _ in range(reader.number(1 << 16)))
        self.outputs = len(self.labels) or 1
        self.max_tokens, dim, classifier = reader.size(), reader.width(), reader.width()
        sizes = {name: getattr(reader, kind)() for name, kind in ENCODER_FIELDS[self.arch].items()}
        self.size = EncoderSize(self.arch, self.pair, self.max_tokens, dim, **sizes)
        self._check_settings()
        self.vocab_size = reader.size() if self.embedding == "hash" else 0
        self._streams = streams = Streams()
        self._vocabulary = Vocabulary(reader, streams) if self.embedding == "bpe" else None
        self.byte_pairs: BytePairs | None = None
        self.word_pieces = read_word_pieces(reader) if self.embedding == "wordpiece" else None
        if self.word_pieces is not None:
            self._rows = len(self.word_pieces[0])
        else:
            self._rows = 1 + len(ALPHABET) if self.embedding == "char" else reader.size()
        shapes = student_shapes(self.size, self._rows, self.vocab_size, classifier, self.outputs)
        self.matrices = {n: Matrix(reader, streams, *shape) for n, shape in shapes.items() if len(shape) == 2}
        self.vectors = {n: streams.add_floats(*shape) for n, shape in shapes.items() if len(shape) == 1}
        self.floats = [streams.add(reader, streams.floats) for _ in range(4)]
        reader.end()

    def _check_settings(self) -> None:
        size = self.size
        if self.tokens and (self.pair or not self.labels or self.arch == "ffn"):
            raise PackedError("words are labelled, by a model that cannot label them")
        if self.multilabel and (self.tokens or not self.labels):
            raise PackedError("any number of labels for each word, or without labels")
        if self._calibrated and (self.tokens or self.multilabel or not self.labels):
            raise PackedError("a temperature, of a model without probabilities of a softmax")
        if self.arch == "conv" and not (self.pool_max and size.kernel_width % 2):
            raise PackedError("a convolution whose windows have no middle, or that does not take the maximum")
        if self.arch in TRANSFORMERS and (not size.depth or not size.heads or size.hidden % size.heads):
            raise PackedError("a transformer without layers, or whose heads do not divide its width")

    def read_streams(self, reader: Reader) -> None:
        """Decode everything after the header, to its last byte. Raises PackedError."""
        if self._calibrated:
            self.temperature = reader.float_within(LEAST_TEMPERATURE, MOST_TEMPERATURE)
        streams = self._streams
        limit = min(MOST_VALUES, SYMBOLS_PER_BYTE * (reader.left + 8))
        carried = decode_stream(reader, streams.first, limit)
        streams.apply_masks()
        if self._vocabulary is not None:
            carried += self._vocabulary.read_pairs(reader)
            self.byte_pairs = self._vocabulary.byte_pairs()
            if self.byte_pairs.size != self._rows:
                raise PackedError(f"{self.byte_pairs.size} pieces have {self._rows} vectors")
        carried += decode_stream(reader, streams.main, limit)
        raw = [array for array in streams.main if array.mode == RAW]
        wanted = sum(array.count for array in raw)
        if reader.left != max(0, wanted - len(carried)) or any(carried[wanted:]):
            raise PackedError("the numbers stored as they are have another length than they should")
        pool = np.frombuffer(carried[:wanted] + bytes(reader.rest()), np.uint8)
        start = 0
        for array in raw:
            array.values = pool[start : start + array.count]
            start += array.count

    def weights(self) -> dict[str, np.ndarray]:
        """Return all weights, float32, by the names that students give them."""
        floats = checked(join_planes(self.floats, "<f4"))
        weights = {name: matrix.value(floats) for name, matrix in self.matrices.items()}
        return weights | {name: floats[where] for name, where in self.vectors.items()}

# compression.runtime.tokenizers.wordpiece


class WordPieces:
    """Splits each word into the longest pieces from left to right; all but the first begin with ##."""

    after_word = ""
    longest_word = 100
    """Characters of a word beyond which it is unknown, as in BERT."""
    most_words = 1 << 17
    """Words whose pieces are kept."""

    def __init__(self, pieces: Sequence[str], lowercase: bool) -> None:
        """pieces: by id; the first one stands for unknown words."""
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._longest_piece = max(map(len, pieces), default=0)
        self._lowercase = lowercase
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Return one id a piece."""
        found: list[int] = []
        for word in bert_words(text, self._lowercase):
            if word not in self._known:
                if len(self._known) >= self.most_words:
                    self._known.clear()
                self._known[word] = self._split(word)
            found += self._known[word]
        return found

    def _split(self, word: str) -> list[int]:
        if len(word) > self.longest_word:
            return [0]
        ids, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(min(len(word), start + self._longest_piece), start, -1)
            found = next(((end, i) for end in ends if (i := self._ids.get(prefix + word[start:end], 0))), None)
            if found is None:
                return [0]
            start, piece = found
            ids.append(piece)
        return ids


_ASCII_WORD = re.compile(r"[!-/:-@\[-`{-~]|[0-9A-Za-z]+")
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127))
_ASCII_SIGNS = "".join(chr(code) for code in (*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)))
_IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
               (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))  # fmt: skip


def bert_words(text: str, lowercase: bool) -> list[str]:
    """Return words and signs as BERT's basic tokenizer finds them; with `lowercase` accents are removed too."""
    if text.isascii():
        text = text.translate(_CONTROL)
        return _ASCII_WORD.findall(text.lower() if lowercase else text)
    text = "".join(map(_cleaned, text))
    if lowercase:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    text = "".join(f" {c} " if _is_sign(c) else c for c in text)
    return ("".join(map(str.lower, text)) if lowercase else text).split()


def _cleaned(character: str) -> str:
    code, category = ord(character), unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    if code == 0xFFFD or category in ("Cc", "Cf", "Co"):
        return ""
    return f" {character} " if any(first <= code <= last for first, last in _IDEOGRAPHS) else character


def _is_sign(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" or (character.isascii() and character in _ASCII_SIGNS)

# compression.runtime.zoo


PACKED_SUFFIX = ".fwt"
_HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = (os.path.normpath(os.path.join(_HERE, "..", "..", "zoo")), _HERE)
"""Where names are looked up: zoo/ of the repository, and the folder of this file, for one that is copied to a device
with its packed files."""


def zoo_names() -> list[str]:
    """Return the names of all models of the zoo."""
    files = {file for folder in FOLDERS if os.path.isdir(folder) for file in os.listdir(folder)}
    return sorted(file.removesuffix(PACKED_SUFFIX) for file in files if file.endswith(PACKED_SUFFIX))


def is_name(model: str) -> bool:
    """Return whether a text can be a name of the zoo: letters, digits, points, hyphens; not a path."""
    plain = model.replace("-", "").replace("_", "").replace(".", "")
    return plain.isascii() and plain.isalnum() and model[0] not in ".-" and not model.endswith(PACKED_SUFFIX)


def zoo_file(name: str) -> str | None:
    """Return the path of the packed file of a model of the zoo; None where there is none of that name."""
    if not is_name(name):
        return None
    paths = (os.path.join(folder, name + PACKED_SUFFIX) for folder in FOLDERS)
    return next((path for path in paths if os.path.isfile(path)), None)


def packed_file(model: str | os.PathLike) -> str | os.PathLike:
    """Return the path of a packed file, given by its path or, as a str, by its name in the zoo.

    Raises PackedError for a name that is not in the zoo.
    """
    if not isinstance(model, str) or not is_name(model) or os.path.exists(model):
        return model
    path = zoo_file(model)
    if path is None:
        raise PackedError(f"{model}: not a file, and not a model of the zoo{zoo_hint(model)}")
    return path


def zoo_hint(name: str) -> str:
    """Return '; did you mean X? (zoo: X, Y)' for a name that is not in the zoo."""
    import difflib  # a wrong name alone needs it

    names = zoo_names()
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return (f"; did you mean {match[0]}?" if match else "") + f" (zoo: {', '.join(names) or 'empty'})"

# compression.runtime.model


MAGIC = b"FWT"
VERSION = 1
MOST_FILE = 1 << 27
MOST_HEADER = 1 << 22
_TEXTS_AT_ONCE, _TOKENS_AT_ONCE, _VALUES_AT_ONCE = 1024, 1 << 14, 1 << 23


class Model:
    """A packed student.

    name, task: its name, and the task it was trained for. labels: none for a regression. pair: whether it reads two
    sentences. tokens: whether it labels every word (between single spaces). multilabel: whether a text has any number
    of labels, each with a probability of its own. arch: one of ARCHS. embedding: one of EMBEDDINGS. temperature: what
    probabilities divide logits by, 1 where none was fitted.
    """

    def __init__(self, header: Header, weights: dict[str, np.ndarray]) -> None:
        self.name, self.task, self.labels, self.pair = header.name, header.task, header.labels, header.pair
        self.arch, self.embedding, self.max_tokens = header.arch, header.embedding, header.max_tokens
        self.outputs, self.tokens, self.multilabel = header.outputs, header.tokens, header.multilabel
        self.temperature = header.temperature
        self._table = weights["embedding.table.weight"]
        self._tokenizer = _tokenizer(header, weights)
        of_encoder = {n.removeprefix("encoder."): value for n, value in weights.items() if n.startswith("encoder.")}
        self._encoder = ENCODERS[header.arch](of_encoder, header.size, header.pool_max)
        self._layers = [
            (np.ascontiguousarray(weights[f"classifier.{i}.weight"].T), weights[f"classifier.{i}.bias"]) for i in (0, 3)
        ]
        # Fewer where vectors are long: the memory of a batch does not depend on the sizes that a file claims.
        longest = max(self._table.shape[1], *(length for layer, _ in self._layers for length in layer.shape))
        self._texts_at_once = min(_TEXTS_AT_ONCE, max(1, _VALUES_AT_ONCE // longest))
        self._tokens_at_once = min(_TOKENS_AT_ONCE, max(1, _VALUES_AT_ONCE // longest))

    def logits(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> np.ndarray:
        """Return float32 [texts, outputs]; of a regression the score scaled to [0, 1].

        Of a model that labels words [texts, words, outputs], NaN past a text's last word. Raises PackedError for what
        is not a text, or not a pair.
        """
        parts, counts = [np.zeros((0, self.outputs), np.float32)], []
        ids: list[int] = []
        lengths: list[int] = []
        words: list[int] = []
        for number, text in enumerate(texts, 1):
            for sentence in self._sentences(text):
                found, starts = self._encode(sentence)
                words += [len(ids) + start for start in starts]
                ids += found
                lengths.append(len(found))
                counts.append(len(starts))
            full = len(lengths) >= self._texts_at_once * (1 + self.pair) or len(ids) > self._tokens_at_once
            if full or number == len(texts):
                parts.append(self._forward(np.array(ids), np.array(lengths), np.array(words)))
                ids, lengths, words = [], [], []
        logits = np.concatenate(parts)
        if not self.tokens:
            return logits
        mask = np.arange(max(counts, default=0)) < np.array(counts).reshape(-1, 1)
        by_text = np.full((*mask.shape, self.outputs), np.nan, np.float32)
        by_text[mask] = logits
        return by_text

    def predict(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> list:
        """Return the label of each text (or pair); of a regression its score.

        Of a multilabel model a list of the labels with a probability of at least 0.5, of words a list of tags for each
        text. Raises PackedError for what is not a text, or not a pair.
        """
        found = self.probabilities(texts)
        if not self.labels:
            return found[:, 0].tolist()
        if self.multilabel:
            return [[self.labels[i] for i in np.flatnonzero(row >= 0.5)] for row in found]
        if not self.tokens:
            return [self.labels[index] for index in found.argmax(-1).tolist()]
        counts = (len(text.split()) for text in texts)
        return [[self.labels[i] for i in row[:n].argmax(-1).tolist()] for row, n in zip(found, counts, strict=True)]

    def probabilities(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the softmax of the tidied texts' logits divided by the temperature, if multilabel their sigmoids.

        float32 [texts, labels]; of a regression the score itself, [texts, 1].
        """
        if isinstance(texts, str):
            raise PackedError("one text where a list of them is read: put it in brackets")
        logits = self.logits([self._tidied(text) for text in texts])
        return to_probabilities(logits, self.temperature, self.multilabel) if self.labels else logits

    def _tidied(self, text: str | tuple[str, str]) -> str | tuple[str, ...]:
        return tidy(text) if isinstance(text, str) else tuple(map(tidy, self._sentences(text)))

    def _sentences(self, text: str | tuple[str, str]) -> list[str]:
        sentences = list(text) if isinstance(text, tuple | list) else [text]
        if len(sentences) != 1 + self.pair or not all(isinstance(sentence, str) for sentence in sentences):
            raise PackedError(f"{self.name} reads {'pairs of texts' if self.pair else 'single texts'}")
        # UTF-8 cannot hold halves of surrogate pairs: they become the replacement character.
        return [
            s if s.isascii() else s.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            for s in sentences
        ]

    def _encode(self, sentence: str) -> tuple[Sequence[int], list[int]]:
        """Return the ids of a sentence, and where words are labelled the index of each one's first token."""
        encode = self._tokenizer.encode
        if not self.tokens:
            return encode(sentence)[: self.max_tokens] or [0], []
        ids: list[int] = []
        starts: list[int] = []
        for word in sentence.split(" "):
            starts.append(min(len(ids), self.max_tokens - 1))
            ids += encode(word + self._tokenizer.after_word)[: self.max_tokens] or [0]
        return ids[: self.max_tokens], starts

    def _forward(self, ids: np.ndarray, lengths: np.ndarray, words: np.ndarray) -> np.ndarray:
        table = self._tokenizer.table() if isinstance(self._tokenizer, HashedWords) else self._table
        if self.tokens:
            encoded = self._encoder.states(table, ids, lengths)[words]
        else:
            encoded = self._encoder(table, ids, lengths)
        if self.pair and self.arch not in TRANSFORMERS:
            u, v = encoded[::2], encoded[1::2]
            encoded = np.concatenate([u, v, np.abs(u - v), u * v], 1)
        (first, first_bias), (last, last_bias) = self._layers
        hidden = encoded @ first
        hidden += first_bias
        return np.maximum(hidden, 0, out=hidden) @ last + last_bias


def to_probabilities(logits: np.ndarray, temperature: float = 1.0, multilabel: bool = False) -> np.ndarray:
    """Return softmax(logits / temperature), if multilabel 1 / (1 + exp(-logits)). logits: float32 [..., outputs]."""
    if multilabel:
        return np.exp(-np.logaddexp(0, -logits))
    powers = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return powers / powers.sum(-1, keepdims=True)


def _tokenizer(header: Header, weights: dict[str, np.ndarray]) -> BytePairs | WordPieces | Characters | HashedWords:
    if header.byte_pairs is not None:
        return header.byte_pairs
    if header.word_pieces is not None:
        return WordPieces(*header.word_pieces)
    if header.embedding == "char":
        return Characters()
    table, importance = weights["embedding.table.weight"], weights["embedding.importance.weight"]
    return HashedWords(header.vocab_size, table, importance, header.max_tokens)


def tidy(text: str) -> str:
    """Return the text in NFC, every run of white space one space, ends stripped: as the project reads all text."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def load(model: str | os.PathLike) -> Model:
    """Return the model of a packed file, given by its path or by its name in the zoo (sst-2-12k).

    Raises PackedError for an unknown name; and, its text beginning with the path, when the file is wrong.
    """
    path = packed_file(model)
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_FILE + 1)
    except OSError as error:
        raise PackedError(f"{os.fspath(path)}: {error.strerror or error}") from None
    if len(data) > MOST_FILE:
        raise PackedError(f"{os.fspath(path)}: larger than any packed student")
    try:
        return load_bytes(data)
    except PackedError as error:
        raise PackedError(f"{os.fspath(path)}: {error}") from None


def load_bytes(data: bytes) -> Model:
    """Return the model of a packed file's bytes. Raises PackedError for anything wrong with them."""
    header, reader = open_packed(data)
    header.read_streams(reader)
    return Model(header, header.weights())


def open_packed(data: bytes) -> tuple[Header, Reader]:
    """Return a packed file's header, and a reader of what follows it. Raises PackedError."""
    if len(data) < 16 or data[:3] != MAGIC:
        raise PackedError("not a packed student" if data else "an empty file")
    if data[3] != VERSION:
        raise PackedError(f"version {data[3]} of the format; this runtime reads version {VERSION}")
    length = int.from_bytes(data[4:8], "little")
    if length != len(data):
        raise PackedError(f"{len(data):,} bytes instead of {length:,}: truncated, or something was appended")
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise PackedError("its checksum is wrong: it is damaged")
    reader = Reader(memoryview(data)[8:-4])
    stored, size = reader.number(), reader.number(MOST_HEADER)
    return Header(Reader(_inflate(bytes(reader.take(stored)), size))), reader


def _inflate(stored: bytes, size: int) -> bytes:
    """Return the header, `size` bytes: the stored ones if they are as many, else raw deflate."""
    if len(stored) == size:
        return stored
    inflater = zlib.decompressobj(-15)
    try:
        header = inflater.decompress(stored, size + 1)
    except zlib.error as error:
        raise PackedError(f"its header cannot be read ({error})") from None
    if len(header) != size or not inflater.eof or inflater.unused_data:
        raise PackedError("its header has another length than it says")
    return header

# compression.runtime.__main__


_PROGRAM = "python -m compression.runtime" if __package__ else f"python {sys.argv[0]}"
_USAGE = f"""usage: {_PROGRAM} MODEL [TEXT ...]

Print the label of each TEXT, or without TEXT of each line of standard input, and all labels' probabilities.
MODEL is a packed file (.fwt), or the name of a model of the zoo: {{names}}.
A model of pairs takes two TEXTs a pair, or lines of two texts with a tab between them.
A model that labels words prints a line for each word, and an empty one after each text."""
_LINES_AT_ONCE, _BYTES_AT_ONCE = 1 << 12, 1 << 20


def main(arguments: Sequence[str]) -> None:
    """Print the answers. Raises PackedError."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE.format(names=", ".join(zoo_names()) or "none is here"))
        return
    model = load(arguments[0])
    sys.stdout.reconfigure(encoding="utf-8")
    texts = arguments[1:]
    if texts and model.pair and len(texts) % 2:
        raise PackedError(f"{model.name} reads pairs of texts: give an even number of them")
    if texts:
        _print(model, list(zip(texts[::2], texts[1::2], strict=True)) if model.pair else texts)
        return
    at_once = 1 if sys.stdin.isatty() else _LINES_AT_ONCE
    if at_once == 1:
        expected = "two texts a line, with a tab between them" if model.pair else "a text a line"
        print(f"{model.name}: type {expected}; Ctrl-D ends", file=sys.stderr)
    batch: list = []
    longest = 0
    for number, line in enumerate(sys.stdin.buffer, 1):
        batch.append(_parse(model, line, number))
        longest = max(longest, len(line))
        # Answers to words are padded to the longest line.
        if len(batch) == at_once or (model.tokens and longest * len(batch) > _BYTES_AT_ONCE):
            _print(model, batch)
            batch, longest = [], 0
    _print(model, batch)


def _parse(model: Model, line: bytes, number: int) -> str | tuple[str, ...]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise PackedError(f"line {number}: not UTF-8") from None
    if not model.pair:
        return text
    texts = tuple(text.split("\t"))
    if len(texts) != 2:
        raise PackedError(f"line {number}: {len(texts)} texts; {model.name} reads two with a tab between them")
    return texts


def _print(model: Model, texts: Sequence[str] | Sequence[tuple[str, str]]) -> None:
    """Print a line for each text: the label and all probabilities, or a regression's score.

    Of a model of several labels a text: those with a probability of at least 0.5, joined by |, in place of the label,
    or (none). Of a model that labels words: a line for each word with its tag, and an empty one.
    """
    for text, row in zip(texts, model.probabilities(texts).tolist(), strict=True):
        if model.tokens:
            tags = (model.labels[word.index(max(word))] for word in row)
            print("".join(f"{word}\t{tag}\n" for word, tag in zip(text.split(), tags, strict=False)))
        elif model.labels:
            shares = "\t".join(f"{label} {share:.6f}" for label, share in zip(model.labels, row, strict=True))
            chosen = [label for label, share in zip(model.labels, row, strict=True) if share >= 0.5]
            several = "|".join(chosen) or "(none)"
            print(f"{several if model.multilabel else model.labels[row.index(max(row))]}\t{shares}")
        else:
            print(f"{row[0]:.6f}")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PackedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain at exit when it flushes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
