"""Transformer students as ONNX nodes: compression.students.transformer, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from compression.export.onnx_graph import Graph

if TYPE_CHECKING:
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
        summed = graph.node("Add", self._projected(vectors), positions)
        summed = graph.node("Add", summed, graph.node("Gather", graph.matrix("encoder.segments.weight"), segments))
        states = self._norm(summed, "norm")
        mask = graph.node("Less", steps, graph.node("Unsqueeze", lengths, graph.integers(1)))
        mask = graph.node("Unsqueeze", mask, graph.integers(1, 2))
        for number in range(self.encoder.depth):
            states = self._layer(states, mask, number)
        return graph.node("Squeeze", graph.node("Gather", states, graph.integers(0), axis=1), graph.integers(1))

    def _framed(self, sentences: Sequence[tuple[str, str]], batch: str) -> tuple[str, str, str, str]:
        """As `framed`: vectors, segments [batch, time] and lengths; and the numbers of the tokens, int64 [time]."""
        graph = self.graph
        first, separator = (self._special(number, batch) for number in (0, 1))
        parts = [first, *(part for vectors, _ in sentences for part in (vectors, separator))]
        joined = graph.node("Concat", *parts, axis=1)
        one = graph.number(1)
        lengths = one
        for _, length in sentences:
            lengths = graph.node("Add", lengths, graph.node("Add", length, one))
        longest = graph.node("ReduceMax", lengths, keepdims=0)
        steps = graph.node("Range", graph.number(0), longest, one)
        row = graph.node("Unsqueeze", steps, graph.integers(0))
        zeros = graph.node("Mul", graph.node("Unsqueeze", lengths, graph.integers(1)), graph.integers(0))
        indices = graph.node("Add", zeros, row)
        segments = graph.node("Mul", indices, graph.integers(0))
        start = column = one
        for number, (vectors, length) in enumerate(sentences):
            offset = graph.node("Sub", row, graph.node("Unsqueeze", start, graph.integers(-1)))
            within = graph.node("Less", offset, graph.node("Unsqueeze", length, graph.integers(1)))
            end = graph.node("Add", column, self._time(vectors))
            index = graph.node("Where", within, graph.node("Add", column, offset), end)
            reached = graph.node("GreaterOrEqual", offset, graph.integers(0))
            indices = graph.node("Where", reached, index, indices)
            segments = graph.node("Where", reached, graph.integers(number), segments)
            start = graph.node("Add", graph.node("Add", start, length), one)
            column = graph.node("Add", end, one)
        whole = graph.node("Expand", graph.node("Unsqueeze", indices, graph.integers(2)), self._shape_of_width())
        return graph.node("GatherElements", joined, whole, axis=1), segments, lengths, steps

    def _special(self, number: int, batch: str) -> str:
        """Return one of the special tokens, [batch, 1, dim]."""
        vector = self.encoder.marks.weight.dense()[number]
        shape = self.graph.node("Concat", batch, self.graph.integers(1, len(vector)), axis=0)
        return self.graph.node("Expand", self.graph.constant(f"encoder.special_{number}", vector.numpy()), shape)

    def _time(self, vectors: str) -> str:
        """Return the number of tokens of the longest text, int64."""
        return self.graph.node("Squeeze", self.graph.node("Shape", vectors, start=1, end=2), self.graph.integers(0))

    def _shape_of_width(self) -> str:
        return self.graph.integers(1, 1, self.encoder.marks.weight.dense().shape[1])

    def _projected(self, vectors: str) -> str:
        has_projection = hasattr(self.encoder.projection, "weight")
        return self.graph.linear("encoder.projection", vectors) if has_projection else vectors

    def _layer(self, states: str, mask: str, number: int) -> str:
        graph, name = self.graph, f"blocks.{number % len(self.encoder.blocks)}"
        read = self._adapted(self._attend(states, mask, f"{name}.attention"), number, 0)
        states = self._norm(graph.node("Add", states, read), f"{name}.attention_norm")
        fed = graph.linear(f"encoder.{name}.down", self._gelu(graph.linear(f"encoder.{name}.up", states)))
        return self._norm(graph.node("Add", states, self._adapted(fed, number, 1)), f"{name}.output_norm")

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
        graph, name = self.graph, f"adapters.{number}.{index}"
        adapted = graph.linear(f"encoder.{name}.up", self._gelu(graph.linear(f"encoder.{name}.down", states)))
        return graph.node("Add", states, adapted)

    def _gelu(self, x: str) -> str:
        graph = self.graph
        share = graph.node("Add", graph.node("Erf", graph.node("Mul", x, graph.number(0.5**0.5))), graph.number(1.0))
        return graph.node("Mul", graph.node("Mul", x, graph.number(0.5)), share)

    def _norm(self, x: str, name: str) -> str:
        scale, bias = (self.graph.vector(f"encoder.{name}.{own}") for own in ("weight", "bias"))
        epsilon = self.encoder.get_submodule(name).eps
        return self.graph.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)
