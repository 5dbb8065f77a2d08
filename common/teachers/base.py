"""Teachers: the interface that all of them implement."""

import dataclasses
from typing import Literal, Protocol

import numpy as np
import torch

from common.data.split import Split
from common.progress import Advance, nothing

SCORING_BATCH = 64
Attention = Literal["scores", "probabilities"]
"""Form in which attention is read: scores before the softmax, or probabilities after it (attention maps)."""


@dataclasses.dataclass(frozen=True)
class States:
    """Hidden states and attention of one padded batch; the sentences of a pair are one sequence.

    hidden: one float32 [batch, length, dim] per layer, the embeddings' output first;
    attention: one float32 [batch, heads, length, length] per layer: attention maps or, if requested, scores (undefined
    at padding); lengths: int64 [batch], number of tokens that are not padding;
    logits: the head's output, if requested: [batch, outputs] for a classifier, [batch, length, pieces] for a masked
    language model.
    """

    hidden: list[torch.Tensor]
    attention: list[torch.Tensor]
    lengths: torch.Tensor
    logits: torch.Tensor | None = None


class Teacher(Protocol):
    """A model that labels the rows of a task: a fine-tuned encoder, a linear model, or several of them."""

    def logits(self, split: Split, advance: Advance = nothing) -> np.ndarray:
        """Return float32 [n, outputs], for tokens [n, words, outputs], for spans [n, 1 + words, 2], in the rows' order.

        `advance` is called with the number of rows done since its last call.
        """

    def states(self, split: Split) -> States:
        """Return hidden states and attention maps of the few rows in `split`, as one padded batch."""
