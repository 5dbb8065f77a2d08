"""The vocabulary of word pieces in a packed file: sorted, each told by what it has in common with the one before."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from common.errors import UserError
from compression.packing.head import HeadWriter
from compression.runtime import LOWERCASE, MOST_PIECE_LENGTH, MOST_WORD_PIECES
from compression.students.settings import StudentSettings
from compression.tokenizers.wordpiece import UNKNOWN, WordPieceTokenizer


@dataclasses.dataclass(frozen=True)
class PackedWordPieces:
    """Word pieces ready to be written. pieces: sorted, without the unknown one; rows: for each row of the packed table,
    its row in the student's."""

    lowercase: bool
    pieces: tuple[str, ...]
    rows: np.ndarray

    def write(self, head: HeadWriter) -> None:
        """As runtime.read_word_pieces reads it."""
        head.byte(LOWERCASE * self.lowercase)
        head.number(len(self.pieces))
        before = ""
        for piece in self.pieces:
            common = next((i for i, (a, b) in enumerate(zip(before, piece, strict=False)) if a != b), len(before))
            head.number(common)
            head.text(piece[common:])
            before = piece


def pack_word_pieces(folder: Path, settings: StudentSettings) -> PackedWordPieces:
    """Those of a student's folder. Raises UserError when they cannot be packed."""
    tokenizer = WordPieceTokenizer.load(folder, settings.vocab_size, settings.max_tokens)
    row_of = {piece: row for row, piece in enumerate(tokenizer.pieces) if row != UNKNOWN}
    pieces = tuple(sorted(row_of))
    if len(pieces) != len(tokenizer.pieces) - 1 or len(pieces) > MOST_WORD_PIECES:
        raise UserError(f"cannot be packed: a word piece comes twice, or there are more than {MOST_WORD_PIECES:,}")
    if any(not 0 < len(piece) <= MOST_PIECE_LENGTH for piece in pieces):
        raise UserError("cannot be packed: a word piece is empty or overlong")
    return PackedWordPieces(tokenizer.lowercase, pieces, np.array([UNKNOWN, *map(row_of.__getitem__, pieces)]))
