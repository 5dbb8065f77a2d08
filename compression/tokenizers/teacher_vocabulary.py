"""The vocabulary of a teacher that splits words by WordPiece, and its students' tokenizer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.store.files import read_json
from compression.tokenizers.wordpiece import WordPieceTokenizer


@dataclasses.dataclass(frozen=True)
class TeacherVocabulary:
    """The pieces that text can have, in the teacher's order but the unknown one first, and the teacher's own rows.

    rows: int64 [pieces], the teacher's row of each piece; marks: its rows of the special tokens [CLS] and [SEP]; mask:
    its row of [MASK], None where it has none.
    """

    pieces: list[str]
    rows: np.ndarray
    marks: tuple[int, int]
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
        marks=(rows["[CLS]"], rows["[SEP]"]),
        mask=rows.get("[MASK]"),
        lowercase=bool(normalizer.get("lowercase")),
    )
