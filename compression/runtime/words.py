"""Words and spaces of a text: one rule for data, hashed words, answers and baselines (docs/format.md, "Words")."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

KEPT_CHARACTERS = 1 << 16
"""Most characters whose classes are kept: all that most services read, but not all of Unicode."""
# Patterns of the classes that `_word_class` returns.
_WORD = re.compile(r"1m*|a[am]*(?:'a[am]*)*|[^ ]m*")
_PART = re.compile(r"1m*|a[am]*|[^ ]m*")
_PLAIN_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*|[^\w\s]|_")
_PLAIN_PART = re.compile(r"[^\W_]+|[^\w\s]|_")
_ALONE_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x31FF),  # Japanese syllables, Bopomofo
    (0x3400, 0x9FFF),  # ideographs
    (0xAA60, 0xAA7F),  # Burmese
    (0xF900, 0xFAFF),  # ideographs
    (0xFF66, 0xFF9F),  # half-width Japanese
    (0x20000, 0x3FFFF),  # ideographs
)
"""Scripts that are written without spaces."""


def tidy(text: str) -> str:
    """Return the text in NFC, with single spaces and stripped ends, as the project reads all text."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def split_words(text: str, plain: bool = False) -> list[str]:
    """Return lower-cased words and single signs. "It's fun!" -> ["it's", "fun", "!"].

    A word is letters and digits, with their combining marks and joiners, and with apostrophes between letters; in
    scripts that are written without spaces, one letter with its marks. plain: the rule of older packed files, in which
    marks and joiners are signs, and no script is an exception.
    """
    text = text.lower()
    if plain or text.isascii():
        return _PLAIN_WORD.findall(text)
    text = text.replace("\u2019", "'")
    return [text[start:end] for start, end in _spans(_WORD, text)]


def word_spans(text: str, plain: bool = False) -> list[tuple[int, int]]:
    """Return the characters [start, end) of a text's words, which are divided at apostrophes. plain: as above."""
    if plain or text.isascii():
        return [match.span() for match in _PLAIN_PART.finditer(text)]
    return _spans(_PART, text)


def stands_alone(character: str) -> bool:
    """Return whether a character is a letter of a script that is written without spaces."""
    alone = character >= "\u0e00" and any(first <= ord(character) <= last for first, last in _ALONE_RANGES)
    return alone and character.isalnum() and not character.isdecimal()


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(text.translate(_WORD_CLASSES))]


class Cache(dict):
    """Key -> what is computed for it, when it is first needed. When it is full, it is emptied.

    Threads may share it: what another one has removed is computed again.
    """

    def __init__(self, compute: Callable[[Any], Any], most: int) -> None:
        """most: keys that are kept."""
        super().__init__()
        self._compute, self._most = compute, most

    def __missing__(self, key: str | int) -> Any:
        if len(self) >= self._most:
            self.clear()
        self[key] = value = self._compute(key)
        return value


def _word_class(code: int) -> str:
    """Return a code point's class: a (letter or digit), 1 (stands alone), m (mark or joiner), quote, space, or !."""
    character = chr(code)
    if character.isspace():
        return " "
    if character in "'\u2019":
        return "'"
    if unicodedata.category(character)[0] == "M" or character in "\u200c\u200d":
        return "m"
    if stands_alone(character):
        return "1"
    return "a" if character.isalnum() else "!"


_WORD_CLASSES = Cache(_word_class, KEPT_CHARACTERS)
