"""ONNX nodes for transformer students, as in compression.students.transformer, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compression.export.onnx_graph import Graph
from compression.runtime.shapes import LAYER_PARTS
from compression.students.transformer import TransformerEncoder


class TransformerNodes:
    """Writes an encoder's nodes into a graph."""

    def __init__(self, graph: Graph, encoder: TransformerEncoder) -> None:
        self.graph, self.encoder = graph, encoder

    def encode(self, sentences: Sequence[tuple[str, str]], batch: str) -> str:
        """Return the first token's state, [batch, width].

        sentences: one or two of (vectors [batch, time, dim], lengths [batch]); batch: the batch's size, int64 [1].
        """
        graph = self.graph
        vectors, segments, lengths, steps = self._framed(sentences, batch)
        positions = graph.node("Gather", graph.matrix("encoder.positions.weight"), steps)
        if hasattr(self.encoder.projection, "weight"):
            vectors = graph.linear("encoder.projection", vectors)
        summed = graph.node("Add", vectors, positions)
        if self.encoder.size.segments:
            summed = graph.node("Add", summed, graph.node("Gather", graph.matrix("encoder.segments.weight"), segments))
        states = self._norm(summed, "norm")
        mask = graph.unsqueeze(graph.node("Less", steps, graph.unsqueeze(lengths, 1)), 1, 2)
        for number in range(self.encoder.depth):
            states = self._layer(states, mask, number)
        return graph.squeeze(graph.node("Gather", states, graph.integers(0), axis=1), 1)

    def _framed(self, sentences: Sequence[tuple[str, str]], batch: str) -> tuple[str, str, str, str]:
        """Return vectors, segments [batch, time] and lengths as `framed`, and the tokens' indexes, int64 [time]."""
        graph = self.graph
        first, separator = (self._special_token(number, batch) for number in (0, 1))
        separated = (part for vectors, _ in sentences for part in (vectors, separator))
        joined = graph.node("Concat", first, *separated, axis=1)
        one = graph.number(1)
        lengths = one
        for _, length in sentences:
            lengths = graph.node("Add", lengths, graph.node("Add", length, one))
        longest = graph.node("ReduceMax", lengths, keepdims=0)
        steps = graph.node("Range", graph.number(0), longest, one)
        row = graph.unsqueeze(steps, 0)
        zeros = graph.node("Mul", graph.unsqueeze(lengths, 1), graph.integers(0))
        indices = graph.node("Add", zeros, row)
        segments = graph.node("Mul", indices, graph.integers(0))
        start = column = one
        for number, (vectors, length) in enumerate(sentences):
            offset = graph.node("Sub", row, graph.unsqueeze(start, -1))
            within = graph.node("Less", offset, graph.unsqueeze(length, 1))
            end = graph.node("Add", column, graph.length(vectors, 1))
            index = graph.node("Where", within, graph.node("Add", column, offset), end)
            reached = graph.node("GreaterOrEqual", offset, graph.integers(0))
            indices = graph.node("Where", reached, index, indices)
            segments = graph.node("Where", reached, graph.integers(number), segments)
            start = graph.node("Add", graph.node("Add", start, length), one)
            column = graph.node("Add", end, one)
        dim = self.encoder.marks.weight.dense().shape[1]
        whole = graph.node("Expand", graph.unsqueeze(indices, 2), graph.integers(1, 1, dim))
        return graph.node("GatherElements", joined, whole, axis=1), segments, lengths, steps

    def _special_token(self, number: int, batch: str) -> str:
        """Return the vector of one of the special tokens, [batch, 1, dim]."""
        vector = self.encoder.marks.weight.dense()[number]
        shape = self.graph.node("Concat", batch, self.graph.integers(1, len(vector)), axis=0)
        return self.graph.node("Expand", self.graph.constant(f"encoder.special_{number}", vector.numpy()), shape)

    def _layer(self, states: str, mask: str, number: int) -> str:
        graph = self.graph
        first, second = (f"blocks.{self.encoder.size.owner(part, number)}" for part in LAYER_PARTS)
        read = self._adapted(self._attend(states, mask, f"{first}.attention"), number, 0)
        states = self._norm(graph.node("Add", states, read), f"{first}.attention_norm")
        fed = self._adapted(self._feed_forward(states, second), number, 1)
        return self._norm(graph.node("Add", states, fed), f"{second}.output_norm")

    def _attend(self, states: str, mask: str, name: str) -> str:
        graph, attention = self.graph, self.encoder.get_submodule(name)
        width = len(attention.query.bias)
        split = graph.integers(0, 0, attention.heads, width // attention.heads)

        def by_head(layer: str, perm: list[int]) -> str:
            mapped = graph.linear(f"encoder.{name}.{layer}", states)
            return graph.node("Transpose", graph.node("Reshape", mapped, split), perm=perm)

        query, value = by_head("query", [0, 2, 1, 3]), by_head("value", [0, 2, 1, 3])
        key = by_head("key", [0, 2, 3, 1])
        scores = graph.node("Mul", graph.node("MatMul", query, key), graph.number((width // attention.heads) ** -0.5))
        maps = graph.node("Softmax", graph.node("Where", mask, scores, graph.number(-math.inf)), axis=-1)
        read = graph.node("Transpose", graph.node("MatMul", maps, value), perm=[0, 2, 1, 3])
        return graph.linear(f"encoder.{name}.output", graph.node("Reshape", read, graph.integers(0, 0, width)))

    def _adapted(self, states: str, number: int, index: int) -> str:
        if not len(self.encoder.adapters[number]):
            return states
        return self.graph.node("Add", states, self._feed_forward(states, f"adapters.{number}.{index}", "down", "up"))

    def _feed_forward(self, x: str, name: str, first: str = "up", second: str = "down") -> str:
        """Apply two linear layers with GELU between them."""
        graph = self.graph
        x = graph.linear(f"encoder.{name}.{first}", x)
        share = graph.node("Add", graph.node("Erf", graph.node("Mul", x, graph.number(0.5**0.5))), graph.number(1.0))
        gelu = graph.node("Mul", graph.node("Mul", x, graph.number(0.5)), share)
        return graph.linear(f"encoder.{name}.{second}", gelu)

    def _norm(self, x: str, name: str) -> str:
        scale, bias = (self.graph.vector(f"encoder.{name}.{kind}") for kind in ("weight", "bias"))
        epsilon = self.encoder.get_submodule(name).eps
        return self.graph.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)
