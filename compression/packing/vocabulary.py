"""Vocabularies in a packed file.

A sentencepiece model file takes 320 KB for 5,000 pieces, but its encoder needs only the merges and their order. A merge
is written as the indexes of its two parts; a symbol takes fewer bits the more often it has been a part before. Word
pieces are sorted and written without the characters that they share with the previous piece. N-grams are written as
their fingerprints, without their text.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from common.errors import UserError
from compression.packing.ans import Step, encode_steps, pair_steps
from compression.packing.arrays import store, store_first
from compression.packing.streams import Streams
from compression.runtime.tokenizers.bpe import WORDS
from compression.runtime.tokenizers.bytelevel import BYTES
from compression.runtime.tokenizers.normalisation import SPACE
from compression.runtime.vocabulary import (
    GROUPED,
    LOWERCASE,
    MOST_BYTE_LEVEL,
    MOST_GROUPS,
    MOST_NGRAMS,
    MOST_PIECE_LENGTH,
    MOST_PIECES,
    MOST_REPLACEMENT,
    MOST_WORD_PIECES,
    coded_indexes,
    largest_group,
    pair_lanes,
)
from compression.tokenizers import UNKNOWN, Tokenizer
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.bpe_model import BpeModel
from compression.tokenizers.bytelevel import ByteLevelTokenizer
from compression.tokenizers.merge_order import choices_of_parts, group_sizes, most_frequent_parts
from compression.tokenizers.ngrams import NGramTokenizer
from compression.tokenizers.wordpiece import WordPieceTokenizer


class PackedMerges:
    """Merges ready to be written. rows: for each row of the packed table, its row in the student's."""

    rows: np.ndarray

    def __init__(self, characters: str, merges: Sequence[str], states: np.ndarray, words: bool) -> None:
        """states: uint8 [characters + merges]; words: whether pieces stay within a word."""
        self._states, self._coded = states, _coded(characters, tuple(merges), words)

    @property
    def grouped(self) -> int:
        """The flag GROUPED, or 0."""
        return GROUPED * bool(self._coded.sizes)

    def write(self, streams: Streams) -> None:
        """Write everything but the pairs, as the runtime's Vocabulary reads it."""
        header, coded = streams.header, self._coded
        header.number(coded.merges)
        header.number(len(coded.literal))
        before = -1
        for index, text in coded.literal.items():
            header.number(index - before - 1)
            header.text(text)
            before = index
        streams.add_first(store_first(self._states), "vocabulary")
        if coded.sizes:
            done = 0
            for size in coded.sizes:
                header.number(min(coded.merges - done, largest_group(done)) - size)
                done += size
            for place in range(2):
                streams.add_first(store_first((coded.gaps >> 8 * place & 255).astype(np.uint8)), "vocabulary")

    def encode(self, spare: bytes) -> tuple[bytes, int]:
        """Return (the stream of pairs, the number of spare bytes that it carries)."""
        coded = self._coded
        pairs = coded.merges - len(coded.literal)
        return encode_steps(coded.steps, pair_lanes(pairs), spare) if pairs else (b"", 0)


class PackedBytePairs(PackedMerges):
    """Byte pairs of a sentencepiece model."""

    def __init__(self, model: BpeModel) -> None:
        """Raises UserError if the vocabulary is too large."""
        if len(model.states) > MOST_PIECES // 2 or any(len(piece) > MOST_PIECE_LENGTH for piece in model.merges):
            limit = f"more than {MOST_PIECES // 2:,} pieces, or an overlong one"
            raise UserError(f"{BpeTokenizer.file}: cannot be packed: {limit}")
        for key, value in model.rules.items():
            if len(key) > MOST_PIECE_LENGTH or len(value or "") > MOST_REPLACEMENT:
                raise UserError(
                    f"{BpeTokenizer.file}: cannot be packed: the normalisation rule for {key[:20]!r} is too long"
                )
        self._model, self.rows = model, model.rows.astype(np.int64)
        super().__init__(model.characters, model.merges, model.states, bool(model.flags & WORDS))

    def write(self, streams: Streams) -> None:
        """Write flags and normalisation, then the merges."""
        header, model = streams.header, self._model
        header.byte(model.flags | self.grouped)
        header.byte(model.base)
        header.number(len(model.rules))
        for key, value in model.rules.items():
            header.text(key)
            header.byte(value is not None)
            if value is not None:
                header.text(value)
        header.text(model.characters)
        super().write(streams)


class PackedByteLevel(PackedMerges):
    """Byte-level pairs: their characters are the 256 bytes, and text is not normalised."""

    def __init__(self, tokenizer: ByteLevelTokenizer) -> None:
        """Raises UserError when they cannot be packed."""
        merges = tokenizer.symbols[len(BYTES) :]
        if len(merges) > MOST_BYTE_LEVEL or any(len(piece) > MOST_PIECE_LENGTH for piece in merges):
            raise UserError(
                f"cannot be packed: more than {MOST_BYTE_LEVEL:,} byte-level pieces, or a piece that is too long"
            )
        self._flags, self.rows = tokenizer.flags, np.arange(tokenizer.vocab_size)
        super().__init__(BYTES, merges, np.array(tokenizer.states, np.uint8), words=False)

    def write(self, streams: Streams) -> None:
        """Write the flags, then the merges."""
        streams.header.byte(self._flags | self.grouped)
        super().write(streams)


