"""Transformer students: several layers, or one that is used several times (MiniALBERT's recursive student).

Laid out as BERT is (Devlin et al., 2019), so that a teacher's layers can be copied in: normalisation after each sum,
learned positions, GELU. A pair is read as one text, [first] a [separator] b [separator], a single sentence as [first] a
[separator]; the first token's state goes to the classifier. An embedding narrower than the layers is a factorised
one (ALBERT; Lan et al., 2019, section 3.1): a projection follows it. Settings: configs/students/transformer.yaml and
recursive.yaml.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import nn

from compression.runtime import EncoderSize
from compression.runtime.shapes import LAYER_PARTS
from compression.students.layers import Linear, Table
from compression.students.spec import StudentSpec

_NORM_EPS = 1e-12

Sentences = tuple[tuple[torch.Tensor, ...], ...]
"""One or two of (vectors [batch, time, dim], lengths int64 [batch]); for bags, with counts float32 [batch, time]."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """Hidden states [batch, length, hidden], of the embeddings and of each layer; attention maps and the scores before
    their softmax, one of each per layer, [batch, heads, length, length], arbitrary at padding; lengths: int64 [batch],
    special tokens included."""

    hidden: list[torch.Tensor]
    attention: list[torch.Tensor]
    scores: list[torch.Tensor]
    lengths: torch.Tensor


Attended = list[tuple[torch.Tensor, torch.Tensor]]
"""Attention scores and maps, one pair per layer."""


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017, section 3.2)."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.query, self.key, self.value = (Linear(size.hidden, size.attention) for _ in range(3))
        self.output = Linear(size.attention, size.hidden)

    def forward(self, states: torch.Tensor, mask: torch.Tensor, attended: Attended | None) -> torch.Tensor:
        """states: [batch, time, width], mask: bool [batch, 1, 1, time] -> [batch, time, width].

        attended: if given, the scores and attention map [batch, heads, time, time] are appended to it.
        """
        query, key, value = (self._split(layer(states)) for layer in (self.query, self.key, self.value))
        # On CPUs PyTorch 2.13's fused attention takes ten times as long for the gradients of bfloat16.
        if attended is None and query.dtype == torch.float32:
            read = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        else:
            scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
            probabilities = scores.masked_fill(~mask, float("-inf")).softmax(-1, dtype=torch.float32)
            if attended is not None:
                attended.append((scores, probabilities))
            read = probabilities @ value
        return self.output(read.transpose(1, 2).flatten(2))

    def _split(self, states: torch.Tensor) -> torch.Tensor:
        # [batch, time, width] -> [batch, heads, time, width of a head]
        return states.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Adapter(nn.Module):
    """A bottleneck with a residual connection (MiniALBERT's equation 3; Houlsby et al., 2019)."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down, self.up = Linear(width, bottleneck), Linear(bottleneck, width)
        # At the start, the adapter is nearly the identity.
        nn.init.normal_(self.up.weight.dense(), std=1e-3)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[batch, time, width] -> the same."""
        return states + self.up(nn.functional.gelu(self.down(states)))


class Block(nn.Module):
    """A layer's attention and feed-forward parts, each with its norm and optionally an adapter (equation 4)."""

    def __init__(self, size: EncoderSize, dropout: float, parts: Sequence[str]) -> None:
        """parts: those with weights in this block; a part that all layers share belongs to the first block."""
        super().__init__()
        width, intermediate = size.hidden, size.intermediate
        if "attention" in parts:
            self.attention, self.attention_norm = Attention(size), nn.LayerNorm(width, _NORM_EPS)
        self.has_units = "feed-forward" in parts
        if self.has_units:
            self.up, self.down = Linear(width, intermediate), Linear(intermediate, width)
            self.output_norm = nn.LayerNorm(width, _NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def attend(
        self, states: torch.Tensor, mask: torch.Tensor, adapter: nn.Module, attended: Attended | None
    ) -> torch.Tensor:
        """Apply the attention part: [batch, time, width] -> the same."""
        read = adapter(self.attention(states, mask, attended))
        return self.attention_norm(states + self.dropout(read))

    def feed_forward(self, states: torch.Tensor, adapter: nn.Module) -> torch.Tensor:
        """Apply the feed-forward part: [batch, time, width] -> the same."""
        fed = adapter(self.down(nn.functional.gelu(self.up(states))))
        return self.output_norm(states + self.dropout(fed))


class TransformerEncoder(nn.Module):
    """Embedding sum and layers. A recursive student's one block serves all iterations (equation 2); layers that share
    their attention or feed-forward part (ALBERT, section 3.1) use the first one's."""

    def __init__(self, spec: StudentSpec) -> None:
        super().__init__()
        size, dropout = spec.encoder, spec.settings.dropout
        width, self.depth, self.size = size.hidden, size.depth, size
        self.projection = Linear(size.dim, width) if size.dim != width else nn.Identity()
        self.marks = Table(2, size.dim, std=0.02)  # the special tokens, first and separator; a name in weights files
        self.positions = Table(size.positions, width, std=0.02)
        self.segments = Table(2, width, std=0.02) if size.segments else None
        self.norm = nn.LayerNorm(width, _NORM_EPS)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(size, dropout, parts) for number in range(size.depth) if (parts := size.own_parts(number))
        )
        self.adapters = nn.ModuleList(
            nn.ModuleList(Adapter(width, size.adapters) for _ in range(2 if size.adapters else 0))
            for _ in range(size.depth)
        )

    def forward(self, *sentences: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the states of one or two sentences read as one text, [batch, time, width], special tokens included."""
        return self.trace(*sentences, attention=False).hidden[-1]

    def trace(self, *sentences: tuple[torch.Tensor, torch.Tensor], attention: bool = True) -> Trace:
        """Return all hidden states and, with `attention`, attention maps and scores, which takes longer."""
        vectors, segments, lengths = framed(sentences, self.marks.weight.dense())
        steps = torch.arange(vectors.shape[1], device=vectors.device)
        mask = (steps < lengths[:, None])[:, None, None]  # [batch, 1, 1, time]
        summed = self.projection(vectors) + self.positions(steps)
        if self.segments is not None:
            summed = summed + self.segments(segments)
        hidden = [self.dropout(self.norm(summed))]
        attended: Attended | None = [] if attention else None
        for number in range(self.depth):
            first, second = (self.blocks[self.size.owner(part, number)] for part in LAYER_PARTS)
            adapters = self.adapters[number] or (nn.Identity(), nn.Identity())
            states = first.attend(hidden[-1], mask, adapters[0], attended)
            hidden.append(second.feed_forward(states, adapters[1]))
        scores, maps = ([pair[i] for pair in attended or ()] for i in range(2))
        return Trace(hidden, maps, scores, lengths)


def framed(sentences: Sentences, special: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return sentences as one text with special tokens around them: vectors [batch, time, dim], segments and lengths.

    special: float32 [2, dim], the first token and the separator. Vectors past a text's end must not be read.
    """
    batch = len(sentences[0][1])
    first, separator = (vector.expand(batch, 1, -1) for vector in special)
    # Padded sentences in a row, each followed by a separator: the tokens of the text are gathered from them.
    joined = torch.cat([first, *(part for vectors, _ in sentences for part in (vectors, separator))], 1)
    lengths = 1 + sum(length + 1 for _, length in sentences)
    steps = torch.arange(int(lengths.max()), device=special.device).expand(batch, -1)
    indices, segments = steps.clone(), torch.zeros_like(steps)
    start, column = torch.ones_like(lengths), 1
    for number, (vectors, length) in enumerate(sentences):
        reached = steps >= start[:, None]
        offset = steps - start[:, None]
        index = torch.where(offset < length[:, None], column + offset, column + vectors.shape[1])
        indices = torch.where(reached, index, indices)
        segments = torch.where(reached, number, segments)
        start, column = start + length + 1, column + vectors.shape[1] + 1
    return joined.gather(1, indices[..., None].expand(-1, -1, joined.shape[2])), segments, lengths
