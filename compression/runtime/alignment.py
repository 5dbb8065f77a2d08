"""Pairs of texts whose tokens attend to the other text: the vectors of both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .encoders import Encoder, Weights, attended, owners, raise_maxima
from .shapes import EncoderSize
from .weights import LARGEST


class Alignment(Encoder):
    """Compares each token with the vector it attends to in the other text and takes the maximum over a text's tokens.

    A token is its state, computed by an encoder, and its vector. The two texts of each pair follow one another. If
    `composition`, another encoder, is given, it reads the results, and the maximum is taken over its states.
    """

    values_at_once = 1 << 18
    """Values in a batch's largest array: the tokens of some pairs, their scores, or their comparison."""

    def __init__(self, weights: Weights, size: EncoderSize, encoder: Encoder, composition: Encoder | None) -> None:
        super().__init__(weights, size)
        self._encoder, self._composition, self._scale = encoder, composition, weights["alignment.scale"]
        # x * A + read * B + (x - read) * C + x * read * D = x * (A + C) + read * (B - C) + x * read * D, for a token x
        token, read, difference, product = np.split(weights["alignment.fusion.weight"].T, 4)
        self._fusion = tuple(map(np.ascontiguousarray, (token + difference, read - difference, product)))
        self._bias = weights["alignment.fusion.bias"]

    def __call__(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return [texts, width of a state]."""
        if self._composition is not None:
            every = self._every(table, ids, lengths)
            return self._composition(every, np.arange(len(every)), lengths)
        best = np.full((len(lengths), self._size.state), -np.inf, np.float32)
        for owner, compared in self._blocks(table, ids, lengths):
            raise_maxima(best, owner, compared)
        return np.clip(best, 0, LARGEST, best)  # real values are not clipped; logits of any file stay finite

    def words(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the classifier's inputs for words, [words, width of a state].

        words: the index of each word's first token among all tokens, and -1 for each pair's "no answer", which is the
        maximum over the tokens of its second text.
        """
        every = self._every(table, ids, lengths)
        if self._composition is not None:
            every = self._composition.states(every, np.arange(len(every)), lengths)
        of_words = every[words]
        of_words[words < 0] = np.maximum.reduceat(every, np.cumsum(lengths) - lengths)[1::2]
        return of_words

    def _every(self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the results of the comparison for all tokens, [tokens, width]."""
        every = np.concatenate([compared for _, compared in self._blocks(table, ids, lengths)])
        return np.clip(every, 0, LARGEST, every)  # real values are not clipped

    def _blocks(
        self, table: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each block of tokens the indexes of their texts, and the result of `_compared`."""
        vectors = np.concatenate([table.take(ids, 0), shared_tokens(ids, lengths)[:, None]], 1)
        states = self._encoder.states(vectors, np.arange(len(ids)), lengths)
        tokens = np.concatenate([states, vectors[:, :-1]], 1)
        read, owner = self._read(tokens, lengths), owners(lengths)
        block = max(1, self.values_at_once // max(self._fusion[0].shape))
        for start in range(0, len(tokens), block):
            end = start + block
            yield owner[start:end], self._compared(tokens[start:end], read[start:end])

    def _compared(self, tokens: np.ndarray, read: np.ndarray) -> np.ndarray:
        """tokens, read: [tokens, width of a token] -> [tokens, width of a state]. The relu comes last, elsewhere."""
        for_tokens, for_read, for_product = self._fusion
        compared = tokens @ for_tokens
        compared += read @ for_read
        compared += (tokens * read) @ for_product
        compared += self._bias
        return compared

    def _read(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the vector that each token attends to, of the shape of `tokens`."""
        read, starts = np.empty_like(tokens), np.cumsum(lengths) - lengths
        for pairs in self._batches(lengths.reshape(-1, 2), tokens.shape[1]):
            # Texts are padded with their last token, whose result is then computed again, unchanged.
            steps = [np.arange(lengths[pairs + side].max()) for side in (0, 1)]
            indices = [
                starts[pairs + side, None] + np.minimum(steps[side], lengths[pairs + side, None] - 1) for side in (0, 1)
            ]
            texts = [tokens.take(index, 0) for index in indices]
            for side in (0, 1):
                text, other = texts[side], texts[1 - side]
                outside = (steps[1 - side] >= lengths[pairs + 1 - side, None])[:, None]
                keys, at_once = other.transpose(0, 2, 1) * self._scale, self.values_at_once // outside.size
                read[indices[side]] = attended(text, keys, other, outside, at_once)
        return read

    def _batches(self, lengths: np.ndarray, width: int) -> Iterator[np.ndarray]:
        """Yield batches of pairs of similar lengths, as indexes of their first texts. lengths: [pairs, 2]."""
        order = np.lexsort((lengths[:, 1], lengths[:, 0]))[::-1]
        longest = lengths[order].max(1)
        start = 0
        while start < len(order):
            time = longest[start:].max()
            count = max(1, self.values_at_once // int(time * max(time, width)))
            yield 2 * order[start : start + count]
            start += count


def shared_tokens(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return float32 [tokens], 1 where the other text of the pair has the token, else 0."""
    pair, side = np.divmod(owners(lengths), 2)
    keys, second = pair * (ids.max() + 1) + ids, side == 1
    shared = np.empty(len(ids), np.float32)
    shared[second] = np.isin(keys[second], keys[~second])
    shared[~second] = np.isin(keys[~second], keys[second])
    return shared
