"""Encoders: map the token ids of a batch, one text after the other, to one vector per text or per token."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from .shapes import GATES, LAYER_PARTS, TRANSFORMERS, EncoderSize
from .weights import LARGEST

Weights = dict[str, np.ndarray]


class Encoder:
    """Base of all encoders. weights: by the names of `student_shapes`, without "encoder.".

    Calling an encoder returns float32 [texts, width], its method `states` returns float32 [tokens, width]. table:
    float32 [ids, dim]; ids: int64 [tokens of all texts]; lengths: int64 [texts], none zero.
    """

    def __init__(self, weights: Weights, size: EncoderSize) -> None:
        self._size = size


class Bag(Encoder):
    """The mean of a text's vectors, their maximum, or both: their sum divided by the root of their number, and their
    maximum. It has no states of tokens."""

    values_at_once = 1 << 20

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, dim], or [texts, 2 dim] for both."""
        shape, pooling = (len(lengths), table.shape[1]), self._size.pooling
        sums = None if pooling == "max" else np.zeros(shape, np.float32)
        best = None if pooling == "mean" else np.full(shape, -np.inf, np.float32)
        owner = owners(lengths)
        block = max(1, self.values_at_once // table.shape[1])
        for start in range(0, len(ids), block):
            texts = owner[start : start + block]
            first = np.flatnonzero(np.diff(texts, prepend=-1))
            vectors, texts = table.take(ids[start : start + block], 0), texts[first]
            if sums is not None:
                sums[texts] += np.add.reduceat(vectors, first)
            if best is not None:
                best[texts] = np.maximum(best[texts], np.maximum.reduceat(vectors, first))
        if sums is not None:
            counts = lengths[:, None].astype(np.float32)
            sums /= np.sqrt(counts) if pooling == "both" else counts
        return np.concatenate([pooled for pooled in (sums, best) if pooled is not None], 1)


class Convolution(Encoder):
    """Gated units over a window of tokens centred at each one, and the maximum of each unit over the tokens."""

    values_at_once = 1 << 17
    """Few enough for the processor's cache."""

    def __init__(self, weights: Weights, size: EncoderSize) -> None:
        super().__init__(weights, size)
        # value * sigmoid(gate) = value / 2 * (tanh(gate / 2) + 1): all is halved in advance. Values come first.
        half = np.float32(0.5)
        self._weight = np.ascontiguousarray(weights["convolution.weight"].T) * half
        self._bias = weights["convolution.bias"] * half

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, hidden]."""
        best = np.full((len(lengths), self._size.hidden), -np.inf, np.float32)
        for owner, states in self._blocks(table, ids, lengths):
            raise_maxima(best, owner, states)
        return np.clip(best, -LARGEST, LARGEST, best)  # real states are not clipped; logits of any file stay finite

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, hidden]."""
        states = np.concatenate([states for _, states in self._blocks(table, ids, lengths)])
        return np.clip(states, -LARGEST, LARGEST, states)

    def _blocks(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each block of tokens the indexes of their texts, and their states [tokens, hidden]."""
        owner, ends = owners(lengths), np.cumsum(lengths)
        reach, hidden = self._size.kernel_width // 2, self._size.hidden
        window = np.arange(-reach, reach + 1)
        block = max(1, self.values_at_once // max(self._weight.shape))
        for start in range(0, len(ids), block):
            texts = owner[start : start + block]
            tokens = np.arange(start, start + len(texts))[:, None] + window
            end = ends[texts][:, None]
            vectors = table.take(ids.take(tokens, mode="clip"), 0)
            vectors[(tokens < end - lengths[texts][:, None]) | (tokens >= end)] = 0
            both = vectors.reshape(len(texts), -1) @ self._weight
            both += self._bias
            values, gates = both[:, :hidden], both[:, hidden:]
            np.tanh(gates, gates)
            gates += 1
            values *= gates
            yield texts, values


class Recurrent(Encoder):
    """A bidirectional layer of GATES: both directions are computed together, the second from last token to first."""

    batch_size = 64
    values_at_once = 1 << 20

    def __init__(self, weights: Weights, size: EncoderSize) -> None:
        super().__init__(weights, size)
        weight_ih, weight_hh, bias = (
            np.stack([weights[f"{direction}_rnn.{name}"] for direction in ("forward", "backward")])
            for name in ("weight_ih", "weight_hh", "bias")
        )
        self._hidden, self._arch = size.hidden, size.arch
        # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: all gates take a tanh. The candidate, the only one that is no sigmoid,
        # comes last here.
        is_candidate = np.array([gate == "candidate" for gate in GATES[size.arch]])
        order = np.argsort(is_candidate, kind="stable")
        scale = np.repeat(np.where(is_candidate[order], np.float32(1), np.float32(0.5)), size.hidden)
        rows = (order[:, None] * size.hidden + np.arange(size.hidden)).reshape(-1)
        self._weight_ih, self._weight_hh = (
            np.ascontiguousarray((matrix[:, rows] * scale[:, None]).transpose(0, 2, 1))
            for matrix in (weight_ih, weight_hh)
        )
        self._bias = (bias[:, rows] * scale)[:, None]

    def __call__(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray, states: np.ndarray | None = None
    ) -> np.ndarray:
        """Return [texts, 2 hidden]: the last state of each direction, or the maximum over its states.

        states: if given, filled with the states, [tokens, 2 hidden].
        """
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")  # texts of similar length are read together
        result = np.empty((len(lengths), 2 * self._hidden), np.float32)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            result[batch] = self._batch(table, ids, starts[batch], lengths[batch], states)
        return result

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, 2 hidden]."""
        states = np.empty((len(ids), 2 * self._hidden), np.float32)
        self(table, ids, lengths, states)
        return states

    def _batch(
        self, table: np.ndarray, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, states: np.ndarray | None
    ) -> np.ndarray:
        """Return the results of texts sorted by length, longest first, so that each step reads the first ones only."""
        size = len(lengths)
        state = np.zeros((2, size, self._hidden), np.float32)
        cell = np.zeros_like(state) if self._arch == "bilstm" else None
        best = np.full_like(state, -np.inf) if self._size.pooling == "max" else None
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
            for start, end in zip(changes, changes[1:]):
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
        """Run steps that read the same texts, in place.

        inputs: [2, steps, texts, gates * hidden], products with weight_ih plus bias; state, cell, best: [2, texts,
        hidden]; seen: [2, steps, texts, hidden], filled with the states.
        """
        gates = np.empty((2, *inputs.shape[2:]), np.float32)
        *of_sigmoids, candidate = np.split(gates, len(GATES[self._arch]), 2)
        sigmoids = gates[..., : len(of_sigmoids) * self._hidden]
        half = np.float32(0.5)
        for number, step in enumerate(inputs.swapaxes(0, 1)):
            np.matmul(state, self._weight_hh, gates)
            if self._arch == "gru":
                reset, update = of_sigmoids
                np.add(sigmoids, step[..., : sigmoids.shape[2]], sigmoids)
                np.tanh(sigmoids, sigmoids)
            else:
                np.add(gates, step, gates)
                np.tanh(gates, gates)
            np.multiply(sigmoids, half, sigmoids)
            np.add(sigmoids, half, sigmoids)
            if self._arch == "gru":
                np.multiply(candidate, reset, candidate)
                np.add(candidate, step[..., sigmoids.shape[2] :], candidate)
                np.tanh(candidate, candidate)
                np.subtract(state, candidate, state)
                np.multiply(state, update, state)
                np.add(state, candidate, state)
            elif self._arch == "bilstm":
                take, forget, give = of_sigmoids
                np.multiply(cell, forget, cell)
                np.multiply(candidate, take, candidate)
                np.add(cell, candidate, cell)
                np.tanh(cell, state)
                np.multiply(state, give, state)
            else:
                state[:] = candidate
            if best is not None:
                np.maximum(best, state, out=best)
            if seen is not None:
                seen[:, number] = state


class Transformer(Encoder):
    """Layers of self-attention and feed-forward maps, or one layer used several times; returns the first token's state.

    A pair is read as one text.
    """

    batch_size = 64
    values_at_once = 1 << 20
    """Values in a batch's largest array, of which a few exist at a time: attention, with the square of a text's tokens
    for each head, or a layer's units."""
    largest_state = np.float32(1e12)

    def __init__(self, weights: Weights, size: EncoderSize) -> None:
        super().__init__(weights, size)
        self._weights = weights

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, hidden]. ids, lengths: of single texts, or of both sentences of each pair in a row."""
        result = np.empty((len(lengths) // (1 + self._size.pair), self._size.hidden), np.float32)
        for batch, states in self._batches(table, ids, lengths):
            result[batch] = states[:, 0]
        return result

    def states(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [tokens, hidden], for single texts only."""
        starts = np.cumsum(lengths) - lengths
        result = np.empty((len(ids), self._size.hidden), np.float32)
        for batch, states in self._batches(table, ids, lengths):
            steps = np.arange(states.shape[1] - 2)
            mask = steps < lengths[batch, None]
            result[(starts[batch, None] + steps)[mask]] = states[:, 1:-1][mask]
        return result

    def words(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the classifier's inputs for words of the pairs' second texts, [words, hidden].

        words: the index of each word's first token among all tokens, and -1 for each pair's "no answer", which is the
        first token.
        """
        none = words < 0
        pair = np.cumsum(none) - 1
        second = np.cumsum(lengths)[::2]  # where each pair's second text starts
        place = np.where(none, 0, words - second[pair] + lengths[::2][pair] + 2)
        result = np.empty((len(words), self._size.hidden), np.float32)
        for batch, states in self._batches(table, ids, lengths):
            row = np.full(len(second), -1)
            row[batch] = np.arange(len(batch))
            of_batch = np.flatnonzero(row[pair] >= 0)
            result[of_batch] = states[row[pair[of_batch]], place[of_batch]]
        return result

    def _batches(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each batch the indexes of its texts, and states [texts, time, hidden], special tokens included."""
        count = 1 + self._size.pair
        tokens, ends = ids.tolist(), np.cumsum(lengths).tolist()
        sentences = [[*tokens[start:end], SEPARATOR] for start, end in zip([0, *ends], ends)]
        texts = [[FIRST, *itertools.chain(*sentences[i : i + count])] for i in range(0, len(sentences), count)]
        order = np.argsort([-len(text) for text in texts], kind="stable")
        units = max(self._size.intermediate, self._size.hidden, self._size.dim, self._size.attention)
        start = 0
        while start < len(order):
            time = len(texts[order[start]])  # the longest that is left
            fitting = max(1, self.values_at_once // (time * max(self._size.heads * time, units)))
            batch = order[start : start + min(self.batch_size, fitting)]
            start += len(batch)
            whole = np.array([len(texts[i]) for i in batch])
            mask = np.arange(whole[0]) < whole[:, None]
            tokens = np.full(mask.shape, SEPARATOR)
            tokens[mask] = [*itertools.chain.from_iterable(texts[i] for i in batch)]
            separators = tokens == SEPARATOR
            segments = np.minimum(np.cumsum(separators, 1) - separators, count - 1)  # separators before the token
            states = self._embed(table, tokens, segments)
            for number in range(self._size.depth):
                states = self._layer(states, mask, number)
            yield batch, states

    def _embed(self, table: np.ndarray, tokens: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """tokens, segments: [texts, time] -> [texts, time, hidden]."""
        vectors = table.take(np.maximum(tokens, 0), 0)
        vectors[tokens == FIRST], vectors[tokens == SEPARATOR] = self._weights["marks.weight"]
        if "projection.weight" in self._weights:
            vectors = self._linear(vectors, "projection")
        vectors = vectors + self._weights["positions.weight"][: tokens.shape[1]]
        if self._size.segments:
            vectors += self._weights["segments.weight"][segments]
        return self._norm(vectors, "norm")

    def _layer(self, states: np.ndarray, mask: np.ndarray, number: int) -> np.ndarray:
        """states: [texts, time, hidden] -> the same shape. mask: bool [texts, time], the tokens of each text."""
        first, second = (f"blocks.{self._size.owner(part, number)}." for part in LAYER_PARTS)
        read = self._adapt(self._attend(states, mask, f"{first}attention."), f"adapters.{number}.0.")
        states = self._norm(states + read, f"{first}attention_norm")
        output = self._linear(gelu(self._linear(states, f"{second}up")), f"{second}down")
        return self._norm(states + self._adapt(output, f"adapters.{number}.1."), f"{second}output_norm")

    def _attend(self, states: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
        texts, time, _ = states.shape
        query, key, value = (
            self._linear(states, f"{name}{part}").reshape(texts, time, self._size.heads, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        at_once = self.values_at_once // (texts * self._size.heads * time)
        divisor = np.float32(query.shape[-1] ** 0.5)
        read = attended(query, key.transpose(0, 1, 3, 2), value, ~mask[:, None, None], at_once, divisor)
        return self._linear(read.transpose(0, 2, 1, 3).reshape(texts, time, -1), f"{name}output")

    def _adapt(self, states: np.ndarray, name: str) -> np.ndarray:
        if not self._size.adapters:
            return states
        return states + self._linear(gelu(self._linear(states, f"{name}down")), f"{name}up")

    def _linear(self, states: np.ndarray, name: str) -> np.ndarray:
        return states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, states: np.ndarray, name: str) -> np.ndarray:
        # Real states are not clipped; squares of any file's states stay finite.
        states = np.clip(states, -self.largest_state, self.largest_state)
        states = states - states.mean(-1, keepdims=True)
        deviation = np.sqrt(np.square(states).mean(-1, keepdims=True) + np.float32(1e-12))
        return states / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


ENCODERS: dict[str, type[Encoder]] = {
    "ffn": Bag,
    "conv": Convolution,
    **dict.fromkeys(GATES, Recurrent),
    **dict.fromkeys(TRANSFORMERS, Transformer),
}
FIRST, SEPARATOR = -2, -1
"""Ids of a transformer's special tokens, before a text and after each of its sentences."""


def owners(lengths: np.ndarray) -> np.ndarray:
    """Return the index of the text of each token."""
    return np.repeat(np.arange(len(lengths)), lengths)


def raise_maxima(best: np.ndarray, owner: np.ndarray, states: np.ndarray) -> None:
    """Raise the maxima of texts, float32 [texts, width], in place, to those over a block of tokens.

    owner: the index of the text of each token, ascending; states: of the tokens, [tokens, width].
    """
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    texts = owner[first]
    best[texts] = np.maximum(best[texts], np.maximum.reduceat(states, first))


def attended(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    outside: np.ndarray,
    at_once: int,
    divisor: np.float32 | None = None,
) -> np.ndarray:
    """query: [..., time, width], keys: [..., width, others], values: [..., others, width] -> [..., time, width].

    outside: bool [..., 1, others], where values are padded; at_once: steps of time whose scores are in memory; divisor:
    of the scores.
    """
    read, at_once = np.empty_like(query), max(1, at_once)
    for start in range(0, query.shape[-2], at_once):
        steps = slice(start, start + at_once)
        scores = query[..., steps, :] @ keys
        if divisor is not None:
            scores /= divisor
        np.copyto(scores, -np.inf, where=outside)
        scores -= scores.max(-1, keepdims=True)
        powers = np.exp(scores, scores)
        powers /= powers.sum(-1, keepdims=True)
        np.matmul(powers, values, read[..., steps, :])
    return read


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x times the share of the normal distribution below x (Hendrycks and Gimpel, 2016), float32."""
    return x * np.float32(0.5) * (1 + erf(x * np.float32(0.5**0.5)))


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function to float32's precision: a quotient of polynomials, as in Eigen."""
    x = np.clip(x, -4, 4)
    square = x * x
    return x * _polynomial(square, _ERF_NUMERATOR) / _polynomial(square, _ERF_DENOMINATOR)


def _polynomial(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    # As numpy.polyval, but in float32 and in place.
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= x
        value += np.float32(coefficient)
    return value


_ERF_NUMERATOR = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_DENOMINATOR = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
