"""Vocabularies as they are stored: byte pairs as a coded list of merges, word pieces as sorted text, n-grams as
sorted fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .entropy import Array, Lanes, frequencies
from .reader import PackedError, Reader
from .tokenizers.bpe import DUMMY_PREFIX, WORDS, BytePairs
from .tokenizers.bytelevel import BYTE_LEVEL, BYTES, ByteLevelPairs
from .tokenizers.merges import UNKNOWN
from .tokenizers.ngrams import MOST_BITS, NGrams
from .tokenizers.normalisation import NMT_NFKC, SPACE, Normaliser
from .weights import Streams

PAIR_BITS = 16
"""log2 of the sum of the frequencies of a merge's parts."""
MOST_PIECES = 1 << 15
MOST_BYTE_LEVEL = 56_000
"""Merges of byte-level pairs; RoBERTa's are 50,000."""
MOST_PIECE_LENGTH = 512
MOST_REPLACEMENT = 64
"""Most characters of a normalisation rule's replacement."""
MOST_WORD_PIECES = 1 << 18
MOST_CHARACTERS = 1 << 23
"""Characters of all word pieces together."""
MOST_NGRAMS = 1 << 20
GROUPED = 2 * BYTE_LEVEL
"""Flag of byte pairs: merges are in groups, each sorted by its left parts."""
LEAST_GROUP, GROUP_SHARE, MOST_GROUPS = 16, 4, 64
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
            raise PackedError("the word pieces are not sorted, or too long")
        pieces.append(piece)
    return pieces, lowercase


class Fingerprints:
    """The fingerprints of n-grams, sorted: the byte planes of the differences between neighbours, minus 1."""

    def __init__(self, reader: Reader, streams: Streams) -> None:
        self._bits, count = reader.byte(MOST_BITS + 1), streams.count(reader.size(MOST_NGRAMS))
        self.rows = 1 + count
        self._planes = [streams.add(reader, count) for _ in range(4)]

    def ngrams(self) -> NGrams:
        """Return the tokenizer, when all arrays are decoded. Raises PackedError if a fingerprint is too large."""
        gaps = sum(plane.values.astype(np.int64) << 8 * place for place, plane in enumerate(self._planes))
        fingerprints = np.cumsum(gaps + 1) - 1
        if fingerprints[-1] >> self._bits:
            raise PackedError("a fingerprint of an n-gram is too large")
        return NGrams(fingerprints.tolist(), self._bits)


class Vocabulary:
    """Byte pairs: characters, then merges of two symbols, in order."""

    def __init__(self, reader: Reader, streams: Streams) -> None:
        self.flags = reader.byte(2 * GROUPED)
        self._byte_level = bool(self.flags & BYTE_LEVEL)
        if self._byte_level and self.flags & ~(BYTE_LEVEL | DUMMY_PREFIX | GROUPED):
            raise PackedError(f"a field has the unknown value {self.flags}")
        if self._byte_level:
            self.characters, most = BYTES, MOST_BYTE_LEVEL
        else:
            self._normaliser, self.characters, most = read_normaliser(reader), reader.text(), MOST_PIECES
        self.merges = reader.number(most)
        self.literal: dict[int, str] = {}
        index = -1
        for _ in range(reader.number(self.merges)):
            index += 1 + reader.number(most)
            self.literal[index] = reader.text()
        if index >= self.merges:
            raise PackedError("the index of a literal merge is beyond the last merge")
        self._states = streams.add_first(reader, streams.count(len(self.characters) + self.merges))
        self._sizes: list[int] = []
        self._gaps: list[Array] = []
        if self.flags & GROUPED:
            if self.literal:
                raise PackedError("merges in groups cannot be literal")
            self._sizes = _read_sizes(reader, self.merges)
            self._gaps = [streams.add_first(reader, streams.count(self.merges)) for _ in range(2)]

    def read_pairs(self, reader: Reader) -> bytes:
        """Decode both parts of all merges that are not literal. Returns the bytes that the states carry."""
        indexes = coded_indexes(len(self.characters), self.merges, self.literal)
        self._pairs = pairs = np.zeros((len(indexes), 2), np.int64)
        if not len(indexes):
            return b""
        lanes = Lanes(reader, pair_lanes(len(indexes)))
        model = PairModel(self.characters, indexes, bool(self.flags & WORDS))
        for group in pair_groups(indexes, self._sizes):
            gaps = np.zeros(group.size, np.int64)
            for place, plane in enumerate(self._gaps):
                gaps += plane.values[group.first : group.end].astype(np.int64) << 8 * place
            buckets = np.cumsum(gaps)
            if buckets[-1] >> group.bits:
                raise PackedError("a group of merges refers to a symbol that does not exist")
            for side, shift in enumerate((PAIR_BITS - group.bits, PAIR_BITS)):
                frequency = model.frequencies(side, group.known)
                ends = np.cumsum(frequency)
                for first in range(0, group.size, len(lanes.states)):
                    part = pairs[group.first : group.end, side][first : first + len(lanes.states)]
                    x = lanes.states[: len(part)]
                    low = (buckets[first : first + len(part)] << shift) if shift < PAIR_BITS else 0
                    slot = low + (x & np.uint32((1 << shift) - 1))
                    part[:] = np.searchsorted(ends, slot, "right")
                    start = np.maximum(ends[part] - frequency[part], low)
                    width = np.minimum(ends[part], low + (1 << shift)) - start
                    x[:] = width * (x >> np.uint32(shift)) + slot - start
                    lanes.refill(x)
            model.learn(group.first, pairs[group.first : group.end])
        return lanes.end()

    def byte_pairs(self) -> BytePairs | ByteLevelPairs:
        """Return the tokenizer. Raises PackedError if the vocabulary is inconsistent."""
        symbols = list(self.characters)
        coded = iter(self._pairs.tolist())
        for index in range(self.merges):
            if index in self.literal:
                symbols.append(self.literal[index])
                continue
            left, right = next(coded)
            if max(left, right) >= len(symbols):
                raise PackedError("a merge refers to a later piece")
            symbols.append(symbols[left] + symbols[right])
            if len(symbols[-1]) > MOST_PIECE_LENGTH:
                raise PackedError("a piece is too long")
        if len(set(symbols)) != len(symbols) or self._states.values.max(initial=0) > UNKNOWN:
            raise PackedError("a piece is repeated, or has an unknown state")
        states = self._states.values.tolist()
        if self._byte_level:
            return ByteLevelPairs(symbols, states, self.flags & ~GROUPED)
        return BytePairs(len(self.characters), symbols, states, self._normaliser, self.flags & ~GROUPED)


