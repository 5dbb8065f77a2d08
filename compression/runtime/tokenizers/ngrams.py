"""N-grams chosen for a task: words, neighbouring words, and parts of words (docs/format.md, "N-grams").

A vocabulary has the fingerprints of its n-grams, not their text. An n-gram's id is 1 plus the number of smaller
fingerprints.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from ..words import Cache, split_words

PART_LENGTHS = (3, 4, 5)
"""Characters of a word's parts."""
SPARE_BITS = 7
"""Bits of a fingerprint in addition to those that number the n-grams: one in 128 other n-grams, or fewer, has the
fingerprint of a chosen one."""
MOST_BITS = 32


def fingerprint_bits(count: int, spare: int = SPARE_BITS) -> int:
    """Return the bits of a fingerprint in a vocabulary of so many n-grams."""
    return min(MOST_BITS, spare + (count - 1).bit_length())


def fingerprint_of(ngram: str, bits: int) -> int:
    """Return an n-gram's fingerprint: the low bits of the CRC-32 of its UTF-8."""
    return crc32(ngram.encode()) & ((1 << bits) - 1)


def parts_of(word: str) -> list[str]:
    """Return the parts of "<word>" that are shorter than it, each with a "#" in front: of 3 characters, then 4, 5."""
    marked = f"<{word}>"
    return [
        f"#{marked[start : start + length]}"
        for length in PART_LENGTHS
        if length < len(marked)
        for start in range(len(marked) - length + 1)
    ]


class NGrams:
    """The n-grams of each word: the word, the word before it and the word, with a space between them, and its parts.

    A word that is not in the vocabulary has id 0; other n-grams that are not in it have none.
    """

    word_format = "{}"
    """Format of words that are encoded one by one."""
    most_words = 1 << 17
    """Most words whose n-grams are cached."""

    def __init__(self, fingerprints: Sequence[int], bits: int) -> None:
        """fingerprints: sorted, each below 2 to the power of bits."""
        self._ids = {fingerprint: i for i, fingerprint in enumerate(fingerprints, 1)}
        self._mask, self.size = (1 << bits) - 1, 1 + len(self._ids)
        self._known = Cache(self._looked_up, self.most_words)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text's n-grams."""
        ids: list[int] = []
        id_of, mask = self._ids.get, self._mask
        start_of_pair = None
        for word in split_words(text):
            of_word, of_parts, utf8, as_start = self._known[word]
            ids.append(of_word)
            if start_of_pair is not None and (pair := id_of(crc32(utf8, start_of_pair) & mask)):
                ids.append(pair)
            ids += of_parts
            start_of_pair = as_start
        return ids

    def _looked_up(self, word: str) -> tuple[int, list[int], bytes, int]:
        """Return a word's id, the ids of its parts, its UTF-8, and the CRC-32 with which a pair continues."""
        id_of, mask, utf8 = self._ids.get, self._mask, word.encode()
        of_parts = [i for part in parts_of(word) if (i := id_of(crc32(part.encode()) & mask))]
        return id_of(crc32(utf8) & mask, 0), of_parts, utf8, crc32(utf8 + b" ")
