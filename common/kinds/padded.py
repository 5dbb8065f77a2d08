"""Base of the kinds whose models have logits for each word: rows of different length, padded to the longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from common.kinds.base import Kind
from common.kinds.ragged import from_lists, join_padded, to_lists

if TYPE_CHECKING:
    import pyarrow as pa


class PaddedKind(Kind):
    """Labels are int64 [n, words, ...], -1 after a row's last one; logits [n, words, outputs], then NaN."""

    by_word = True
    has_probabilities = False

    def labelled(self, labels: np.ndarray) -> np.ndarray:
        return self.known(labels).any(1)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return join_padded(parts, self.unknown)

    def join_logits(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return join_padded(parts, np.nan)

    def column(self, labels: np.ndarray) -> pa.Array:
        import pyarrow as pa

        return to_lists(labels, self.known(labels), pa.int32())

    def from_column(self, column: pa.ChunkedArray) -> np.ndarray:
        return from_lists(column, self.unknown).astype(self.dtype)
