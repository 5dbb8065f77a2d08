"""Byte-pair embeddings through the bpemb library (Heinzerling and Strube, 2018).

Vectors come from BPEmb's own files where the user has them, else from a sentencepiece BPE model and word2vec vectors
trained on the task's own text and kept in BPEmb's file format. Pieces of type UNUSED (vocabulary pruning) are split
again by sentencepiece and have no vector.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from common.data.ragged import EncodedText
from common.errors import UserError
from compression.students.layers import Table

if TYPE_CHECKING:
    from compression.students.settings import StudentSettings

MODEL_FILE = "bpe.model"
UNKNOWN = 0


class BpeTokenizer:
    """A sentencepiece BPE model read by bpemb, with bpemb's preprocessing (lower case, digits as zeros)."""

    after_word = ""

    def __init__(self, model_file: Path, max_tokens: int) -> None:
        """Raises UserError when the file is missing or no sentencepiece model."""
        from bpemb import BPEmb

        if not model_file.exists():
            raise UserError(f"{model_file}: no such file")
        try:
            # Segmentation only: the student's own table holds the vectors. emb_file is not read then.
            self._bpe = BPEmb(vs=None, dim=None, model_file=model_file, emb_file=model_file, segmentation_only=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(f"{model_file}: not a sentencepiece model ({error})") from error
        self.model_bytes = model_file.read_bytes()
        self.max_tokens = max_tokens
        pieces = self._bpe.spm
        self.kept = np.array([i for i in range(pieces.get_piece_size()) if not pieces.is_unused(i)], np.int32)
        """Pieces that have a row of the embedding's table, int32 [rows], in the order of the rows."""
        self._rows = np.full(pieces.get_piece_size(), UNKNOWN, np.int32)
        self._rows[self.kept] = np.arange(len(self.kept))

    @classmethod
    def load(cls, settings: StudentSettings, folder: Path) -> BpeTokenizer:
        """Read the model kept in a student's folder."""
        tokenizer = cls(folder / MODEL_FILE, settings.max_tokens)
        if tokenizer.vocab_size != settings.vocab_size:
            raise UserError(
                f"{folder / MODEL_FILE}: {tokenizer.vocab_size} pieces, the student has {settings.vocab_size}"
            )
        return tokenizer

    def save(self, folder: Path) -> None:
        """Copy the model into a student's folder."""
        (folder / MODEL_FILE).write_bytes(self.model_bytes)

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding's table: pieces in the model that are not UNUSED."""
        return len(self.kept)

    @property
    def pieces(self) -> list[str]:
        """The piece of each row, as sentencepiece writes it."""
        return self._bpe.spm.id_to_piece(self.kept.tolist())

    @property
    def identity(self) -> str:
        """The model's bytes say it all."""
        return f"bpe {hashlib.sha256(self.model_bytes).hexdigest()} {self.max_tokens}"

    def encode(self, sentences: list[str]) -> EncodedText:
        """One row number a piece, width 1. A lone character without a row gets the unknown piece's."""
        pieces = self._bpe.spm.encode([self._bpe.preprocess(text) for text in sentences])
        encoded = EncodedText.from_lists(pieces, width=1, empty=(UNKNOWN,), max_tokens=self.max_tokens)
        return EncodedText(self._rows[encoded.ids], encoded.offsets)

    @property
    def droppable(self) -> np.ndarray:
        """Rows whose piece can be split into smaller ones or read as unknown: not control signs. bool [rows]."""
        pieces = self._bpe.spm
        special = (pieces.is_unknown, pieces.is_control, pieces.is_byte)
        return np.array([not any(is_special(piece) for is_special in special) for piece in self.kept.tolist()])

    def without(self, rows: Collection[int]) -> BpeTokenizer:
        """A tokenizer that splits some rows' pieces into smaller ones; the rows that are left keep their order.

        Their pieces stay in the file as UNUSED: nearly all of them are what larger pieces are merged from.
        """
        from compression.tokenizers.pieces import mark_unused

        model = mark_unused(self.model_bytes, set(self.kept[list(rows)].tolist()))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / MODEL_FILE
            path.write_bytes(model)
            return BpeTokenizer(path, self.max_tokens)


class BpeEmbedding(nn.Module):
    """A table of one vector a piece."""

    def __init__(self, settings: StudentSettings) -> None:
        super().__init__()
        self.table = Table(settings.vocab_size, settings.embedding_dim)

    def start_from(self, vectors: np.ndarray) -> None:
        """Copy pre-trained vectors, float32 [vocab_size, dim], into the table."""
        self.table.weight.value.data.copy_(torch.from_numpy(vectors.copy()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: int64 [batch, time, 1] -> [batch, time, dim]."""
        return self.table(ids[..., 0])
