"""BERT's tokens (Wu et al., 2016; Devlin et al., 2019)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ..words import Cache


class WordPieces:
    """Splits each word into the longest pieces from left to right; all but the first begin with ##."""

    word_format = "{}"
    longest_word = 100
    """Most characters of a word; longer words are unknown, as in BERT."""
    most_words = 1 << 17
    """Most words whose pieces are cached."""

    def __init__(self, pieces: Sequence[str], lowercase: bool) -> None:
        """pieces: by id; the first one stands for unknown words."""
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._longest_piece = max(map(len, pieces), default=0)
        self._lowercase = lowercase
        self._known = Cache(self._split, self.most_words)

    def encode(self, text: str) -> list[int]:
        """Return one id per piece."""
        known = self._known
        return [i for word in bert_words(text, self._lowercase) for i in known[word]]

    def _split(self, word: str) -> list[int]:
        if len(word) > self.longest_word:
            return [0]
        ids, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(min(len(word), start + self._longest_piece), start, -1)
            longest = next(((end, i) for end in ends if (i := self._ids.get(prefix + word[start:end], 0))), None)
            if longest is None:
                return [0]
            start, piece = longest
            ids.append(piece)
        return ids


_ASCII_WORD = re.compile(r"[!-/:-@\[-`{-~]|[0-9A-Za-z]+")
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127))
_ASCII_SIGNS = "".join(chr(code) for code in (*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)))
_IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
               (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))  # fmt: skip


def bert_words(text: str, lowercase: bool) -> list[str]:
    """Return words and signs as BERT's basic tokenizer finds them; with `lowercase` accents are removed too."""
    if text.isascii():
        text = text.translate(_CONTROL)
        return _ASCII_WORD.findall(text.lower() if lowercase else text)
    text = "".join(map(_cleaned, text))
    if lowercase:
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    text = "".join(f" {c} " if _is_sign(c) else c for c in text)
    return ("".join(map(str.lower, text)) if lowercase else text).split()


def _cleaned(character: str) -> str:
    code, category = ord(character), unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    if code == 0xFFFD or category in ("Cc", "Cf", "Co"):
        return ""
    return f" {character} " if any(first <= code <= last for first, last in _IDEOGRAPHS) else character


def _is_sign(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" or (character.isascii() and character in _ASCII_SIGNS)
