"""Text normalisation and comparison of texts, the same for teachers, students, augmentation and leak checks."""

import functools
import re
import unicodedata

# The only import from compression: texts and words are the same in data and in packed students.
from compression.runtime.words import split_words, stands_alone, tidy

normalise = tidy
"""Return text in NFC, with single spaces and stripped ends: readers of data and of packed files share this function."""

_LETTERS = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[\U0001f000-\U0010ffff]")
_INVISIBLE = re.compile(
    r"[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_TYPED_DASH = re.compile(r"(?<= )--+(?= )|(?<=[^\W\d_])--+(?=[^\W\d_])")
_DIFFERENT = ("<super>", "<sub>", "<circle>", "<fraction>", "<square>")
"""Kinds of compatibility characters, such as ², that differ in meaning from the characters they stand for."""


@functools.lru_cache(1 << 15)  # preparing a task's data needs the key of a text several times
def text_key(text: str) -> str:
    """Return words and signs, joined by spaces: equal for two texts exactly if they are the same.

    Texts are the same if they differ only in case, white space, Unicode's normal form, invisible characters, or the
    typographic form of quotes, apostrophes, dashes, dots and full-width characters.
    """
    if not (text.isascii() and text.isprintable()) or "`" in text:
        text = unicodedata.normalize("NFC", "".join(map(_typed, text)).casefold())
    return " ".join(split_words(_TYPED_DASH.sub("-", text) if "--" in text else text))


@functools.cache
def _typed(character: str) -> str:
    """Return what a keyboard has for a character of typeset text; other characters stay as they are."""
    if _INVISIBLE.match(character):
        return ""
    if character in "‘’‚‛‹›´`′":
        return "'"
    if character in "“”„‟«»″":
        return '"'
    if unicodedata.category(character) == "Pd" or character == "−":
        return "-"
    form = unicodedata.decomposition(character).split(" ")[0]
    return character if form in _DIFFERENT else unicodedata.normalize("NFKC", character)


def near_key(text: str) -> str:
    """Return runs of letters and digits, and emoji, joined by spaces: equal for texts that differ in marks or signs.

    Texts with the same key may differ in meaning, such as "good :)" and "good :(".
    """
    return " ".join(_LETTERS.findall(text.lower()))


def words_in(key: str) -> float:
    """Return the number of words, without signs, of a text's key; letters of scripts without spaces count half."""
    if key.isascii():
        return sum(word[0].isalnum() for word in key.split())
    return sum(0.5 if stands_alone(word[0]) else word[0].isalnum() for word in key.split())
