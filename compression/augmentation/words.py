"""Words of a sentence: which words augmentation may replace, and the case of a replacement."""

import re
import unicodedata
from collections.abc import Iterable

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

# Words and the text between them: joining the pieces restores the sentence, so a variant keeps its spacing.
_PIECE = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[\W_]+")


def split_pieces(text: str) -> list[str]:
    """Return the words and the text between them: "It's  fun!" -> ["It's", "  ", "fun", "!"]."""
    return _PIECE.findall(text)


def count_words(texts: Iterable[str]) -> int:
    """Return the total number of space-separated words in all texts of a row."""
    return sum(len(text.split()) for text in texts)


def replaceable(word: str) -> bool:
    """Return whether a lower-case word may be replaced; stop words, numbers and symbols may not."""
    return len(word) > 1 and word.isalpha() and word not in ENGLISH_STOP_WORDS


def replaceable_indices(pieces: list[str]) -> list[int]:
    """Return the indices of a sentence's pieces that may be replaced.

    Letters next to a combining mark are only part of a word (Hebrew with points, Hindi) and are left out.
    """
    return [
        i
        for i, piece in enumerate(pieces)
        if replaceable(piece.lower())
        and not (i + 1 < len(pieces) and _is_mark(pieces[i + 1][0]))
        and not (i > 0 and _is_mark(pieces[i - 1][-1]))
    ]


def _is_mark(character: str) -> bool:
    return character > "\u02ff" and unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")


def in_case_of(word: str, candidate: str) -> str:
    """Return the candidate in the case of the word it replaces: UPPER, Capitalised, or unchanged."""
    if word.isupper():
        return candidate.upper()
    if word[0].isupper() and word[1:].islower():
        return candidate[0].upper() + candidate[1:]
    return candidate
