"""ONNX nodes for pairs whose tokens attend to the other text, as in compression.students.pairs, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compression.export.onnx_graph import FLOAT, Graph

Text = tuple[str, str]
"""Ids [batch, time, width] or tokens [batch, time, numbers], and lengths [batch]."""


class AlignmentNodes:
    """Writes the alignment of two texts into a graph."""

    def __init__(self, graph: Graph, texts: Sequence[Text]) -> None:
        """texts: the ids of both texts, and their lengths."""
        self.graph, self._ids = graph, [ids for ids, _ in texts]
        self._masks = [self._mask(*text) for text in texts]

    def shared(self) -> list[str]:
        """Return for each text, float32 [batch, time], 1 where the other text has the token, else 0."""
        graph, (first, second), masks = self.graph, self._ids, self._masks
        equal = graph.node("Equal", graph.unsqueeze(first, 2), graph.unsqueeze(second, 1))
        same = graph.node("ReduceMin", graph.node("Cast", equal, to=FLOAT), axes=[3], keepdims=0)
        tokens = graph.node("And", graph.unsqueeze(masks[0], 2), graph.unsqueeze(masks[1], 1))
        same = graph.node("Where", tokens, same, graph.number(0.0))
        return [graph.node("ReduceMax", same, axes=[axis], keepdims=0) for axis in (2, 1)]

    def compared(self, tokens: Sequence[str]) -> list[str]:
        """Return the result of the comparison for each text, [batch, time, width]. tokens: [batch, time, numbers]."""
        graph, (first, second) = self.graph, tokens
        dots = graph.node("MatMul", first, graph.node("Transpose", second, perm=[0, 2, 1]))
        scores = graph.node("Mul", dots, graph.vector("encoder.alignment.scale"))
        back = graph.node("Transpose", scores, perm=[0, 2, 1])
        (mask, other), low = self._masks, graph.number(-math.inf)
        compared = []
        for a, b, mask_of_b, dots in ((first, second, other, scores), (second, first, mask, back)):
            shares = graph.node("Softmax", graph.node("Where", graph.unsqueeze(mask_of_b, 1), dots, low), axis=-1)
            read = graph.node("MatMul", shares, b)
            difference, product = graph.node("Sub", a, read), graph.node("Mul", a, read)
            joined = graph.node("Concat", a, read, difference, product, axis=2)
            compared.append(graph.node("Relu", graph.linear("encoder.alignment.fusion", joined)))
        return compared

    def pooled(self, states: Sequence[str]) -> list[str]:
        """Return the maximum over each text's tokens, [batch, width]. states: of each text, [batch, time, width]."""
        graph, low = self.graph, self.graph.number(-math.inf)
        texts = zip(self._masks, states, strict=True)
        masked = [graph.node("Where", graph.unsqueeze(mask, 2), text, low) for mask, text in texts]
        return [graph.node("ReduceMax", text, axes=[1], keepdims=0) for text in masked]

    def _mask(self, ids: str, lengths: str) -> str:
        """Return the mask of a text, true at tokens, bool [batch, time]."""
        steps = self.graph.node("Range", self.graph.number(0), self.graph.length(ids, 1), self.graph.number(1))
        return self.graph.node("Less", steps, self.graph.unsqueeze(lengths, 1))
