"""Pairs of texts: attention between their tokens, and the comparison of their vectors.

Alignment as in RE2 (Yang et al., 2019, sections 2.2 and 2.3) and ESIM (Chen et al., 2017, section 3.2): each token
attends to similar tokens of the other text, and a layer compares the vector it attends to with the token itself. In
ESIM's inference composition (section 3.3), a second encoder reads the comparison's results.
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
    """Compares each token with the vector it attends to in the other text and takes the maximum over a text's tokens.

    If `composition`, an encoder, is given, it reads the results, and the maximum is taken over its states.
    """

    def __init__(self, size: EncoderSize, composition: nn.Module | None = None) -> None:
        super().__init__()
        width = size.state + size.dim
        self.scale = nn.Parameter(torch.tensor([width**-0.5]))
        self.fusion = Linear(4 * width, size.compared)
        self.composition = composition

    def forward(self, first: Text, second: Text, by_token: bool = False) -> tuple[torch.Tensor, ...]:
        """Return a vector for each text, [batch, width of a state]. A token is its state and its embedding.

        With by_token, return instead a state for each token of the first text alone, [batch, time, width of a state].
        This is an argument, not a second method, so that module hooks run (compression/shrinking/pruning/units.py).
        """
        scores = self.scale * (first[0] @ second[0].transpose(1, 2))  # [batch, time of first, time of second]
        u = self._compared(first, second, scores)
        if by_token:
            return (u if self.composition is None else self.composition.states(u, first[1]),)
        v = self._compared(second, first, scores.transpose(1, 2))
        if self.composition is not None:
            return self.composition(u, first[1]), self.composition(v, second[1])
        return u.amax(1), v.amax(1)  # padding is 0, and no value is negative

    def _compared(self, text: Text, other: Text, scores: torch.Tensor) -> torch.Tensor:
        """scores: [batch, time of text, time of other] -> [batch, time of text, width], 0 where the text is padded."""
        outside = ~padding_mask(*other).transpose(1, 2)
        read = scores.masked_fill(outside, float("-inf")).softmax(2) @ other[0]
        # Only real tokens are compared: a third of a batch may be padding.
        tokens = padding_mask(*text)[..., 0].flatten().nonzero()[:, 0]
        kept, read = (states.flatten(0, 1).index_select(0, tokens) for states in (text[0], read))
        compared = self._fused(kept, read).relu()
        batch, time = scores.shape[:2]
        padded = compared.new_zeros(batch * time, compared.shape[1]).index_copy(0, tokens, compared)
        return padded.unflatten(0, (batch, time))

    def _fused(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return fusion([a; b; a - b; a * b]), [tokens, width of a token] each -> [tokens, width].

        The difference's weights are added to the others: with one product less, a training step takes 10 % less time.
        """
        if self.fusion.inputs:  # rounded inputs: the factors below would be rounded one by one
            return self.fusion(torch.cat([a, b, a - b, a * b], 1))
        of_a, of_b, of_difference, of_product = self.fusion.weight.dense().chunk(4, 1)
        fused = nn.functional.linear(a, of_a + of_difference, self.fusion.bias)
        fused = torch.addmm(fused, b, (of_b - of_difference).T)
        return torch.addmm(fused, a * b, of_product.T)


def shared_tokens(first: Batch, second: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each text of the pairs, float32 [batch, time], 1 where the other text has the token, else 0."""
    same = (first.ids[:, :, None] == second.ids[:, None]).all(3)  # [batch, time of first, time of second]
    same &= padding_mask(first.ids, first.lengths) & padding_mask(second.ids, second.lengths).transpose(1, 2)
    return same.any(2).float(), same.any(1).float()


def compare(u: torch.Tensor, v: torch.Tensor, symmetric: bool = False) -> torch.Tensor:
    """Return [u; v; |u - v|; u * v] (equation 6.4), or if symmetric, [u + v; |u - v|; u * v].

    u, v: [batch, dim] -> [batch, 4 dim], or [batch, 3 dim] if symmetric.
    """
    return torch.cat([*([u + v] if symmetric else [u, v]), (u - v).abs(), u * v], 1)
