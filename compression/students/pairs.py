"""Pairs of texts: attention between their tokens, and the comparison of their vectors.

Alignment as in RE2 (Yang et al., 2019, sections 2.2 and 2.3) and ESIM (Chen et al., 2017, section 3.2): each token
reads the tokens of the other text that are like it, and a layer compares what it has read with the token itself. ESIM's
inference composition (section 3.3): a second encoder reads what was compared.
"""

from __future__ import annotations

import torch
from torch import nn

from compression.runtime import EncoderSize
from compression.students.batch import Batch
from compression.students.encoders import padding_mask
from compression.students.layers import Linear

Text = tuple[torch.Tensor, torch.Tensor]
"""Tokens [batch, time, width], and lengths int64 [batch]."""


class PairAlignment(nn.Module):
    """Compares each token with what it attends to in the other text, and takes the maximum over a text's tokens.

    With `composition`, an encoder, that reads what the comparison gives, and the maximum is over its states.
    """

    def __init__(self, size: EncoderSize, composition: nn.Module | None = None) -> None:
        super().__init__()
        width = size.state + size.dim
        self.scale = nn.Parameter(torch.tensor([width**-0.5]))
        self.fusion = Linear(4 * width, size.compared)
        self.composition = composition

    def forward(self, first: Text, second: Text) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a vector for each text, [batch, width of a state]. A token is its state and its embedding."""
        scores = self._scores(first, second)
        u, v = self._compared(first, second, scores), self._compared(second, first, scores.transpose(1, 2))
        if self.composition is not None:
            return self.composition(u, first[1]), self.composition(v, second[1])
        return u.amax(1), v.amax(1)  # nothing is below 0, which padding is left with

    def states(self, text: Text, other: Text) -> torch.Tensor:
        """Return a state for each token of a text, [batch, time, width of a state]."""
        compared = self._compared(text, other, self._scores(text, other))
        return compared if self.composition is None else self.composition.states(compared, text[1])

    def _scores(self, text: Text, other: Text) -> torch.Tensor:
        """Return how much each token attends to each one of the other text, [batch, time, time of other]."""
        return self.scale * (text[0] @ other[0].transpose(1, 2))

    def _compared(self, text: Text, other: Text, scores: torch.Tensor) -> torch.Tensor:
        """scores: [batch, time of text, time of other] -> [batch, time of text, width], 0 where the text is padded."""
        outside = ~padding_mask(*other).transpose(1, 2)
        read = scores.masked_fill(outside, float("-inf")).softmax(2) @ other[0]
        # Of real tokens alone: a third of a batch may be padding.
        tokens = padding_mask(*text)[..., 0].flatten().nonzero()[:, 0]
        own, read = (each.flatten(0, 1).index_select(0, tokens) for each in (text[0], read))
        compared = self._fused(own, read).relu()
        batch, time = scores.shape[:2]
        padded = compared.new_zeros(batch * time, compared.shape[1]).index_copy(0, tokens, compared)
        return padded.unflatten(0, (batch, time))

    def _fused(self, own: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        """Return fusion([own; read; own - read; own * read]), [tokens, width of a token] each -> [tokens, width].

        The difference needs no product of its own: a step of training takes a tenth less time.
        """
        of_own, of_read, of_difference, of_product = self.fusion.weight.dense().chunk(4, 1)
        fused = nn.functional.linear(own, of_own + of_difference, self.fusion.bias)
        fused = torch.addmm(fused, read, (of_read - of_difference).T)
        return torch.addmm(fused, own * read, of_product.T)


def shared_tokens(first: Batch, second: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each text of the pairs which of its tokens the other text has, float32 [batch, time], 1 or 0."""
    same = (first.ids[:, :, None] == second.ids[:, None]).all(3)  # [batch, time of first, time of second]
    same &= padding_mask(first.ids, first.lengths) & padding_mask(second.ids, second.lengths).transpose(1, 2)
    return same.any(2).float(), same.any(1).float()


def compare(u: torch.Tensor, v: torch.Tensor, symmetric: bool = False) -> torch.Tensor:
    """Return [u; v; |u - v|; u * v] (equation 6.4), or what does not depend on the order: [u + v; |u - v|; u * v].

    u, v: [batch, dim] -> [batch, 4 dim], symmetric [batch, 3 dim].
    """
    return torch.cat([*([u + v] if symmetric else [u, v]), (u - v).abs(), u * v], 1)
