"""The header of a file: settings, vocabulary, and a description of every array; then the arrays themselves."""

from __future__ import annotations

from typing import Union

import numpy as np

from .entropy import RAW, SYMBOLS_PER_BYTE, decode_stream
from .kinds import BY_WORD, MULTILABEL, kind_with
from .reader import MOST_VALUES, MOST_WIDTH, PackedError, Reader
from .shapes import (
    ALIGNING,
    ARCHS,
    EMBEDDINGS,
    ENCODER_FIELDS,
    POOLINGS,
    SHARES,
    TRANSFORMERS,
    EncoderSize,
    student_shapes,
)
from .tokenizers.bpe import BytePairs
from .tokenizers.bytelevel import ByteLevelPairs
from .tokenizers.char import ALPHABET, Characters
from .tokenizers.hash import HashedWords
from .tokenizers.ngrams import NGrams
from .tokenizers.wordpiece import WordPieces
from .vocabulary import Fingerprints, Vocabulary, read_word_pieces
from .weights import Matrix, Streams, checked, join_planes

PAIR, POOL_MAX, CALIBRATED, ALIGN, SYMMETRIC, THRESHOLD = 1, 2, 16, 32, 64, 128
"""Bits of the settings' flags, besides BY_WORD and MULTILABEL."""
COMPOSE, SHARING, NO_SEGMENTS, HEAD_DIM = 8, 16, 64, 128
"""Terms of an architecture's number: SHARING times an index in SHARES, or for an FFN in POOLINGS; COMPOSE, NO_SEGMENTS
and HEAD_DIM if they apply."""
LEAST_TEMPERATURE, MOST_TEMPERATURE = 2.0**-7, 2.0**7
MOST_ALIGNED = 1 << 12
"""Most tokens of an aligned text: every pair of tokens of both texts has a score."""
MARKED_WORDS = 4
"""Added to the embedding's index in files whose words keep their marks (see compression.runtime.words)."""
NGRAMS = 8
"""The embedding's byte for n-grams, whose words keep their marks too."""

Tokenizer = Union[BytePairs, ByteLevelPairs, WordPieces, Characters, HashedWords, NGrams]


