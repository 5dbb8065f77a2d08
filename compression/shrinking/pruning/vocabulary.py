"""Vocabulary pruning: rows of the embedding that training text uses fewer than N times.

Byte pairs lose their row; sentencepiece then splits such a piece into smaller ones, and those that are left are used as
often as before or oftener: one count is enough. Hashes and characters have no vocabulary: their rows stay in place and
become zero, which costs next to nothing when packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from common.data.data import load_split
from common.errors import UserError
from compression.augmentation.preprocess import distillation_split
from compression.runtime import HASHES
from compression.shrinking.pruning.cut import first_factor, rows_of
from compression.students.embeddings import HashEmbedding
from compression.students.student import Student
from compression.tokenizers import Tokenizer
from compression.tokenizers.bpe import BpeTokenizer
from compression.tokenizers.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from compression.shrinking.context import Work

_TABLE = "embedding.table.weight"


def prune_vocabulary(
    student: Student, tokenizer: Tokenizer, sentences: Sequence[str], least: int
) -> tuple[Tokenizer, dict[str, dict[str, int]]]:
    """Prune rows in place. Returns the tokenizer that goes with the student now, and by matrix rows used and before.

    Raises UserError when no row would be left.
    """
    if isinstance(tokenizer, BpeTokenizer | WordPieceTokenizer):
        return _drop_pieces(student, tokenizer, list(sentences), least)
    reached = {}
    for name, uses in row_uses(student, tokenizer, sentences).items():
        rare = torch.from_numpy(uses < least)
        if rare.all():
            raise UserError(_nothing_left(least))
        with torch.no_grad():
            first_factor(student.get_submodule(name)).value[rare] = 0.0
        reached[name] = {"rows": int((~rare).sum()), "before": len(rare)}
    return tokenizer, reached


def _drop_pieces(
    student: Student, tokenizer: BpeTokenizer | WordPieceTokenizer, sentences: list[str], least: int
) -> tuple[BpeTokenizer | WordPieceTokenizer, dict[str, dict[str, int]]]:
    (uses,) = row_uses(student, tokenizer, sentences).values()
    rare = (uses < least) & tokenizer.droppable
    if rare.sum() == tokenizer.droppable.sum():
        raise UserError(_nothing_left(least))
    rows = np.flatnonzero(~rare)
    tokenizer = tokenizer.without(np.flatnonzero(rare).tolist())
    table = student.embedding.table
    table.weight = rows_of(table.weight, torch.from_numpy(rows))
    return tokenizer, {_TABLE: {"rows": len(rows), "before": len(rare)}}


def row_uses(student: Student, tokenizer: Tokenizer, sentences: Sequence[str]) -> dict[str, np.ndarray]:
    """Name of each matrix of the embedding -> how often text reads each of its rows, int64 [rows]."""
    embedding, ids = student.embedding, tokenizer.encode(list(sentences)).ids
    rows = len(first_factor(embedding.table.weight).value)
    if not isinstance(embedding, HashEmbedding):
        return {_TABLE: np.bincount(ids[:, 0], minlength=rows)}
    scalars = ids % embedding.vocab_size + embedding.sector.numpy()
    return {
        "embedding.importance.weight": np.bincount(scalars.ravel(), minlength=HASHES * embedding.vocab_size),
        _TABLE: np.bincount((ids // embedding.vocab_size).ravel(), minlength=rows),
    }


def training_sentences(work: Work) -> list[str]:
    """Sentences of train and, where a student has learned from augmented rows, those of --augmented."""
    settings = work.settings
    splits = [load_split(settings.paths, work.task, "train")]
    if work.parent.augmented and not settings.only_original_data:
        splits.append(distillation_split(settings.paths, work.task, settings.augmented))
    return [sentence for split in splits for column in split.sentences() for sentence in column]


def _nothing_left(least: int) -> str:
    return f"--prune-vocabulary {least}: no row of the embedding is used that often; nothing would be left"
