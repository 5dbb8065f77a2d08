"""Values for every word of many texts, where a text has as many as it has words: padded arrays.

A padded array is [n, words] or [n, words, outputs], as wide as the longest text needs; past a text's last word stands
-1 for a label and NaN for a logit. Words are what single spaces separate.
"""

from collections.abc import Sequence

import numpy as np


def count_words(texts: Sequence[str]) -> np.ndarray:
    """Words of each normalised text, int64 [n]; an empty one counts as one word."""
    return np.fromiter((text.count(" ") + 1 for text in texts), np.int64, len(texts))


def padded(flat: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The values of all words in a row, [words of all texts, ...], as a padded array. counts: int64 [n]."""
    inside = np.arange(counts.max(initial=0)) < counts[:, None]
    made = np.full((*inside.shape, *flat.shape[1:]), _nothing(flat), flat.dtype)
    made[inside] = flat
    return made


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of rows one after the other; padded ones get the width of the widest."""
    if parts[0].ndim == 1 or len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    return np.concatenate([widened(part, width) for part in parts])


def widened(values: np.ndarray, width: int) -> np.ndarray:
    """A padded array with places for at least so many words."""
    missing = max(0, width - values.shape[1])
    fill = ((0, 0), (0, missing), *((0, 0) for _ in values.shape[2:]))
    return np.pad(values, fill, constant_values=_nothing(values))


def known(values: np.ndarray) -> np.ndarray:
    """Where a padded array holds a word's value, bool [n, words]."""
    if values.dtype.kind != "f":
        return values >= 0
    return ~np.isnan(values if values.ndim == 2 else values[..., 0])


def _nothing(values: np.ndarray) -> float:
    return np.nan if values.dtype.kind == "f" else -1