class Header:
    """Reads a header; `read_streams` decodes the data after it, and `weights` returns the weights.

    tokenizer: of a file with a vocabulary, when its streams are decoded; None for hashed words.
    """

    def __init__(self, reader: Reader) -> None:
        """Raises PackedError."""
        form = reader.byte()
        arch, choice = form % COMPOSE, form % NO_SEGMENTS // SHARING
        if arch >= len(ARCHS) or choice >= len(SHARES):
            raise PackedError(f"a field has the unknown value {form}")
        self.arch = ARCHS[arch]
        embedding = reader.byte(NGRAMS + 1)
        self.embedding = "ngrams" if embedding == NGRAMS else EMBEDDINGS[embedding % MARKED_WORDS]
        self.plain_words = embedding < MARKED_WORDS
        flags = reader.byte()
        bits = flags & (BY_WORD | MULTILABEL)
        code = reader.byte() if bits == BY_WORD | MULTILABEL else None
        self.pair, self.by_word = bool(flags & PAIR), bits == BY_WORD
        pool_max, is_bag = bool(flags & POOL_MAX), self.arch == "ffn"
        self._calibrated, self.temperature = bool(flags & CALIBRATED), 1.0
        self._has_threshold = bool(flags & THRESHOLD)
        self.threshold: float | None = None
        self.name, self.task = reader.text(), reader.text()
        self.labels = tuple(reader.text() for _ in range(reader.number(1 << 16)))
        self.kind = kind_with(bits, code, self.pair, self.labels)
        self.outputs = self.kind.outputs(self.labels)
        self.max_tokens, dim, classifier = reader.size(), reader.width(), reader.width()
        sizes = {name: getattr(reader, method)() for name, method in ENCODER_FIELDS[self.arch].items()}
        if form & HEAD_DIM:
            sizes["head_dim"] = reader.width()
        self.size = EncoderSize(
            self.arch,
            self.pair,
            self.max_tokens,
            dim,
            **sizes,
            align=bool(flags & ALIGN),
            symmetric=bool(flags & SYMMETRIC),
            spans=self.pair and self.by_word,
            share="none" if is_bag else SHARES[choice],
            segments=not form & NO_SEGMENTS,
            compose=bool(form & COMPOSE),
            pooling=POOLINGS[choice] if is_bag else "max" if pool_max else "last",
        )
        if is_bag and choice and not pool_max:
            raise PackedError("the settings do not agree on whether an FFN takes a maximum")
        self._check_settings()
        self.vocab_size = reader.size() if self.embedding == "hash" else 0
        self._streams = streams = Streams()
        self._vocabulary = Vocabulary(reader, streams) if self.embedding == "bpe" else None
        self._fingerprints = Fingerprints(reader, streams) if self.embedding == "ngrams" else None
        self.tokenizer: Tokenizer | None = None
        if self.embedding == "wordpiece":
            pieces, lowercase = read_word_pieces(reader)
            self.tokenizer, self._rows = WordPieces(pieces, lowercase), len(pieces)
        elif self.embedding == "char":
            self.tokenizer, self._rows = Characters(), 1 + len(ALPHABET)
        else:
            self._rows = self._fingerprints.rows if self._fingerprints is not None else reader.size()
        shapes = student_shapes(self.size, self._rows, self.vocab_size, classifier, self.outputs)
        self.matrices = {n: Matrix(reader, streams, *shape) for n, shape in shapes.items() if len(shape) == 2}
        self.vectors = {n: streams.add_floats(*shape) for n, shape in shapes.items() if len(shape) == 1}
        self.floats = [streams.add(reader, streams.floats) for _ in range(4)]
        reader.end()

    def _check_settings(self) -> None:
        size = self.size
        if self.by_word and (not self.labels or self.arch == "ffn"):
            raise PackedError("this architecture cannot label words, or there are no labels")
        attends = size.align or self.arch in TRANSFORMERS
        if size.spans and (len(self.labels) != 2 or not attends or size.symmetric):
            raise PackedError(
                "a question answering model needs two labels, aligned texts or a transformer, and no symmetry"
            )
        if self.embedding == "ngrams" and self.arch != "ffn":
            raise PackedError("n-grams are stored for another architecture than an FFN")
        if not (self.plain_words or self.embedding in ("hash", "ngrams") or size.spans):
            raise PackedError("a rule for words is stored for a model that does not divide texts into words")
        if not self.outputs:
            raise PackedError("the model has no labels")
        if self._calibrated and not self.kind.has_probabilities:
            raise PackedError("a temperature is stored for a model without probabilities")
        if self.kind.rejects and not (self._has_threshold and self._calibrated and len(self.labels) > 1):
            raise PackedError("a model whose texts may have no label needs a threshold, a temperature and two labels")
        if self._has_threshold and not (self.kind.rejects or (self.kind.has_threshold and len(self.labels) == 2)):
            raise PackedError("a threshold is stored for a model that does not choose between two labels")
        if self.arch == "conv" and not (size.pooling == "max" and size.kernel_width % 2):
            raise PackedError("a convolution needs an odd window and max pooling")
        if size.align and not (self.pair and self.arch in ALIGNING and size.pooling == "max"):
            raise PackedError("only a BiLSTM, GRU or convolution that reads pairs, with max pooling, can align texts")
        if size.compose and not size.align:
            raise PackedError("the model has a second encoder for aligned texts, but does not align texts")
        if size.align and self.max_tokens > MOST_ALIGNED:
            raise PackedError(f"max_tokens is larger than {MOST_ALIGNED:,}, the limit for aligned texts")
        if size.symmetric and (not self.pair or self.arch in TRANSFORMERS):
            raise PackedError("only a model of pairs that is not a transformer can be symmetric")
        if self.arch in TRANSFORMERS and (not size.depth or not size.heads):
            raise PackedError("a transformer has no layers or no heads")
        if self.arch in TRANSFORMERS and not size.head_dim and size.hidden % size.heads:
            raise PackedError("the number of heads does not divide the width of the transformer")
        if size.head_dim and (self.arch not in TRANSFORMERS or size.attention > MOST_WIDTH):
            raise PackedError("a head width is stored for a model without heads, or the heads are too wide together")
        if size.share != "none" and self.arch != "transformer":
            raise PackedError("only a transformer, not a recursive one, can share a part of its layers")
        if not size.segments and self.arch not in TRANSFORMERS:
            raise PackedError("only a transformer can leave out segment embeddings")

    def read_streams(self, reader: Reader) -> None:
        """Decode everything after the header, to its last byte. Raises PackedError."""
        if self._calibrated:
            self.temperature = reader.float_within(LEAST_TEMPERATURE, MOST_TEMPERATURE)
        if self._has_threshold:
            self.threshold = reader.float_within(0, 1)
        streams = self._streams
        limit = min(MOST_VALUES, SYMBOLS_PER_BYTE * (reader.left + 8))
        carried = decode_stream(reader, streams.first, limit)
        streams.apply_masks()
        if self._vocabulary is not None:
            carried += self._vocabulary.read_pairs(reader)
            self.tokenizer = self._vocabulary.byte_pairs()
            if (size := self.tokenizer.size) != self._rows:
                raise PackedError(f"the vocabulary has {size} pieces, but the embedding has {self._rows} rows")
        carried += decode_stream(reader, streams.main, limit)
        raw = [array for array in streams.main if array.mode == RAW]
        pool_size = sum(array.count for array in raw)
        if reader.left != max(0, pool_size - len(carried)) or any(carried[pool_size:]):
            raise PackedError("the pool of raw arrays has the wrong length")
        pool = np.frombuffer(carried[:pool_size] + bytes(reader.rest()), np.uint8)
        start = 0
        for array in raw:
            array.values = pool[start : start + array.count]
            start += array.count
        if self._fingerprints is not None:
            self.tokenizer = self._fingerprints.ngrams()

    def weights(self) -> dict[str, np.ndarray]:
        """Return all weights, float32, by the names that students give them."""
        floats = checked(join_planes(self.floats, "<f4"))
        weights = {name: matrix.value(floats) for name, matrix in self.matrices.items()}
        return weights | {name: floats[where] for name, where in self.vectors.items()}
