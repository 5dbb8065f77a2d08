"""The vocabulary of word pieces in a packed file: sorted, each without the letters it shares with the one before."""

from __future__ import annotations

import dataclasses

import numpy as np

from common.errors import UserError
from compression.packing.head import HeadWriter
from compression.runtime import LOWERCASE, MOST_PIECE_LENGTH, MOST_WORD_PIECES
from compression.tokenizers.wordpiece import UNKNOWN, WordPieceTokenizer


@dataclasses.dataclass(frozen=True)
class PackedWordPieces:
    """Word pieces ready to be written. pieces: sorted, without the unknown one; rows: for each row of the packed table,
    its row in the student's."""

    lowercase: bool
    pieces: tuple[str, ...]
    rows: np.ndarray

    def write(self, head: HeadWriter) -> None:
        """Write it as runtime.read_word_pieces reads it."""
        head.byte(LOWERCASE * self.lowercase)
        head.number(len(self.pieces))
        before = ""
        for piece in self.pieces:
            common = next((i for i, (a, b) in enumerate(zip(before, piece, strict=False)) if a != b), len(before))
            head.number(common)
            head.text(piece[common:])
            before = piece


def pack_word_pieces(tokenizer: WordPieceTokenizer) -> PackedWordPieces:
    """Return a tokenizer's word pieces. Raises UserError when they cannot be packed."""
    row_of = {piece: row for row, piece in enumerate(tokenizer.pieces) if row != UNKNOWN}
    pieces = tuple(sorted(row_of))
    if len(pieces) != len(tokenizer.pieces) - 1 or len(pieces) > MOST_WORD_PIECES:
        raise UserError(f"cannot be packed: a word piece is repeated, or there are more than {MOST_WORD_PIECES:,}")
    if any(not 0 < len(piece) <= MOST_PIECE_LENGTH for piece in pieces):
        raise UserError("cannot be packed: a word piece is empty or overlong")
    return PackedWordPieces(tokenizer.lowercase, pieces, np.array([UNKNOWN, *map(row_of.__getitem__, pieces)]))