def read_normaliser(reader: Reader) -> Normaliser:
    """Return the normalisation of byte pairs. Raises PackedError if a rule is malformed."""
    base = reader.byte(NMT_NFKC + 1)
    rules: dict[str, str | None] = {}
    for _ in range(reader.number(1 << 16)):
        key, has_value = reader.text(), reader.byte(2)
        if not 0 < len(key) <= MOST_PIECE_LENGTH:
            raise PackedError("a normalisation rule matches an empty text, or too long a text")
        rules[key] = reader.text() if has_value else None
        if len(rules[key] or "") > MOST_REPLACEMENT:
            raise PackedError("the replacement of a normalisation rule is too long")
    return Normaliser(base, rules)


def coded_indexes(characters: int, merges: int, literal: dict[int, str]) -> np.ndarray:
    """Return the index among all symbols of each merge that is not literal, int64."""
    return characters + np.array([index for index in range(merges) if index not in literal], np.int64)


def pair_lanes(merges: int) -> int:
    """Return how many merges are coded in one step."""
    return min(merges, 128, max(8, merges // 16))


def largest_group(before: int) -> int:
    """Return the largest size of a group after so many merges."""
    return max(LEAST_GROUP, before // GROUP_SHARE)


def _read_sizes(reader: Reader, merges: int) -> list[int]:
    """Return the sizes of the groups of merges: they are stored as differences from the largest possible ones."""
    sizes: list[int] = []
    while left := merges - sum(sizes):
        most = min(left, largest_group(sum(sizes)))
        sizes.append(most - reader.number(most - 1))
        if len(sizes) > MOST_GROUPS:
            raise PackedError("there are too many groups of merges")
    return sizes


class PairGroup(NamedTuple):
    """Merges that are coded with the same frequencies, from number `first` to `end`.

    known: symbols that can be their parts; bits: log2 of the number of equal intervals ("buckets") of a cumulative
    distribution of left parts, of which the one of each merge is stored.
    """

    first: int
    end: int
    known: int
    bits: int

    @property
    def size(self) -> int:
        """Number of merges."""
        return self.end - self.first


def pair_groups(indexes: np.ndarray, sizes: Sequence[int]) -> list[PairGroup]:
    """Return the groups of merges. indexes: see `coded_indexes`; sizes: of the groups, empty if there are none.

    Without groups, the merges of a step have the same frequencies, and may be parts of each other.
    """
    if not sizes:
        steps = range(0, len(indexes), pair_lanes(len(indexes)))
        ends = [*steps[1:], len(indexes)]
        return [PairGroup(first, end, int(indexes[end - 1]) + 1, 0) for first, end in zip(steps, ends)]
    ends = np.cumsum(sizes).tolist()
    return [
        PairGroup(end - size, end, int(indexes[end - size]), (2 * size - 1).bit_length())
        for size, end in zip(sizes, ends)
    ]


class PairModel:
    """How likely each symbol is the left or the right part of the next merges, from how often it has been so far.

    characters: the first symbols. indexes: see `coded_indexes`. words: no right part begins with a space.
    """

    def __init__(self, characters: str, indexes: np.ndarray, words: bool) -> None:
        self._indexes = indexes
        size = max(len(characters), int(indexes.max()) + 1)
        self._seen = np.zeros((2, size), np.int64)
        self._right = np.ones(size, bool)
        if words:
            self._right[: len(characters)] = [character != SPACE for character in characters]

    def frequencies(self, side: int, known: int) -> np.ndarray:
        """Return the frequencies, which sum to 1 << PAIR_BITS, of the first `known` symbols. side: 0 left, 1 right."""
        weights = 4 * self._seen[side, :known] + 2
        if side:
            weights = np.where(self._right[:known], weights + 1, 0)
        return frequencies(weights, PAIR_BITS)

    def learn(self, first: int, pairs: np.ndarray) -> None:
        """Count the parts of coded merges from number `first` on. pairs: int64 [merges, 2]."""
        indexes = self._indexes[first : first + len(pairs)]
        for index, left in zip(indexes.tolist(), pairs[:, 0].tolist()):
            # In order: a merge may have a part that is a merge of the same block.
            self._right[index] = self._right[left]
        for side in (0, 1):
            np.add.at(self._seen[side], pairs[:, side], 1)
