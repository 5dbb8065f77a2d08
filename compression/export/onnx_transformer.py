"""Transformer students as ONNX nodes: compression.students.transformer, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from compression.export.onnx_graph import Graph

if TYPE_CHECKING:
    from compression.students.layers import Linear
    from compression.students.transformer import TransformerEncoder


class TransformerNodes:
    """Writes an encoder's nodes into a graph."""

    def __init__(self, graph: Graph, encoder: TransformerEncoder) -> None:
        self.graph, self.encoder = graph, encoder

    def encode(self, sentences: Sequence[tuple[str, str]], batch: str) -> str:
        """The state at the first place, [batch, width].

        sentences: one or two of (vectors [batch, time, dim], lengths [batch]); batch: the batch's size, int64 [1].
        """
        graph = self.graph
        vectors, segments, lengths, steps = self._framed(sentences, batch)
        positions = graph.node("Gather", self._table("positions"), steps)
        summed = graph.node("Add", self._projected(vectors), positions)
        summed = graph.node("Add", summed, graph.node("Gather", self._table("segments"), segments))
        states = self._norm(summed, "norm")
        inside = graph.node("Less", steps, graph.node("Unsqueeze", lengths, graph.integers(1)))
        mask = graph.node("Unsqueeze", inside, graph.integers(1, 2))
        for number in range(self.encoder.depth):
            states = self._layer(states, mask, number)
        return graph.node("Squeeze", graph.node("Gather", states, graph.integers(0), axis=1), graph.integers(1))

    def _framed(self, sentences: Sequence[tuple[str, str]], batch: str) -> tuple[str, str, str, str]:
        """As `framed`: vectors, segments [batch, time] and lengths of the whole, and its places, int64 [time]."""
        graph = self.graph
        first, separator = (self._mark(number, batch) for number in (0, 1))
        parts = [first, *(part for vectors, _ in sentences for part in (vectors, separator))]
        side_by_side = graph.node("Concat", *parts, axis=1)
        one = graph.constant("number_1", np.array(1, np.int64))
        lengths = one
        for _, length in sentences:
            lengths = graph.node("Add", lengths, graph.node("Add", length, one))
        longest = graph.node("ReduceMax", lengths, keepdims=0)
        steps = graph.node("Range", graph.constant("number_0", np.array(0, np.int64)), longest, one)
        row = graph.node("Unsqueeze", steps, graph.integers(0))
        zeros = graph.node("Mul", graph.node("Unsqueeze", lengths, graph.integers(1)), graph.integers(0))
        places = graph.node("Add", zeros, row)
        segments = graph.node("Mul", places, graph.integers(0))
        start = column = one
        for number, (vectors, length) in enumerate(sentences):
            offset = graph.node("Sub", row, graph.node("Unsqueeze", start, graph.integers(-1)))
            inside = graph.node("Less", offset, graph.node("Unsqueeze", length, graph.integers(1)))
            end = graph.node("Add", column, self._time(vectors))
            found = graph.node("Where", inside, graph.node("Add", column, offset), end)
            reached = graph.node("GreaterOrEqual", offset, graph.integers(0))
            places = graph.node("Where", reached, found, places)
            segments = graph.node("Where", reached, graph.integers(number), segments)
            start = graph.node("Add", graph.node("Add", start, length), one)
            column = graph.node("Add", end, one)
        whole = graph.node("Expand", graph.node("Unsqueeze", places, graph.integers(2)), self._shape_of_width())
        return graph.node("GatherElements", side_by_side, whole, axis=1), segments, lengths, steps

    def _mark(self, number: int, batch: str) -> str:
        """One of the marks, [batch, 1, dim]."""
        mark = self.encoder.marks.weight.dense()[number]
        shape = self.graph.node("Concat", batch, self.graph.integers(1, len(mark)), axis=0)
        return self.graph.node("Expand", self.graph.constant(f"encoder.mark_{number}", mark.numpy()), shape)

    def _time(self, vectors: str) -> str:
        """Tokens of the longest text, int64."""
        return self.graph.node("Squeeze", self.graph.node("Shape", vectors, start=1, end=2), self.graph.integers(0))

    def _shape_of_width(self) -> str:
        return self.graph.integers(1, 1, self.encoder.marks.weight.dense().shape[1])

    def _projected(self, vectors: str) -> str:
        has_projection = hasattr(self.encoder.projection, "weight")
        return self._linear("projection", vectors) if has_projection else vectors

    def _layer(self, states: str, mask: str, number: int) -> str:
        graph, name = self.graph, f"blocks.{number % len(self.encoder.blocks)}"
        read = self._adapted(self._attend(states, mask, f"{name}.attention"), number, 0)
        states = self._norm(graph.node("Add", states, read), f"{name}.attention_norm")
        made = self._linear(f"{name}.down", self._gelu(self._linear(f"{name}.up", states)))
        return self._norm(graph.node("Add", states, self._adapted(made, number, 1)), f"{name}.output_norm")

    def _attend(self, states: str, mask: str, name: str) -> str:
        graph, attention = self.graph, self.encoder.get_submodule(name)
        width = len(attention.query.bias)
        split = graph.integers(0, 0, attention.heads, width // attention.heads)
        query, key, value = (
            graph.node("Transpose", graph.node("Reshape", self._linear(f"{name}.{part}", states), split), perm=perm)
            for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        scores = graph.node("Mul", graph.node("MatMul", query, key), self._float((width // attention.heads) ** -0.5))
        maps = graph.node("Softmax", graph.node("Where", mask, scores, self._float(-np.inf)), axis=-1)
        read = graph.node("Transpose", graph.node("MatMul", maps, value), perm=[0, 2, 1, 3])
        return self._linear(f"{name}.output", graph.node("Reshape", read, graph.integers(0, 0, width)))

    def _adapted(self, states: str, number: int, place: int) -> str:
        if not len(self.encoder.adapters[number]):
            return states
        name = f"adapters.{number}.{place}"
        made = self._linear(f"{name}.up", self._gelu(self._linear(f"{name}.down", states)))
        return self.graph.node("Add", states, made)

    def _gelu(self, x: str) -> str:
        graph = self.graph
        share = graph.node("Add", graph.node("Erf", graph.node("Mul", x, self._float(0.5**0.5))), self._float(1.0))
        return graph.node("Mul", graph.node("Mul", x, self._float(0.5)), share)

    def _float(self, value: float) -> str:
        return self.graph.constant(f"float_{value}", np.array(value, np.float32))

    def _linear(self, name: str, x: str) -> str:
        layer: Linear = self.encoder.get_submodule(name)
        weight = self.graph.constant(f"encoder.{name}.weight", layer.weight.dense().numpy().T)
        bias = self.graph.constant(f"encoder.{name}.bias", layer.bias.numpy())
        return self.graph.node("Add", self.graph.node("MatMul", x, weight), bias)

    def _norm(self, x: str, name: str) -> str:
        norm = self.encoder.get_submodule(name)
        scale, bias = (self.graph.constant(f"encoder.{name}.{k}", getattr(norm, k).numpy()) for k in ("weight", "bias"))
        return self.graph.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=norm.eps)

    def _table(self, name: str) -> str:
        table = self.encoder.get_submodule(name).weight.dense().numpy()
        return self.graph.constant(f"encoder.{name}.weight", table)
