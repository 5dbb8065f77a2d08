"""Token ids of many sentences in two flat arrays, and padded batches cut from them without a Python loop."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class EncodedText:
    """n texts. ids: int32 [tokens, width]; offsets: int64 [n + 1]; sentence i is ids[offsets[i] : offsets[i + 1]].

    width is how many integers describe a token: 1 for most vocabularies, 3 for hash embeddings (one a hash function),
    2 for a teacher (word piece and segment). Every sentence has at least one token.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_lists(
        cls, sentences: Sequence[Sequence], width: int, empty: Sequence[int], max_tokens: int
    ) -> "EncodedText":
        """Flatten lists of tokens (integers, or `width` integers each), cut at max_tokens; no tokens become `empty`."""
        flat: Iterable = itertools.chain.from_iterable(sentences)
        if width > 1:
            flat = itertools.chain.from_iterable(flat)
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(flat, np.int32, int(lengths.sum()) * width).reshape(-1, width)
        return cls.from_flat(ids, lengths, empty, max_tokens)

    @classmethod
    def from_flat(cls, ids: np.ndarray, lengths: np.ndarray, empty: Sequence[int], max_tokens: int) -> "EncodedText":
        """The same from the tokens of all texts in a row, [tokens, width], and the number of each text's, [n]."""
        kept = np.minimum(lengths, max_tokens)
        offsets = _offsets(np.maximum(kept, 1))
        if offsets[-1] == len(ids) and (kept == lengths).all():
            return cls(ids.astype(np.int32, copy=False), offsets)
        steps = np.arange(kept.sum()) - np.repeat(_offsets(kept)[:-1], kept)
        made = np.empty((offsets[-1], ids.shape[1]), np.int32)
        made[:] = empty
        made[np.repeat(offsets[:-1], kept) + steps] = ids[np.repeat(_offsets(lengths)[:-1], kept) + steps]
        return cls(made, offsets)

    @classmethod
    def joined(cls, parts: Sequence["EncodedText"]) -> "EncodedText":
        """The texts of all parts, one part after the other."""
        return cls(np.concatenate([part.ids for part in parts]), _offsets(np.concatenate([p.lengths for p in parts])))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sentence, int64 [n]."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def pad(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cut a batch. Returns ids int64 [batch, longest, width], zero where padded, and lengths int64 [batch]."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts  # of these rows alone: a step's time must not grow with the set
        steps = np.arange(lengths.max())
        inside = steps < lengths[:, None]
        places = np.where(inside, starts[:, None] + steps, 0)
        return self.ids[places].astype(np.int64) * inside[..., None], lengths


def _offsets(lengths: np.ndarray) -> np.ndarray:
    """Where each text begins and the last one ends, int64 [n + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
