"""The encoder of transformers: layers of their own, or one layer used several times."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compression.runtime.shapes import EncoderSize

FIRST, SEPARATOR = -2, -1
"""Ids of the special tokens in front of a text and after each of its sentences."""


class Transformer:
    """Layers of self-attention and feed-forward maps, the state at the first token; a pair is one text."""

    batch_size = 64
    largest_state = np.float32(1e12)

    def __init__(self, weights: dict[str, np.ndarray], size: EncoderSize) -> None:
        """weights: by the names of `encoder_shapes`."""
        self._weights, self._size, self._sentences = weights, size, 1 + size.pair

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, hidden]. ids, lengths: of single texts, or of both sentences of each pair in a row."""
        result = np.empty((len(lengths) // self._sentences, self._size.hidden), np.float32)
        for batch, states in self._batches(table, ids, lengths):
            result[batch] = states[:, 0]
        return result

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, hidden], of single texts only."""
        starts = np.cumsum(lengths) - lengths
        result = np.empty((len(ids), self._size.hidden), np.float32)
        for batch, states in self._batches(table, ids, lengths):
            steps = np.arange(states.shape[1] - 2)
            mask = steps < lengths[batch, None]
            result[(starts[batch, None] + steps)[mask]] = states[:, 1:-1][mask]
        return result

    def _batches(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the indexes of some texts, and their states [texts, time, hidden] with those of special tokens."""
        owner = np.repeat(np.arange(len(lengths)), lengths)
        # Before a token are a first token for each text so far, and a separator for each sentence that has ended.
        positions = np.arange(len(ids)) + owner // self._sentences + 1 + owner
        whole = lengths.reshape(-1, self._sentences).sum(1) + self._sentences + 1
        starts = np.cumsum(whole) - whole
        tokens = np.full(whole.sum(), SEPARATOR)
        tokens[starts], tokens[positions] = FIRST, ids
        segments = np.zeros(len(tokens), np.int64)
        if self._size.pair:
            segments[positions[owner % 2 == 1]] = 1
            segments[starts + whole - 1] = 1
        order = np.argsort(-whole, kind="stable")
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            steps = np.arange(whole[batch[0]])
            mask = steps < whole[batch, None]
            read = starts[batch, None] + np.minimum(steps, whole[batch, None] - 1)
            states = self._embed(table, tokens[read], segments[read])
            for number in range(self._size.depth):
                states = self._layer(states, mask, number)
            yield batch, states

    def _embed(self, table: np.ndarray, tokens: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """tokens, segments: [texts, time] -> [texts, time, hidden]."""
        vectors = table.take(np.maximum(tokens, 0), 0)
        vectors[tokens == FIRST], vectors[tokens == SEPARATOR] = self._weights["marks.weight"]
        if "projection.weight" in self._weights:
            vectors = self._linear(vectors, "projection")
        positions = self._weights["positions.weight"][: tokens.shape[1]]
        return self._norm(vectors + positions + self._weights["segments.weight"][segments], "norm")

    def _layer(self, states: np.ndarray, mask: np.ndarray, number: int) -> np.ndarray:
        """states: [texts, time, hidden] -> the same shape. mask: bool [texts, time], the tokens of each text."""
        name = f"blocks.{0 if self._size.shared else number}."
        read = self._adapt(self._attend(states, mask, f"{name}attention."), f"adapters.{number}.0.")
        states = self._norm(states + read, f"{name}attention_norm")
        output = self._linear(gelu(self._linear(states, f"{name}up")), f"{name}down")
        return self._norm(states + self._adapt(output, f"adapters.{number}.1."), f"{name}output_norm")

    def _attend(self, states: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
        texts, time, _ = states.shape
        query, key, value = (
            self._linear(states, f"{name}{part}").reshape(texts, time, self._size.heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(query.shape[-1] ** 0.5)
        scores = np.where(mask[:, None, None], scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        read = (powers / powers.sum(-1, keepdims=True)) @ value
        return self._linear(read.transpose(0, 2, 1, 3).reshape(states.shape), f"{name}output")

    def _adapt(self, states: np.ndarray, name: str) -> np.ndarray:
        if not self._size.adapters:
            return states
        return states + self._linear(gelu(self._linear(states, f"{name}down")), f"{name}up")

    def _linear(self, states: np.ndarray, name: str) -> np.ndarray:
        return states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, states: np.ndarray, name: str) -> np.ndarray:
        # No real state is cut; squares of any file's stay finite.
        states = np.clip(states, -self.largest_state, self.largest_state)
        states = states - states.mean(-1, keepdims=True)
        deviation = np.sqrt(np.square(states).mean(-1, keepdims=True) + np.float32(1e-12))
        return states / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x times the share of the normal distribution below x (Hendrycks and Gimpel, 2016), float32."""
    return x * np.float32(0.5) * (1 + erf(x * np.float32(0.5**0.5)))


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function to float32's precision: a quotient of polynomials, as in Eigen."""
    x = np.clip(x, -4, 4)
    square = x * x
    numerator, denominator = (np.full_like(x, first) for first in (_ERF_NUMERATOR[0], _ERF_DENOMINATOR[0]))
    for polynomial, coefficients in ((numerator, _ERF_NUMERATOR), (denominator, _ERF_DENOMINATOR)):
        for coefficient in coefficients[1:]:
            polynomial *= square
            polynomial += np.float32(coefficient)
    return x * numerator / denominator


_ERF_NUMERATOR = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_DENOMINATOR = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
