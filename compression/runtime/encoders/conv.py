"""The convolutional encoder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compression.runtime.weights import LARGEST


class Convolution:
    """Gated units over a window of tokens centred at each one, and the maximum of each unit over the tokens."""

    values_at_once = 1 << 17
    """Few enough for the processor's cache."""

    def __init__(self, weight: np.ndarray, bias: np.ndarray, width: int) -> None:
        """weight: [2 * hidden, width * dim], values first, gates last; bias: [2 * hidden]."""
        # value * sigmoid(gate) = value / 2 * (tanh(gate / 2) + 1): all is halved once.
        self._weight, self._bias = np.ascontiguousarray(weight.T) * np.float32(0.5), bias * np.float32(0.5)
        self._hidden, self._reach = len(bias) // 2, width // 2

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, hidden]."""
        best = np.full((len(lengths), self._hidden), -np.inf, np.float32)
        for owner, states in self._blocks(table, ids, lengths):
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            texts = owner[first]
            best[texts] = np.maximum(best[texts], np.maximum.reduceat(states, first))
        return np.clip(best, -LARGEST, LARGEST, best)  # no real state is cut; logits of any file stay finite

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, hidden]."""
        states = np.concatenate([states for _, states in self._blocks(table, ids, lengths)])
        return np.clip(states, -LARGEST, LARGEST, states)

    def _blocks(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for some tokens at a time the index of the text of each, and their states [tokens, hidden]."""
        owner, ends = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths)
        window = np.arange(-self._reach, self._reach + 1)
        block = max(1, self.values_at_once // max(self._weight.shape))
        for start in range(0, len(ids), block):
            texts = owner[start : start + block]
            tokens = np.arange(start, start + len(texts))[:, None] + window
            end = ends[texts][:, None]
            vectors = table.take(ids.take(tokens, mode="clip"), 0)
            vectors[(tokens < end - lengths[texts][:, None]) | (tokens >= end)] = 0
            yield texts, self._gated(vectors.reshape(len(texts), -1))

    def _gated(self, windows: np.ndarray) -> np.ndarray:
        """windows: float32 [tokens, width * dim] -> [tokens, hidden]."""
        both = windows @ self._weight
        both += self._bias
        values, gates = both[:, : self._hidden], both[:, self._hidden :]
        np.tanh(gates, gates)
        gates += 1
        values *= gates
        return values
