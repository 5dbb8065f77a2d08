"""BERT's word pieces, for students that take the vocabulary of a BERT-type teacher."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.store.files import read_json, write_json
from compression.runtime import WordPieces
from compression.tokenizers import TeacherTokenizer, are_texts


class WordPieceTokenizer(TeacherTokenizer):
    """A vocabulary of word pieces, and whether text is lower-cased first."""

    file = "wordpieces.json"

    def __init__(self, pieces: list[str], lowercase: bool, max_tokens: int) -> None:
        """pieces: in the order of the embedding's rows, the unknown piece first."""
        self.pieces, self.lowercase, self.max_tokens = pieces, lowercase, max_tokens
        digest = hashlib.sha256("\n".join(pieces).encode()).hexdigest()
        self.identity = f"wordpiece {digest} {lowercase}"
        self.runtime = WordPieces(pieces, lowercase)

    @classmethod
    def read(cls, file: Path, max_tokens: int) -> WordPieceTokenizer:
        saved = read_json(file)
        is_known = isinstance(saved, dict) and saved.keys() == {"lowercase", "pieces"}
        if not is_known or not are_texts(saved["pieces"]):
            raise UserError(f"{file}: not a vocabulary of word pieces")
        return cls(saved["pieces"], bool(saved["lowercase"]), max_tokens)

    def save(self, folder: Path) -> None:
        write_json(folder / self.file, {"lowercase": self.lowercase, "pieces": self.pieces})

    @property
    def begins_word(self) -> np.ndarray:
        """Rows of pieces that begin a word, bool [rows]: not ##ing, and no punctuation."""
        return np.array([piece[0].isalnum() for piece in self.pieces])

    def without(self, rows: Collection[int]) -> WordPieceTokenizer:
        dropped = set(rows)
        kept = [piece for row, piece in enumerate(self.pieces) if row not in dropped]
        return WordPieceTokenizer(kept, self.lowercase, self.max_tokens)
