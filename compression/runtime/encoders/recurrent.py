"""Recurrent encoders: bidirectional LSTM and Elman RNN."""

from __future__ import annotations

import itertools

import numpy as np


class Recurrent:
    """One layer in each direction, computed together; the second reads each text from its last token to its first."""

    batch_size = 64
    values_at_once = 1 << 20

    def __init__(
        self, weight_ih: np.ndarray, weight_hh: np.ndarray, bias: np.ndarray, lstm: bool, pool_max: bool
    ) -> None:
        """weight_ih: [2, gates * hidden, dim]; weight_hh: [2, gates * hidden, hidden]; bias: [2, gates * hidden]."""
        hidden = weight_hh.shape[2]
        if lstm:
            # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: all gates are one tanh. PyTorch's order is input, forget,
            # candidate, output; the three sigmoids come first here.
            order = np.arange(4 * hidden).reshape(4, hidden)[[0, 1, 3, 2]].reshape(-1)
            half = np.repeat(np.array((0.5, 0.5, 0.5, 1), np.float32), hidden)
            weight_ih, weight_hh = (matrix[:, order] * half[:, None] for matrix in (weight_ih, weight_hh))
            bias = bias[:, order] * half
        self._weight_ih = np.ascontiguousarray(weight_ih.transpose(0, 2, 1))
        self._weight_hh = np.ascontiguousarray(weight_hh.transpose(0, 2, 1))
        self._bias = bias[:, None]
        self._hidden, self._lstm, self._pool_max = hidden, lstm, pool_max

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, 2 hidden]: the last state of each direction, or the maximum over its states."""
        return self._read(table, ids, lengths, None)

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, 2 hidden]."""
        states = np.empty((len(ids), 2 * self._hidden), np.float32)
        self._read(table, ids, lengths, states)
        return states

    def _read(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray, states: np.ndarray | None) -> np.ndarray:
        """Return [texts, 2 hidden]; fill in `states`, [tokens, 2 hidden]. Batches have texts of similar length."""
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")
        result = np.empty((len(lengths), 2 * self._hidden), np.float32)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            result[batch] = self._batch(table, ids, starts[batch], lengths[batch], states)
        return result

    def _batch(
        self, table: np.ndarray, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, states: np.ndarray | None
    ) -> np.ndarray:
        """Longest text first: at each step the texts that go on are the first ones, and nothing is padded."""
        size = len(lengths)
        state = np.zeros((2, size, self._hidden), np.float32)
        cell = np.zeros_like(state) if self._lstm else None
        best = np.full_like(state, -np.inf) if self._pool_max else None
        block = max(1, self.values_at_once // (size * max(self._bias.size, 2 * table.shape[1])))
        for first in range(0, lengths[0], block):
            steps = np.arange(first, min(first + block, lengths[0]))[:, None]
            step = np.minimum(steps, lengths - 1)
            tokens = np.stack([starts + step, starts + lengths - 1 - step])
            inputs = np.matmul(table.take(ids[tokens.reshape(2, -1)], 0), self._weight_ih)
            inputs += self._bias
            inputs = inputs.reshape(2, len(steps), size, -1)
            live = (steps < lengths).sum(1)
            changes = [0, *(np.flatnonzero(np.diff(live)) + 1).tolist(), len(steps)]
            for start, end in itertools.pairwise(changes):
                texts = int(live[start])
                views = [None if array is None else array[:, :texts] for array in (state, cell, best)]
                seen = None if states is None else np.empty((2, end - start, texts, self._hidden), np.float32)
                self._steps(inputs[:, start:end, :texts], *views, seen)
                if states is not None:
                    states[tokens[0, start:end, :texts], : self._hidden] = seen[0]
                    states[tokens[1, start:end, :texts], self._hidden :] = seen[1]
        return (state if best is None else best).transpose(1, 0, 2).reshape(size, -1)

    def _steps(
        self,
        inputs: np.ndarray,
        state: np.ndarray,
        cell: np.ndarray | None,
        best: np.ndarray | None,
        seen: np.ndarray | None,
    ) -> None:
        """Take steps with the same texts, in place.

        inputs: [2, steps, texts, gates * hidden], of weight_ih and bias; state, cell, best: [2, texts, hidden];
        seen: [2, steps, texts, hidden], becomes the states.
        """
        gates = np.empty((2, *inputs.shape[2:]), np.float32)
        take, forget, give, candidate = np.split(gates, 4, 2) if cell is not None else (gates,) * 4
        sigmoids = gates[..., : 3 * self._hidden]
        half = np.float32(0.5)
        for number, step in enumerate(inputs.swapaxes(0, 1)):
            np.matmul(state, self._weight_hh, gates)
            np.add(gates, step, gates)
            np.tanh(gates, state if cell is None else gates)
            if cell is not None:
                np.multiply(sigmoids, half, sigmoids)
                np.add(sigmoids, half, sigmoids)
                np.multiply(cell, forget, cell)
                np.multiply(candidate, take, candidate)
                np.add(cell, candidate, cell)
                np.tanh(cell, state)
                np.multiply(state, give, state)
            if best is not None:
                np.maximum(best, state, out=best)
            if seen is not None:
                seen[:, number] = state
