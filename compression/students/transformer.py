"""Transformer students: several layers, or one that is used again and again (MiniALBERT's recursive student).

Laid out as BERT is (Devlin et al., 2019), so that a teacher's layers can be copied in: normalisation after each sum,
learned positions, GELU. A pair is read as one text, [first] a [separator] b [separator], a single sentence as [first] a
[separator]; the state at the first place goes to the classifier. An embedding narrower than the layers is a factorised
one (ALBERT; Lan et al., 2019, section 3.1): a projection follows it. Settings: configs/students/transformer.yaml and
recursive.yaml.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from compression.runtime import positions_of
from compression.students.layers import Linear, Table
from compression.students.settings import StudentSettings

_NORM_EPS = 1e-12

Sentences = tuple[tuple[torch.Tensor, torch.Tensor], ...]
"""One or two of (vectors [batch, time, dim], lengths int64 [batch])."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """What goes on inside: hidden states [batch, length, hidden], the embeddings' output first, and attention maps
    [batch, heads, length, length], one a layer; lengths: int64 [batch], marks counted."""

    hidden: list[torch.Tensor]
    attention: list[torch.Tensor]
    lengths: torch.Tensor


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017, section 3.2)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (Linear(width, width) for _ in range(4))

    def forward(self, states: torch.Tensor, mask: torch.Tensor, maps: list[torch.Tensor] | None) -> torch.Tensor:
        """states: [batch, time, width], mask: bool [batch, 1, 1, time] -> [batch, time, width].

        maps: where given, the attention map [batch, heads, time, time] is added to it.
        """
        query, key, value = (self._split(layer(states)) for layer in (self.query, self.key, self.value))
        if maps is None:
            read = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        else:
            scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
            maps.append(scores.masked_fill(~mask, float("-inf")).softmax(-1))
            read = maps[-1] @ value
        return self.output(read.transpose(1, 2).flatten(2))

    def _split(self, states: torch.Tensor) -> torch.Tensor:
        """[batch, time, width] -> [batch, heads, time, width of a head]."""
        return states.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Adapter(nn.Module):
    """A bottleneck with a residual connection (MiniALBERT's equation 3; Houlsby et al., 2019)."""

    def __init__(self, width: int, bottleneck: int) -> None:
        super().__init__()
        self.down, self.up = Linear(width, bottleneck), Linear(bottleneck, width)
        # As good as absent at the start: what is adapted is left as it was.
        nn.init.normal_(self.up.weight.dense(), std=1e-3)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[batch, time, width] -> the same."""
        return states + self.up(nn.functional.gelu(self.down(states)))


class Block(nn.Module):
    """A layer's attention and feed-forward parts."""

    def __init__(self, width: int, heads: int, intermediate: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.attention_norm = Attention(width, heads), nn.LayerNorm(width, _NORM_EPS)
        self.up, self.down = Linear(width, intermediate), Linear(intermediate, width)
        self.output_norm = nn.LayerNorm(width, _NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, states: torch.Tensor, mask: torch.Tensor, adapters: nn.ModuleList, maps: list[torch.Tensor] | None
    ) -> torch.Tensor:
        """[batch, time, width] -> the same. adapters: one after attention, one after feed-forward (eq. 4), or none."""
        after_attention, after_feed_forward = adapters or (nn.Identity(), nn.Identity())
        read = after_attention(self.attention(states, mask, maps))
        states = self.attention_norm(states + self.dropout(read))
        made = after_feed_forward(self.down(nn.functional.gelu(self.up(states))))
        return self.output_norm(states + self.dropout(made))


class TransformerEncoder(nn.Module):
    """Embedding sum and layers. `shared`: one block serves all iterations (equation 2)."""

    def __init__(self, settings: StudentSettings, pair: bool, depth: int, shared: bool) -> None:
        super().__init__()
        width, self.depth, self.output_dim = settings.encoder_hidden_dim, depth, settings.encoder_hidden_dim
        narrow = settings.embedding_dim != width
        self.projection = Linear(settings.embedding_dim, width) if narrow else nn.Identity()
        self.marks = Table(2, settings.embedding_dim, std=0.02)
        self.positions = Table(positions_of(settings.max_tokens, pair), width, std=0.02)
        self.segments = Table(2, width, std=0.02)
        self.norm = nn.LayerNorm(width, _NORM_EPS)
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.ModuleList(
            Block(width, settings.heads, settings.intermediate_dim, settings.dropout)
            for _ in range(1 if shared else depth)
        )
        self.adapters = nn.ModuleList(
            nn.ModuleList(Adapter(width, settings.adapters) for _ in range(2 if settings.adapters else 0))
            for _ in range(depth)
        )

    def forward(self, *sentences: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Of one or two sentences the state at the first place, [batch, width]."""
        return self._last_states(sentences)[:, 0]

    def states(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Of a single sentence the state at each token, [batch, time, width]."""
        return self._last_states(((vectors, lengths),))[:, 1:-1]

    def _last_states(self, sentences: Sentences) -> torch.Tensor:
        """The last layer's states of the whole text, marks among them."""
        states, mask, _ = self._start(sentences)
        for number in range(self.depth):
            states = self._block(number)(states, mask, self.adapters[number], None)
        return states

    def trace(self, *sentences: tuple[torch.Tensor, torch.Tensor]) -> Trace:
        """The same, with all that goes on inside."""
        states, mask, lengths = self._start(sentences)
        hidden, maps = [states], []
        for number in range(self.depth):
            hidden.append(self._block(number)(hidden[-1], mask, self.adapters[number], maps))
        return Trace(hidden, maps, lengths)

    def _block(self, number: int) -> nn.Module:
        return self.blocks[number % len(self.blocks)]

    def _start(self, sentences: Sentences) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """States that the first layer reads, its mask [batch, 1, 1, time], and lengths."""
        vectors, segments, lengths = framed(sentences, self.marks.weight.dense())
        places = torch.arange(vectors.shape[1], device=vectors.device)
        summed = self.projection(vectors) + self.positions(places) + self.segments(segments)
        return self.dropout(self.norm(summed)), (places < lengths[:, None])[:, None, None], lengths


def framed(sentences: Sentences, marks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sentences as one text with marks around them: vectors [batch, time, dim], segments and lengths (int64).

    marks: float32 [2, dim], the first one and the separator. Past a text's end stands what is not to be looked at.
    """
    batch = len(sentences[0][1])
    first, separator = (mark.expand(batch, 1, -1) for mark in marks)
    # Sentences side by side, each followed by a separator: for each place of the text, where its vector stands there.
    side_by_side = torch.cat([first, *(part for vectors, _ in sentences for part in (vectors, separator))], 1)
    lengths = 1 + sum(length + 1 for _, length in sentences)
    steps = torch.arange(int(lengths.max()), device=marks.device).expand(batch, -1)
    places, segments = steps.clone(), torch.zeros_like(steps)
    start, column = torch.ones_like(lengths), 1
    for number, (vectors, length) in enumerate(sentences):
        inside = steps >= start[:, None]
        offset = steps - start[:, None]
        found = torch.where(offset < length[:, None], column + offset, column + vectors.shape[1])
        places = torch.where(inside, found, places)
        segments = torch.where(inside, number, segments)
        start, column = start + length + 1, column + vectors.shape[1] + 1
    return side_by_side.gather(1, places[..., None].expand(-1, -1, side_by_side.shape[2])), segments, lengths


def make_transformer(settings: StudentSettings, pair: bool) -> TransformerEncoder:
    """Layers each with weights of their own."""
    return TransformerEncoder(settings, pair, settings.layers, shared=False)


def make_recursive(settings: StudentSettings, pair: bool) -> TransformerEncoder:
    """One layer, used --iterations times."""
    return TransformerEncoder(settings, pair, settings.iterations, shared=True)
