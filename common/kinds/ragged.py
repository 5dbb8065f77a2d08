"""Arrays for texts of different lengths: token ids, and values for each word."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class EncodedText:
    """Token ids of n texts, concatenated. Every text has at least one token.

    ids: int32 [tokens, width]; offsets: int64 [n + 1]; text i is ids[offsets[i] : offsets[i + 1]]. width: integers that
    describe a token: 1 for most vocabularies, 3 for hash embeddings (one per hash function), 2 for a teacher (wordpiece
    and segment).
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_lists(
        cls, sentences: Sequence[Sequence], width: int, empty: Sequence[int], max_tokens: int
    ) -> EncodedText:
        """Return texts from lists of tokens, cut at max_tokens; a list without tokens becomes `empty`.

        A token is an integer, or a sequence of `width` integers.
        """
        flat: Iterable = itertools.chain.from_iterable(sentences)
        if width > 1:
            flat = itertools.chain.from_iterable(flat)
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(flat, np.int32, int(lengths.sum()) * width).reshape(-1, width)
        return cls.from_flat(ids, lengths, empty, max_tokens)

    @classmethod
    def from_flat(cls, ids: np.ndarray, lengths: np.ndarray, empty: Sequence[int], max_tokens: int) -> EncodedText:
        """Return texts from their concatenated tokens, [tokens, width], and the number of tokens of each, [n]."""
        kept = np.minimum(lengths, max_tokens)
        offsets = offsets_of(np.maximum(kept, 1))
        if offsets[-1] == len(ids) and (kept == lengths).all():
            return cls(ids.astype(np.int32, copy=False), offsets)
        steps = np.arange(kept.sum()) - np.repeat(offsets_of(kept)[:-1], kept)
        cut = np.empty((offsets[-1], ids.shape[1]), np.int32)
        cut[:] = empty
        cut[np.repeat(offsets[:-1], kept) + steps] = ids[np.repeat(offsets_of(lengths)[:-1], kept) + steps]
        return cls(cut, offsets)

    @classmethod
    def of(cls, texts: Sequence[np.ndarray]) -> EncodedText:
        """Return texts from the tokens of each, int32 [tokens, width]."""
        return cls(np.concatenate(texts), offsets_of(list(map(len, texts))))

    @classmethod
    def joined(cls, parts: Sequence[EncodedText]) -> EncodedText:
        """Return the texts of all parts, in order."""
        return cls(np.concatenate([part.ids for part in parts]), offsets_of(np.concatenate([p.lengths for p in parts])))

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text, int64 [n]."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, text: int) -> np.ndarray:
        """Return the tokens of one text, int32 [tokens, width]."""
        return self.ids[self.offsets[text] : self.offsets[text + 1]]

    def pad(self, rows: np.ndarray, max_tokens: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch: ids int64 [batch, longest, width], zero where padded, and lengths int64 [batch].

        max_tokens: number of tokens at which texts are cut, if any.
        """
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts  # of these rows only: a step's time must not grow with the data set
        lengths = lengths if max_tokens is None else np.minimum(lengths, max_tokens)
        steps = np.arange(lengths.max())
        mask = steps < lengths[:, None]
        index = np.where(mask, starts[:, None] + steps, 0)
        return self.ids[index].astype(np.int64) * mask[..., None], lengths


def offsets_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return where each text begins and the last one ends, int64 [n + 1]. lengths: of n texts."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


# The functions below handle values of words, or of answers. A padded array is [n, words] or [n, words, outputs], as
# wide as the longest text; after a text's last word it holds -1 (labels) or NaN (logits). Single spaces separate words.


def count_words(texts: Sequence[str]) -> np.ndarray:
    """Return the number of words of each normalised text, int64 [n]; an empty text counts as one word."""
    return np.fromiter((text.count(" ") + 1 for text in texts), np.int64, len(texts))


def padded(flat: np.ndarray, counts: np.ndarray, fill: float = np.nan) -> np.ndarray:
    """Return concatenated values of words, [words of all texts, ...], as a padded array. counts: words, int64 [n]."""
    mask = np.arange(counts.max(initial=0)) < counts[:, None]
    values = np.full((*mask.shape, *flat.shape[1:]), fill, flat.dtype)
    values[mask] = flat
    return values


def join_padded(parts: Sequence[np.ndarray], fill: float) -> np.ndarray:
    """Return padded arrays as one, with the width of the widest."""
    width = max(part.shape[1] for part in parts)
    joined = np.full((sum(map(len, parts)), width, *parts[0].shape[2:]), fill, parts[0].dtype)
    first = 0
    for part in parts:
        joined[first : first + len(part), : part.shape[1]] = part
        first += len(part)
    return joined


def to_lists(values: np.ndarray, known: np.ndarray, kind: pa.DataType) -> pa.ListArray:
    """Return a padded array [n, words, ...] as a column of lists, one for each row. known: bool [n, words]."""
    import pyarrow as pa  # imported here: prediction with a packed file does not need it

    flat = pa.array(values[known].ravel(), kind)
    for width in values.shape[2:]:
        flat = pa.FixedSizeListArray.from_arrays(flat, width)
    return pa.ListArray.from_arrays(pa.array(offsets_of(known.sum(1)), pa.int32()), flat)


def from_lists(column: pa.ChunkedArray, fill: float = np.nan) -> np.ndarray:
    """Return the padded array of a column written by `to_lists`."""
    whole = column.combine_chunks()
    flat, counts = whole.flatten(), whole.value_lengths().to_numpy().astype(np.int64)
    if hasattr(flat.type, "list_size"):
        values = flat.flatten().to_numpy(zero_copy_only=False).reshape(-1, flat.type.list_size)
        return padded(values, counts, fill) if len(values) else np.full((len(counts), 1, flat.type.list_size), fill)
    return padded(flat.to_numpy(zero_copy_only=False), counts, fill)


def to_fixed_lists(values: np.ndarray) -> pa.FixedSizeListArray:
    """Return an array, [n, values], as a column of lists of equal length."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def fixed_lists(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of lists of equal length as an array, [n, values]."""
    return column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size)
