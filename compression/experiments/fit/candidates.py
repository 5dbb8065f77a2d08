"""Candidates: students whose packed file is estimated to fit the size, before anything is trained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from common.config import Settings
from common.errors import UserError
from compression.runtime import ALIGNING
from compression.students.settings import StudentSettings
from compression.students.spec import StudentSpec

_PRESETS = (
    (1_000, 4, 4, 4),
    (4_000, 8, 8, 8),
    (12_000, 12, 16, 16),
    (32_000, 16, 32, 32),
    (100_000, 24, 64, 64),
    (400_000, 32, 96, 64),
)
"""Bytes, embedding width, encoder width, classifier width; from 12,000 bytes on as in configs/experiments/presets."""
_PIECE_BYTES = 2.1
"""Approximate bytes of a byte pair's text in a packed file."""
_HEADER = 260
_FILLED = 0.97
"""Share of the bytes that an estimate may fill; the bits of each matrix are chosen to fit at the end."""
NARROW, WIDE = 5.0, 3.2
"""Bits per weight, for models with few weights and with many."""
FEWEST_PIECES = 100


class Candidate(Settings):
    """A student to try."""

    name: str
    arch: str
    embedding_type: str
    vocab_size: int
    embedding_dim: int
    encoder_hidden_dim: int
    cls_hidden_dim: int
    dropout: float
    max_tokens: int
    pair_encoder: str = "compare"
    symmetric: bool = False
    labels_only: bool = False
    """Learn from labels only, even if there is a teacher."""
    bytes: int
    """Estimated bytes of the packed file."""
    bits: float
    """Bits per weight that the estimate assumes."""

    def flags(self) -> dict[str, Any]:
        """Return the student's flags of compress.py."""
        others = {"name", "arch", "labels_only", "bytes", "bits"}
        # Other tasks reject the flags of pairs, so defaults are left out.
        return {"student_arch": self.arch, **self.model_dump(exclude=others, exclude_defaults=True)}


def packed_bytes(candidate: Candidate, pair: bool, labels: Sequence[str], bits: float) -> float:
    """Return the estimated bytes of a candidate's packed file."""
    shape = {name: getattr(candidate, name) for name in candidate.model_fields_set & set(StudentSettings.model_fields)}
    spec = StudentSpec(candidate.arch, StudentSettings(**shape), len(labels) or 1, pair)
    shapes = spec.shapes()
    weights = sum(math.prod(shapes[name]) for name in spec.matrices()) * bits / 8
    vectors = sum(math.prod(shapes[name]) for name in spec.vectors()) * 2
    pieces = candidate.vocab_size * _PIECE_BYTES if candidate.embedding_type == "bpe" else 0
    return weights + vectors + pieces + _HEADER + sum(len(label.encode()) + 1 for label in labels)


def find_candidates(
    max_bytes: int, pair: bool, labels: Sequence[str], words: float, most_pieces: int, symmetric: bool = False
) -> list[Candidate]:
    """Return the students to try within a size, the most promising first.

    words: median number of words of a text; recurrent students read only the beginning of long texts. most_pieces:
    number of byte pairs that can be built from the texts; symmetric: whether the texts of a pair have no order. Raises
    UserError, with the smallest sufficient size, if no student fits.
    """
    aligned = {"pair_encoder": "align", "symmetric": symmetric}
    possible = [
        candidate.model_copy(update=aligned) if pair and candidate.arch in ALIGNING else candidate
        for candidate in _possible(max_bytes, words)
    ]
    fitted = [fit for candidate in possible if (fit := _fitted(candidate, max_bytes, pair, labels, most_pieces))]
    unique = {tuple(c.model_dump(exclude={"name", "bytes", "bits"}).items()): c for c in reversed(fitted)}
    kept = [candidate for candidate in fitted if candidate in unique.values()]
    if not kept:
        smallest = next(_possible(_PRESETS[0][0], words))
        smallest = smallest.model_copy(update={"vocab_size": FEWEST_PIECES})
        least = math.ceil(packed_bytes(smallest, pair, labels, WIDE) / _FILLED)
        raise UserError(f"--max-bytes {max_bytes}: too small for any student; give {least:,} or more")
    return kept


def _possible(max_bytes: int, words: float) -> Iterator[Candidate]:
    dim, encoder, classifier = widths(max_bytes)

    def candidate(arch: str, embedding: str, width: int, cls: int, bits: float, labels_only: bool = False) -> Candidate:
        size = f"{width}" + ("" if bits == NARROW else "w")
        return Candidate(
            name=f"{arch}-{embedding}{size}" + ("-labels" if labels_only else ""),
            arch=arch,
            embedding_type=embedding,
            vocab_size=0,
            embedding_dim=width,
            encoder_hidden_dim=encoder,
            cls_hidden_dim=cls,
            dropout=0.1 if max_bytes < 64_000 else 0.25,
            max_tokens=512 if arch == "ffn" else 160 if words > 100 else 256,
            labels_only=labels_only,
            bytes=0,
            bits=bits,
        )

    # The most promising first: the last ones are left out if there is no time for all.
    yield candidate("ffn", "bpe", dim, classifier, WIDE)
    yield candidate("bilstm", "bpe", dim, classifier, WIDE)
    yield candidate("ffn", "hash", max(4, dim), classifier, WIDE)
    yield candidate("ffn", "bpe", dim, classifier, WIDE, labels_only=True)
    yield candidate("conv", "bpe", dim, classifier, WIDE)
    yield candidate("bilstm", "bpe", dim, classifier, NARROW)
    yield candidate("ffn", "bpe", 2 * dim, 2 * classifier, WIDE)
    yield candidate("ffn", "bpe", dim, classifier, NARROW)


def widths(max_bytes: int) -> tuple[int, int, int]:
    """Return embedding, encoder and classifier width for a size, interpolated between the presets."""
    place = min(max(math.log(max_bytes), math.log(_PRESETS[0][0])), math.log(_PRESETS[-1][0]))
    for low, high in itertools.pairwise(_PRESETS):
        if place <= math.log(high[0]):
            share = (place - math.log(low[0])) / (math.log(high[0]) - math.log(low[0]))
            dim, encoder, classifier = (
                max(4, 4 * round(math.exp((1 - share) * math.log(a) + share * math.log(b)) / 4))
                for a, b in zip(low[1:], high[1:], strict=True)
            )
            return dim, encoder, classifier
    return _PRESETS[-1][1:]


def _fitted(
    candidate: Candidate, max_bytes: int, pair: bool, labels: Sequence[str], most_pieces: int
) -> Candidate | None:
    """Return the candidate with the largest vocabulary that fits at its bits, or None if none fits.

    If the texts have too few byte pairs to fill the file, weights get more bits.
    """

    def at(pieces: int) -> tuple[Candidate, float]:
        sized = candidate.model_copy(update={"vocab_size": pieces})
        return sized, packed_bytes(sized, pair, labels, candidate.bits)

    low, high = FEWEST_PIECES, most_pieces if candidate.embedding_type == "bpe" else 100_000
    if high < low or at(low)[1] > _FILLED * max_bytes:
        return None
    while low < high:  # binary search for the largest that fits
        middle = (low + high + 1) // 2
        if at(middle)[1] <= _FILLED * max_bytes:
            low = middle
        else:
            high = middle - 1
    pieces = low if low < 1000 else low // 50 * 50
    sized, size = at(pieces)
    return sized.model_copy(update={"bytes": round(size)})
