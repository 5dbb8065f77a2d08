"""Byte pairs: sentencepiece BPE models with bpemb's preprocessing (Heinzerling and Strube, 2018).

Pieces of type UNUSED (vocabulary pruning) are split again and have no vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.kinds.ragged import EncodedText
from common.reading import regular_file
from compression.tokenizers import PieceTokenizer
from compression.tokenizers.bpe_model import mark_unused, read_model


class BpeTokenizer(PieceTokenizer):
    """Lower-cased text, digits as zeros, in the pieces of a sentencepiece model.

    kept: the model's pieces that have a row of the embedding's table, int32 [rows]; pieces: the same as text.
    """

    file = "bpe.model"

    def __init__(self, model: Path | bytes, max_tokens: int) -> None:
        """model: a file, or its bytes. Raises UserError when it is missing or not a BPE model that can be packed."""
        self.model_bytes = model if isinstance(model, bytes) else regular_file(model).read_bytes()
        try:
            self.model = read_model(self.model_bytes)
        except UserError as error:
            raise UserError(f"{'byte pairs' if isinstance(model, bytes) else model}: {error}") from None
        self.kept, self.pieces, self.max_tokens = self.model.kept, self.model.pieces, max_tokens
        self.identity = f"bpe {hashlib.sha256(self.model_bytes).hexdigest()}"
        self.runtime = self.model.byte_pairs()

    @classmethod
    def read(cls, file: Path, max_tokens: int) -> BpeTokenizer:
        return cls(file, max_tokens)

    def save(self, folder: Path) -> None:
        (folder / self.file).write_bytes(self.model_bytes)

    def encode(self, sentences: list[str]) -> EncodedText:
        """Return one row per piece, width 1. A single character without a row gets the unknown piece's."""
        encoded = super().encode(sentences)
        return EncodedText(self.model.rows[encoded.ids], encoded.offsets)

    @property
    def droppable(self) -> np.ndarray:
        """Rows whose piece can be split into smaller ones or become unknown: all but control symbols. bool [rows]."""
        return ~self.model.special

    def without(self, rows: Collection[int]) -> BpeTokenizer:
        """Return a tokenizer without some rows, whose pieces it splits into smaller ones; other rows keep their order.

        These pieces stay in the file as UNUSED: larger pieces are merged from nearly all of them.
        """
        return BpeTokenizer(mark_unused(self.model_bytes, self.kept[list(rows)].tolist()), self.max_tokens)
