"""The header of a file: settings, vocabulary, and a description of every array; then the arrays themselves."""

from __future__ import annotations

import numpy as np

from compression.runtime.entropy import CODE_BITS, RAW, SYMBOLS_PER_BYTE, decode_stream
from compression.runtime.reader import MOST_VALUES, PackedError, Reader
from compression.runtime.shapes import (
    ARCHS,
    EMBEDDINGS,
    TRANSFORMERS,
    EncoderSize,
    Shapes,
    encoder_shapes,
    positions_of,
)
from compression.runtime.tokenizers.bpe import BytePairs
from compression.runtime.tokenizers.char import ALPHABET
from compression.runtime.vocabulary import Vocabulary, read_word_pieces
from compression.runtime.weights import Matrix, Streams, checked, join_planes

PAIR, POOL_MAX, TOKENS = 1, 2, 4
"""Bits of the settings' flags."""


class Header:
    """Reads all of a header; `read_streams` and `weights` read what follows it."""

    def __init__(self, reader: Reader) -> None:
        """Raises PackedError."""
        self.arch = ARCHS[reader.byte(len(ARCHS))]
        self.embedding = EMBEDDINGS[reader.byte(len(EMBEDDINGS))]
        flags = reader.byte(8)
        self.pair, self.pool_max, self.tokens = bool(flags & PAIR), bool(flags & POOL_MAX), bool(flags & TOKENS)
        self.name, self.task = reader.text(), reader.text()
        self.labels = tuple(reader.text() for _ in range(reader.number(1 << 16)))
        self.outputs = len(self.labels) or 1
        if self.tokens and (self.pair or not self.labels or self.arch == "ffn"):
            raise PackedError("words are labelled, by a model that cannot label them")
        self.max_tokens, self.dim, self.classifier = reader.size(), reader.size(), reader.size()
        self.size = self._encoder_size(reader)
        self.vocab_size = reader.size() if self.embedding == "hash" else 0
        self._streams = Streams()
        self._vocabulary = Vocabulary(reader, self._streams) if self.embedding == "bpe" else None
        self.byte_pairs: BytePairs | None = None
        self.word_pieces = read_word_pieces(reader) if self.embedding == "wordpiece" else None
        self._rows = self._table_rows(reader)
        shapes = self._shapes()
        self._matrices = {n: Matrix(reader, self._streams, *shape) for n, shape in shapes.items() if len(shape) == 2}
        self._vectors = {n: self._streams.add_floats(*shape) for n, shape in shapes.items() if len(shape) == 1}
        self._floats = [self._streams.add(reader, self._streams.floats) for _ in range(4)]
        reader.end()

    def _encoder_size(self, reader: Reader) -> EncoderSize:
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

    def _table_rows(self, reader: Reader) -> int:
        if self.word_pieces is not None:
            return len(self.word_pieces[0])
        return 1 + len(ALPHABET) if self.embedding == "char" else reader.size()

    def _shapes(self) -> Shapes:
        """Return the shapes of all weights, in the file's order."""
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
        """Decode everything after the header, to its last byte. Raises PackedError."""
        streams = self._streams
        limit = min(MOST_VALUES, SYMBOLS_PER_BYTE * (reader.left + 8))
        carried = decode_stream(reader, streams.first, CODE_BITS, limit)
        for matrix in self._matrices.values():
            matrix.apply_mask()
        if self._vocabulary is not None:
            carried += self._vocabulary.read_pairs(reader)
            self.byte_pairs = self._vocabulary.byte_pairs()
            if self.byte_pairs.size != self._rows:
                raise PackedError(f"{self.byte_pairs.size} pieces have {self._rows} vectors")
        carried += decode_stream(reader, streams.main, CODE_BITS, limit)
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
        """Return all weights by name, float32."""
        floats = checked(join_planes(self._floats, "<f4"))
        weights = {name: matrix.value(floats) for name, matrix in self._matrices.items()}
        return weights | {name: floats[where] for name, where in self._vectors.items()}
