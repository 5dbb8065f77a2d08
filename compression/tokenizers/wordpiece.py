"""BERT's word pieces, for students that take the vocabulary of a BERT-type teacher."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.kinds.ragged import EncodedText
from common.store.files import read_json, write_json
from compression.runtime import WordPieces
from compression.tokenizers import TeacherTokenizer

FILE = "wordpieces.json"
UNKNOWN = 0


class WordPieceTokenizer(TeacherTokenizer):
    """A vocabulary of word pieces, and whether text is lower-cased first."""

    word_format = WordPieces.word_format

    def __init__(self, pieces: list[str], lowercase: bool, max_tokens: int) -> None:
        """pieces: in the order of the embedding's rows, the unknown piece first."""
        self.pieces, self.lowercase, self.max_tokens = pieces, lowercase, max_tokens
        digest = hashlib.sha256("\n".join(pieces).encode()).hexdigest()
        self.identity = f"wordpiece {digest} {lowercase} {max_tokens}"
        self._word_pieces = WordPieces(pieces, lowercase)

    @classmethod
    def load(cls, folder: Path, vocab_size: int, max_tokens: int) -> WordPieceTokenizer:
        """Read a saved tokenizer. Raises UserError when it is missing, malformed or not of this size."""
        found = read_json(folder / FILE)
        is_known = isinstance(found, dict) and found.keys() == {"lowercase", "pieces"}
        if not is_known or not all(isinstance(piece, str) for piece in found["pieces"]):
            raise UserError(f"{folder / FILE}: not a vocabulary of word pieces")
        if len(found["pieces"]) != vocab_size:
            raise UserError(f"{folder / FILE}: {len(found['pieces'])} pieces, the student has {vocab_size}")
        return cls(found["pieces"], bool(found["lowercase"]), max_tokens)

    def save(self, folder: Path) -> None:
        """Write the vocabulary into a student's folder."""
        write_json(folder / FILE, {"lowercase": self.lowercase, "pieces": self.pieces})

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding's table."""
        return len(self.pieces)

    def encode(self, sentences: list[str]) -> EncodedText:
        """Return one row per piece, width 1."""
        rows = [self._word_pieces.encode(sentence) for sentence in sentences]
        return EncodedText.from_lists(rows, width=1, empty=(UNKNOWN,), max_tokens=self.max_tokens)

    def cut_at(self, max_tokens: int) -> WordPieceTokenizer:
        """Return the same tokenizer with another length at which text is cut."""
        return WordPieceTokenizer(self.pieces, self.lowercase, max_tokens)

    @property
    def begins_word(self) -> np.ndarray:
        """Rows of pieces that begin a word, bool [rows]: not ##ing, and no punctuation."""
        return np.array([piece[0].isalnum() for piece in self.pieces])

    @property
    def droppable(self) -> np.ndarray:
        """All rows but the unknown piece's, bool [rows]: without its piece, a word has smaller ones or is unknown."""
        return np.arange(len(self.pieces)) != UNKNOWN

    def without(self, rows: Collection[int]) -> WordPieceTokenizer:
        """Return a tokenizer without some pieces; the other rows keep their order."""
        dropped = set(rows)
        kept = [piece for row, piece in enumerate(self.pieces) if row not in dropped]
        return WordPieceTokenizer(kept, self.lowercase, self.max_tokens)
