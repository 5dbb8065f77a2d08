"""Teachers and masked language models: the interfaces that every backend implements.

This module imports no large library: settings and --help read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from common.progress import Advance, nothing

if TYPE_CHECKING:
    import numpy as np
    import torch

    from common.data.split import Split

FAIRSEQ_ARCHS = ("roberta_base", "roberta_large")


def is_fairseq(arch: str) -> bool:
    """Return whether an --arch is a RoBERTa for fairseq: an official one, a folder of fairseq's, or a teacher of ours.

    Everything else is for Hugging Face.
    """
    files = ("model.pt", "architecture.json", "fairseq/architecture.json")
    return arch in FAIRSEQ_ARCHS or any((Path(arch) / file).exists() for file in files)


class Teacher(Protocol):
    """A fine-tuned encoder, or several."""

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return float32 [n, outputs], for tokens [n, words, outputs], in the split's order.

        `advance` is called with the number of rows done since its last call.
        """
        ...

    def states(self, split: Split) -> States:
        """Return hidden states and attention maps of the few rows in `split`, as one padded batch."""
        ...


@dataclasses.dataclass(frozen=True)
class States:
    """Hidden states and attention maps of one padded batch; the sentences of a pair are one sequence.

    hidden: one float32 [batch, length, dim] a layer, the embeddings' output first;
    attention: one float32 [batch, heads, length, length] a layer; lengths: int64 [batch], tokens that are not padding;
    logits: the head's output, where it was asked for: of a classifier [batch, outputs], of a masked language model
    [batch, length, pieces].
    """

    hidden: list[torch.Tensor]
    attention: list[torch.Tensor]
    lengths: torch.Tensor
    logits: torch.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A sentence as a masked language model reads it, special tokens included.

    ids: piece ids; spans: for each piece the characters [start, end) of the sentence it covers without white space
    around it, (0, 0) for special tokens.
    """

    ids: list[int]
    spans: list[tuple[int, int]]


class MaskedLM(Protocol):
    """A model that predicts masked words."""

    mask_id: int
    """Id of the mask."""
    max_pieces: int
    """Longest sequence the model reads, special tokens included."""

    def encode(self, sentences: Sequence[str]) -> list[Pieces]:
        """Return the pieces of each sentence, cut at max_pieces."""
        ...

    def words(self) -> list[str]:
        """Return, by piece id, the whole word the piece is, or "" for special tokens and parts of words."""
        ...

    def predict(self, ids: np.ndarray, lengths: np.ndarray, places: np.ndarray) -> torch.Tensor:
        """Return the logits of every piece at one position of each row, float32 [batch, pieces].

        ids: int64 [batch, longest], anything where padded; lengths, places: int64 [batch].
        Only these positions go through the output layer.
        """
        ...
