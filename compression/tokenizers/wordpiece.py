"""The teacher's own word pieces, for students that start from a teacher's layers or are aligned with them.

A student takes the pieces that text can have, in the order of the teacher's vocabulary, the unknown one first.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from common.data.ragged import EncodedText
from common.errors import UserError
from common.store.files import read_json, write_json
from compression.runtime import WordPieces
from compression.tokenizers import Tokenizer

FILE = "wordpieces.json"
UNKNOWN = 0


class WordPieceTokenizer(Tokenizer):
    """A vocabulary of word pieces, and whether text is lower-cased first."""

    after_word = WordPieces.after_word

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
        """Return one row a piece, width 1."""
        rows = [self._word_pieces.encode(sentence) for sentence in sentences]
        return EncodedText.from_lists(rows, width=1, empty=(UNKNOWN,), max_tokens=self.max_tokens)

    @property
    def droppable(self) -> np.ndarray:
        """All rows but the unknown piece's, bool [rows]: a word without its piece has smaller ones, or is unknown."""
        return np.arange(len(self.pieces)) != UNKNOWN

    def without(self, rows: Collection[int]) -> WordPieceTokenizer:
        """Return a tokenizer without some pieces; the other rows keep their order."""
        dropped = set(rows)
        kept = [piece for row, piece in enumerate(self.pieces) if row not in dropped]
        return WordPieceTokenizer(kept, self.lowercase, self.max_tokens)


@dataclasses.dataclass(frozen=True)
class TeacherVocabulary:
    """The pieces of a teacher that text can have, the unknown one first, and the teacher's own rows.

    rows: int64 [pieces], the teacher's row of each piece; special_tokens: its rows of [CLS] and [SEP]; mask: its row of
    [MASK], None where it has none.
    """

    pieces: list[str]
    rows: np.ndarray
    special_tokens: tuple[int, int]
    mask: int | None
    lowercase: bool

    def tokenizer(self, max_tokens: int) -> WordPieceTokenizer:
        """Return a student's tokenizer of the same pieces."""
        return WordPieceTokenizer(self.pieces, self.lowercase, max_tokens)


def teacher_vocabulary(folder: Path) -> TeacherVocabulary:
    """Return the vocabulary of the teacher in a model folder. Raises UserError where it has no word pieces."""
    file = folder / "huggingface" / "tokenizer.json"
    if not file.exists():
        raise UserError(
            f"--embedding-type wordpiece: {folder.name} has no word pieces: it is not a Hugging Face teacher"
        )
    return vocabulary_of(read_json(file), folder.name)


def vocabulary_of(tokenizer: dict[str, Any], name: str) -> TeacherVocabulary:
    """Return the vocabulary in a teacher's tokenizer.json. Raises UserError for a tokenizer that is not WordPiece."""
    model, normalizer = tokenizer.get("model") or {}, tokenizer.get("normalizer") or {}
    if model.get("type") != "WordPiece" or normalizer.get("type") != "BertNormalizer":
        raise UserError(f"--embedding-type wordpiece: {name} splits words by {model.get('type')}, not WordPiece")
    unknown, rows = model["unk_token"], model["vocab"]
    not_text = {unknown, *(token["content"] for token in tokenizer.get("added_tokens", ()))}
    pieces = [unknown, *sorted(rows.keys() - not_text, key=rows.__getitem__)]
    return TeacherVocabulary(
        pieces=pieces,
        rows=np.array([rows[piece] for piece in pieces], np.int64),
        special_tokens=(rows["[CLS]"], rows["[SEP]"]),
        mask=rows.get("[MASK]"),
        lowercase=bool(normalizer.get("lowercase")),
    )
