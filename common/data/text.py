"""Text normalisation and word splitting, the same for teachers, students, augmentation and leak checks."""

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")

FIRST_EMOJI = "\U0001f000"
"""The first code point of Unicode's pictograph blocks."""


def normalise(text: str) -> str:
    """Return text in NFC, white space as single spaces, ends stripped, as all readers do (seed faults 2 and 3)."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def split_words(text: str) -> list[str]:
    """Return lower-cased words and single punctuation characters. "It's fun!" -> ["it's", "fun", "!"]."""
    return _WORD.findall(text.lower())


def match_key(text: str) -> str:
    """Return words and emoji, joined by spaces: equal for sentences that differ in case, spacing or punctuation."""
    return " ".join(word for word in split_words(text) if word[0].isalnum() or word[0] >= FIRST_EMOJI)
