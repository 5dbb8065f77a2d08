"""Byte-level pairs, the pieces of RoBERTa-type teachers, exactly as the teacher's tokenizer gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.store.files import read_json, write_json
from compression.runtime import BYTE_LEVEL, DUMMY_PREFIX, UNKNOWN, UNUSED, USED, ByteLevelPairs, Merges
from compression.runtime.tokenizers.bytelevel import BYTES
from compression.tokenizers import TeacherTokenizer, are_texts

UNKNOWN_PIECE = "<unk>"
_SAME = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _SAME]
LETTERS = {**{byte: chr(byte) for byte in _SAME}, **{byte: chr(256 + i) for i, byte in enumerate(_OTHERS)}}
"""GPT-2's character for each byte, as vocabulary files have them; a space is Ġ."""
SPACE = LETTERS[ord(" ")]
_TO_BYTES = {ord(letter): chr(byte) for byte, letter in LETTERS.items()}
"""GPT-2's characters to the runtime's: U+0000 to U+00FF, one per byte."""


class ByteLevelTokenizer(TeacherTokenizer):
    """The bytes of text, merged in the order of a vocabulary.

    Row 0 of the embedding is for pieces without a row of their own; then come the rows of bytes and of merges that have
    one. pieces: by row, in GPT-2's characters.
    """

    file = "bytepairs.json"

    def __init__(self, merges: Sequence[str], unused: Collection[str], prefix: bool, max_tokens: int) -> None:
        """merges: pieces of two bytes or more in their order, in GPT-2's characters; unused: pieces without a row.

        prefix: whether a space is put before a text. Raises UserError if a piece is repeated, or is not of these
        characters.
        """
        self.merges, self.unused, self.prefix, self.max_tokens = list(merges), frozenset(unused), prefix, max_tokens
        symbols = [*(LETTERS[ord(byte)] for byte in BYTES), *self.merges]
        known = set(symbols)
        if len(known) != len(symbols) or not self.unused <= known:
            raise UserError("byte-level pairs: a piece is repeated, or unused and not in the vocabulary")
        if not all(ord(letter) in _TO_BYTES for letter in set("".join(symbols))) or "" in known:
            raise UserError("byte-level pairs: a piece is not of GPT-2's characters for bytes")
        self.pieces = [UNKNOWN_PIECE, *(symbol for symbol in symbols if symbol not in self.unused)]
        content = hashlib.sha256("\n".join([*self.merges, "", *sorted(self.unused)]).encode()).hexdigest()
        self.identity = f"byte-level {content} {prefix}"
        self.symbols = [symbol.translate(_TO_BYTES) for symbol in symbols]
        # Without a row, a byte is unknown, and a merge is split again.
        without_row = [UNKNOWN] * len(BYTES) + [UNUSED] * len(self.merges)
        self.states = [
            state if symbol in self.unused else USED for symbol, state in zip(symbols, without_row, strict=True)
        ]
        self.flags = BYTE_LEVEL | DUMMY_PREFIX * prefix
        self.runtime = ByteLevelPairs(self.symbols, self.states, self.flags)

    @classmethod
    def read(cls, file: Path, max_tokens: int) -> ByteLevelTokenizer:
        saved = read_json(file)
        lists = [saved.get("merges"), saved.get("unused")] if isinstance(saved, dict) else [None]
        if not all(map(are_texts, lists)):
            raise UserError(f"{file}: not a vocabulary of byte-level pairs")
        try:
            return cls(*lists, bool(saved.get("prefix")), max_tokens)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None

    def save(self, folder: Path) -> None:
        write_json(folder / self.file, {"prefix": self.prefix, "merges": self.merges, "unused": sorted(self.unused)})

    @property
    def begins_word(self) -> np.ndarray:
        """Rows of pieces that begin a word after a space, bool [rows]."""
        return np.array([piece[:1] == SPACE and piece[1:2].isalnum() for piece in self.pieces])

    def without(self, rows: Collection[int]) -> ByteLevelTokenizer:
        """Return a tokenizer without some pieces; the other rows keep their order.

        Merges that no piece with a row is built from are left out. A word without dropped pieces is still encoded in
        the same way: all its merges stay, and they still come first.
        """
        dropped = {self.pieces[row] for row in rows} | self.unused
        parts = merge_parts(tuple(self.merges))
        needed = {merge for merge in self.merges if merge not in dropped}
        for merge in reversed(self.merges):
            if merge in needed:
                needed.update(parts.get(merge, ()))
        merges = [merge for merge in self.merges if merge in needed]
        bytes_ = set(LETTERS.values())
        return ByteLevelTokenizer(merges, dropped & (needed | bytes_), self.prefix, self.max_tokens)


@lru_cache(maxsize=4)
def merge_parts(merges: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Return the two symbols that each piece is merged from when encoded by itself, without pieces never reached.

    merges: in their order, in GPT-2's characters.
    """
    symbols = [*LETTERS.values(), *merges]
    states = [USED] * len(LETTERS) + [UNUSED] * len(merges)
    pairs = Merges(len(LETTERS), symbols, states)
    return {merge: parts for merge in merges if (parts := pairs.last_merge(merge))}
