"""Byte-level pairs exactly as GPT-2 and RoBERTa encode them (Radford et al., 2019): merges of the bytes of UTF-8."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ..words import KEPT_CHARACTERS, Cache
from .bpe import DUMMY_PREFIX
from .merges import Merges

BYTE_LEVEL = 8
"""Flag: symbols are bytes, written as the characters U+0000 to U+00FF; words are GPT-2's."""
BYTES = "".join(map(chr, range(256)))
"""The symbols of all bytes."""
_GPT2_WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)
"""GPT-2's pattern for ASCII; other characters are first replaced by one of their class."""
_LETTER, _NUMBER, _SPACE, _OTHER = "A0\t!"
_SPACES = frozenset("\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
"""Unicode's white space beyond ASCII."""


class ByteLevelPairs:
    """GPT-2's tokens: text is divided into words, and each word's bytes are merged.

    symbols: bytes, then merges in their order, with a character for each byte; states: USED, UNUSED or UNKNOWN of each
    (see Merges). flags: BYTE_LEVEL, and DUMMY_PREFIX for a space before a text that does not begin with one.
    """

    word_format = " {}"
    """Format of words that are encoded one by one: as in the middle of a text."""
    most_words = 1 << 16
    """Most words whose ids are cached."""

    def __init__(self, symbols: Sequence[str], states: Sequence[int], flags: int) -> None:
        self._merges, self._prefix = Merges(len(BYTES), symbols, states), bool(flags & DUMMY_PREFIX)
        self.size = self._merges.size
        self._known = Cache(self._ids_of, self.most_words)

    def encode(self, text: str) -> list[int]:
        """Return one id per piece."""
        if self._prefix and text and text[0] != " ":
            text = " " + text
        known = self._known
        return [i for word in gpt2_words(text) for i in known[word]]

    def _ids_of(self, word: str) -> tuple[int, ...]:
        return self._merges.encode(word.encode().decode("latin-1"))


def gpt2_words(text: str) -> list[str]:
    """Return the words, numbers, signs and white space that a text consists of, as GPT-2's pattern divides it.

    A space belongs to the word after it. Letters and numbers are those of Unicode's categories L and N.
    """
    if text.isascii():
        return _GPT2_WORD.findall(text)
    classes = text.translate(_CLASSES)
    return [text[word.start() : word.end()] for word in _GPT2_WORD.finditer(classes)]


def _class_of(code: int) -> str:
    """Return an ASCII character of a code point's class; ASCII stays as it is."""
    character = chr(code)
    if code < 128:
        return character
    if character in _SPACES:
        return _SPACE
    category = unicodedata.category(character)
    if category == "Cn":
        if any(first <= code <= last for first, last in _LATER_LETTERS):
            return _LETTER
        return _NUMBER if any(first <= code <= last for first, last in _LATER_NUMBERS) else _OTHER
    return {"L": _LETTER, "N": _NUMBER}.get(category[0], _OTHER)


_CLASSES = Cache(_class_of, KEPT_CHARACTERS)


_LATER_LETTERS = (
    (0x1C89, 0x1C8A), (0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC), (0x105C0, 0x105F3), (0x10D4A, 0x10D65), (0x10D6F, 0x10D85),
    (0x10EC2, 0x10EC4), (0x1123F, 0x11240), (0x11380, 0x11389), (0x1138B, 0x1138B), (0x1138E, 0x1138E),
    (0x11390, 0x113B5), (0x113B7, 0x113B7), (0x113D1, 0x113D1), (0x113D3, 0x113D3), (0x11BC0, 0x11BE0),
    (0x11F02, 0x11F02), (0x11F04, 0x11F10), (0x11F12, 0x11F33), (0x1342F, 0x1342F), (0x13441, 0x13446),
    (0x13460, 0x143FA), (0x16100, 0x1611D), (0x16D40, 0x16D6C), (0x18CFF, 0x18CFF), (0x1B132, 0x1B132),
    (0x1B155, 0x1B155), (0x1DF25, 0x1DF2A), (0x1E030, 0x1E06D), (0x1E4D0, 0x1E4EB), (0x1E5D0, 0x1E5ED),
    (0x1E5F0, 0x1E5F0), (0x2B739, 0x2B739), (0x2EBF0, 0x2EE5D), (0x31350, 0x323AF),
)  # fmt: skip
"""Letters of Unicode 15 and 16: the teachers' tokenizers know them, older Pythons do not."""
_LATER_NUMBERS = (
    (0x10D40, 0x10D49), (0x116D0, 0x116E3), (0x11BF0, 0x11BF9), (0x11F50, 0x11F59), (0x16130, 0x16139),
    (0x16D70, 0x16D79), (0x1CCF0, 0x1CCF9), (0x1D2C0, 0x1D2D3), (0x1E4F0, 0x1E4F9), (0x1E5F1, 0x1E5FA),
)  # fmt: skip
