"""Vocabulary pruning: rows of the embedding that training text uses fewer than N times.

Byte pairs and word pieces lose their row. The tokenizer then splits such a piece into smaller ones, and the remaining
pieces are used at least as often as before (for byte-level pairs, in words that keep all of theirs), so one count is
enough. Hashes and characters have no vocabulary: their rows stay in place and become zero, which costs next to nothing
when packed.
"""

from __future__ import annotations

import numpy as np
import torch

from common.errors import UserError
from compression.runtime import HASHES
from compression.shrinking.step import CompressionContext
from compression.students.embeddings import HashEmbedding
from compression.students.scoring import encode_split
from compression.students.student import Student
from compression.students.weights import Dense, Matrix
from compression.tokenizers import PieceTokenizer, Tokenizer

_TABLE = "embedding.table.weight"


def prune_vocabulary(
    student: Student, tokenizer: Tokenizer, ids: np.ndarray, least: int
) -> tuple[Tokenizer, dict[str, dict[str, int]]]:
    """Prune rows in place. Returns the new tokenizer, and each matrix's number of rows in use and before.

    ids: as `training_ids` returns them.
    Raises UserError if no row would be left.
    """
    rows: dict[str, dict[str, int]] = {}
    for name, uses in row_uses(student, ids).items():
        removable = tokenizer.droppable if isinstance(tokenizer, PieceTokenizer) else np.ones(len(uses), bool)
        rare = (uses < least) & removable
        if rare.sum() == removable.sum():
            raise UserError(
                f"--prune-vocabulary {least}: no row of the embedding is used that often; nothing would be left"
            )
        rows[name] = {"rows": int((~rare).sum()), "before": len(rare)}
        if isinstance(tokenizer, PieceTokenizer):
            tokenizer = tokenizer.without(np.flatnonzero(rare).tolist())
            table = student.embedding.table
            table.weight = table.weight.take_rows(torch.from_numpy(np.flatnonzero(~rare)))
        else:
            with torch.no_grad():
                _row_factor(student.get_submodule(name)).value[torch.from_numpy(rare)] = 0.0
    return tokenizer, rows


def row_uses(student: Student, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return how often text reads each row of the embedding's matrices: name -> int64 [rows].

    ids: as `training_ids` returns them.
    """
    embedding = student.embedding
    rows = len(_row_factor(embedding.table.weight).value)
    if not isinstance(embedding, HashEmbedding):
        return {_TABLE: np.bincount(ids[:, 0], minlength=rows)}
    scalars = ids % embedding.vocab_size + embedding.sector.numpy()
    return {
        "embedding.importance.weight": np.bincount(scalars.ravel(), minlength=HASHES * embedding.vocab_size),
        _TABLE: np.bincount((ids // embedding.vocab_size).ravel(), minlength=rows),
    }


def training_ids(context: CompressionContext) -> np.ndarray:
    """Return the token ids, int32 [tokens, width], that a student reads in its training text.

    This text is train and, if the student learned from augmented rows, those of --augmented; of both, the drawn rows.
    """
    rows = encode_split(context.tokenizer, context.text(context.parent.augmented))
    return np.concatenate([column.ids for column in (rows.text, rows.second) if column is not None])


def _row_factor(matrix: Matrix) -> Dense:
    return getattr(matrix, "left", matrix)  # of a product, the factor that has its rows