@dataclasses.dataclass(frozen=True, eq=False)
class CodedMerges:
    """Merges ready to be coded: their number, the text of literal ones by number, and the steps of the others' parts.

    sizes: of the groups, empty if there are none; gaps: int64 [merges] with groups, the differences of their buckets.
    """

    merges: int
    literal: dict[int, str]
    steps: Sequence[Step] = ()
    sizes: Sequence[int] = ()
    gaps: np.ndarray | None = None


@functools.lru_cache(maxsize=4)
def _coded(characters: str, merges: tuple[str, ...], words: bool) -> CodedMerges:
    """Return the merges in groups if they are sorted so. A merge is literal if no two earlier symbols form it."""
    if len(set(characters) - {SPACE}) < 2:  # a symbol without alternatives cannot be coded
        return CodedMerges(len(merges), dict(enumerate(merges)))
    sizes = group_sizes(characters, merges)
    choices = choices_of_parts(characters, merges, sizes)
    if all(choices) and len(sizes) <= MOST_GROUPS:
        pairs = most_frequent_parts(choices)
        if all((np.diff(left) >= 0).all() for left in np.split(pairs[:, 0], np.cumsum(sizes)[:-1])):
            indexes = coded_indexes(len(characters), len(merges), {})
            steps, gaps = pair_steps(characters, indexes, pairs, words, sizes)
            return CodedMerges(len(merges), {}, steps, sizes, gaps)
    choices = choices_of_parts(characters, merges, [1] * len(merges))
    literal = {index: merges[index] for index, pairs_of in enumerate(choices) if not pairs_of}
    pairs = most_frequent_parts([pairs_of for pairs_of in choices if pairs_of])
    indexes = coded_indexes(len(characters), len(merges), literal)
    steps = pair_steps(characters, indexes, pairs, words, [])[0] if len(pairs) else []
    return CodedMerges(len(merges), literal, steps)


class PackedWordPieces:
    """Word pieces ready to be written. rows: for each row of the packed table, its row in the student's."""

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        """Raises UserError when they cannot be packed."""
        row_of = {piece: row for row, piece in enumerate(tokenizer.pieces) if row != UNKNOWN}
        self._lowercase, self._pieces = tokenizer.lowercase, sorted(row_of)
        if len(row_of) != len(tokenizer.pieces) - 1 or len(row_of) > MOST_WORD_PIECES:
            raise UserError(f"cannot be packed: a word piece is repeated, or there are more than {MOST_WORD_PIECES:,}")
        if any(not 0 < len(piece) <= MOST_PIECE_LENGTH for piece in row_of):
            raise UserError("cannot be packed: a word piece is empty or too long")
        self.rows = np.array([UNKNOWN, *(row_of[piece] for piece in self._pieces)])

    def write(self, streams: Streams) -> None:
        """Write the pieces, as the runtime's read_word_pieces reads them."""
        header = streams.header
        header.byte(LOWERCASE * self._lowercase)
        header.number(len(self._pieces))
        before = ""
        for piece in self._pieces:
            common = next((i for i, (a, b) in enumerate(zip(before, piece, strict=False)) if a != b), len(before))
            header.number(common)
            header.text(piece[common:])
            before = piece


class PackedNGrams:
    """Fingerprints of n-grams ready to be written. rows: for each row of the packed table, its row in the student's."""

    def __init__(self, tokenizer: NGramTokenizer) -> None:
        """Raises UserError when they cannot be packed."""
        if not 0 < len(tokenizer.fingerprints) <= MOST_NGRAMS:
            raise UserError(f"cannot be packed: there are no n-grams, or more than {MOST_NGRAMS:,}")
        self._bits, self.rows = tokenizer.bits, np.arange(tokenizer.vocab_size)
        self._gaps = np.diff(np.array(tokenizer.fingerprints, np.int64), prepend=-1) - 1

    def write(self, streams: Streams) -> None:
        """Write the fingerprints, as the runtime's Fingerprints reads them."""
        streams.header.byte(self._bits)
        streams.header.number(len(self._gaps))
        for place in range(4):
            plane = (self._gaps >> 8 * place & 255).astype(np.uint8)
            streams.add(store(plane), [("vocabulary", len(plane))], "vocabulary")


PackedVocabulary = PackedMerges | PackedWordPieces | PackedNGrams


def pack_vocabulary(tokenizer: Tokenizer) -> PackedVocabulary | None:
    """Return a tokenizer's vocabulary, if it has one. Raises UserError when it cannot be packed."""
    if isinstance(tokenizer, BpeTokenizer):
        return PackedBytePairs(tokenizer.model)
    if isinstance(tokenizer, ByteLevelTokenizer):
        return PackedByteLevel(tokenizer)
    if isinstance(tokenizer, NGramTokenizer):
        return PackedNGrams(tokenizer)
    return PackedWordPieces(tokenizer) if isinstance(tokenizer, WordPieceTokenizer) else None
