"""Words of a sentence as augmentation sees them: which may be replaced, and in which case."""

import re
import unicodedata

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

# Words and what stands between them: joining the pieces gives the sentence back, so a variant keeps its spacing.
_PIECE = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|(?:[\W_])+")


def split_pieces(text: str) -> list[str]:
    """Words, and what stands between them. "It's  fun!" -> ["It's", "  ", "fun", "!"]."""
    return _PIECE.findall(text)


def replaceable(word: str) -> bool:
    """Whether a lower-cased word may be replaced: stop words and what is not a word stay."""
    return len(word) > 1 and word.isalpha() and word not in ENGLISH_STOP_WORDS


def replaceable_places(pieces: list[str]) -> list[int]:
    """Which of a sentence's pieces may be replaced.

    A letter run beside a combining mark is a part of a word (Hebrew with points, Hindi) and stays.
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
    """The candidate written as the word it replaces: UPPER, Capitalised, or as it is."""
    if word.isupper():
        return candidate.upper()
    if word[0].isupper() and word[1:].islower():
        return candidate[0].upper() + candidate[1:]
    return candidate
