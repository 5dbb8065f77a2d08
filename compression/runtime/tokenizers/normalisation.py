"""sentencepiece's text normalisation, its rules taken from Python's own Unicode tables."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from ..words import Cache

IDENTITY, NFKC, NMT_NFKC = range(3)
"""Normalisations that need no rules of their own in a file."""
SPACE = "\u2581"
"""sentencepiece's character for a space."""
_LONGEST = 4
"""Most characters that one rule of NFKC replaces: no composed character has a longer decomposition."""
_KEPT_MATCHES = 1 << 16


class Normaliser:
    """Replaces, from left to right, the longest match of a rule at each position.

    base: IDENTITY, NFKC or NMT_NFKC. more: rules that differ from the base's, None where the base's does not apply.
    """

    def __init__(self, base: int, more: dict[str, str | None]) -> None:
        self._nfkc = base != IDENTITY
        self.rules = (_later_compositions() if self._nfkc else {}) | (_nmt_rules() if base == NMT_NFKC else {}) | more
        self.later = _later_characters() if self._nfkc else {}
        self._longest = max(_LONGEST if self._nfkc else 1, max(map(len, more), default=1))
        self._ascii_seconds = any(len(key) > 1 and key[1] < "\x80" for key in more)
        self._known = Cache(self._match, _KEPT_MATCHES)
        # Printable ASCII stays as it is, unless a file has rules for it.
        self._ascii_stays = not any(key.isascii() and key.isprintable() for key in more)

    def __call__(self, text: str, squeeze: bool) -> str:
        """Return the text with all rules applied. squeeze: whether to remove spaces at the ends and repeated spaces."""
        if self._ascii_stays and text.isascii() and text.isprintable():
            return " ".join(text.split()) if squeeze else text
        parts, after_space = [], squeeze
        for value in self._replaced(text):
            part = value.lstrip(" ") if after_space else value
            if part:
                parts.append(part)
                after_space = squeeze and part[-1] == " "
        whole = "".join(parts)
        return whole.rstrip(" " + SPACE) if squeeze else whole

    def _replaced(self, text: str) -> Iterator[str]:
        position = 0
        while position < len(text):
            # In all rules of the base that match several characters, the second one is not ASCII.
            alone = text[position + 1 : position + 2] < "\x80" and not self._ascii_seconds
            window = text[position : position + (1 if alone else self._longest)]
            replacement, length = self._known[window]
            yield replacement
            position += length

    def _match(self, window: str) -> tuple[str, int]:
        """Return the replacement of the longest match at the window's start, and the characters it replaces."""
        for length in range(len(window), 0, -1):
            value = self.rule(window[:length])
            if value is not None:
                return value, length
        return window[0], 1

    def rule(self, key: str) -> str | None:
        """Return the replacement of exactly these characters; None if they have no rule."""
        if key in self.rules:
            return self.rules[key]
        if not self._nfkc or len(key) > _LONGEST:
            return None
        if len(key) == 1:
            value = self.later.get(key) or unicodedata.normalize("NFKC", key)
            return value if value != key else None
        # A sequence has a rule if it is, character by character, the decomposition of one composed character.
        decomposed = [self.decomposed(c) for c in key]
        if not all(len(part) == 1 for part in decomposed):
            return None
        joined = "".join(decomposed)
        composed = unicodedata.normalize("NFC", joined)
        return composed if len(composed) == 1 and unicodedata.normalize("NFKD", composed) == joined else None

    def decomposed(self, character: str) -> str:
        """Return the compatibility decomposition of one character."""
        return self.later.get(character) or unicodedata.normalize("NFKD", character)


def _nmt_rules() -> dict[str, str | None]:
    """Return the rules of nmt_nfkc beyond NFKC: control characters are removed, invisible ones become spaces."""
    gone = [*range(0x1, 0x9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F]
    spaces = [0x9, 0xA, 0xC, 0xD, 0x61C, 0x1680, 0x200B, 0x200C, 0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]
    return {chr(c): "" for c in gone} | {chr(c): " " for c in spaces} | {"\uff5e": None}


def _later_characters() -> dict[str, str]:
    """Return compatibility characters of Unicode 15 and 16: sentencepiece has rules for them, older Pythons do not."""
    cyrillic = "абвгдежзиклмопрстуфхцчшыэюꚉәіјөүӏабвгдежзиклопсуфхцчшъыґіѕџҫꙑұ"
    outlined = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    characters = {chr(0x1E030 + i): c for i, c in enumerate(cyrillic)}
    return characters | {chr(0x1CCD6 + i): c for i, c in enumerate(outlined)} | {"\ua7f1": "S"}


def _later_compositions() -> dict[str, str]:
    """Return compositions of Unicode 16, for the same reason: sequence of characters -> the composed one."""
    words = _LATER_COMPOSITIONS.split()
    return dict(zip(words[::2], words[1::2]))


_LATER_COMPOSITIONS = """
\U000105d2\u0307 \U000105c9 \U000105da\u0307 \U000105e4
\U00011382\U000113c9 \U00011383 \U00011384\U000113bb \U00011385 \U0001138b\U000113c2 \U0001138e
\U00011390\U000113c9 \U00011391 \U000113c2\U000113b8 \U000113c7 \U000113c2\U000113c2 \U000113c5
\U000113c2\U000113c9 \U000113c8
\U0001611e\U0001611e \U00016121 \U0001611e\U0001611e\U0001611f \U00016126
\U0001611e\U0001611e\U00016120 \U00016128 \U0001611e\U0001611f \U00016123 \U0001611e\U00016120 \U00016125
\U0001611e\U00016129 \U00016122 \U0001611e\U00016129\U0001611f \U00016127 \U00016129\U0001611f \U00016124
\U00016d63\U00016d67 \U00016d69 \U00016d63\U00016d67\U00016d67 \U00016d6a \U00016d67\U00016d67 \U00016d68
"""
"""Todhri; Tulu-Tigalari; Gurung Khema; Kirat Rai."""
