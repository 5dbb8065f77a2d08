"""Characters: 32 letters and signs, and one id for all others (section 6.1.5 of the thesis)."""

from __future__ import annotations

import re
import unicodedata

ALPHABET = " abcdefghijklmnopqrstuvwxyz'.,!?"
"""Characters with ids of their own, from 1 on; all others have id 0."""
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_IDS = bytes(ALPHABET.find(chr(code)) + 1 for code in range(256))


class Characters:
    """Lower-cased characters without accents."""

    word_format = "{} "
    """Format of words that are encoded one by one."""

    def encode(self, text: str) -> bytes:
        """Return one id per character, one byte each."""
        text = text.lower().replace("\u2019", "'")
        if not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
            text = _NOT_ASCII.sub("\0", text)
        return text.encode().translate(_IDS)
