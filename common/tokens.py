"""Token ids of many sentences in two flat arrays, and padded batches cut from them without a Python loop."""

import dataclasses
from collections.abc import Sequence

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
        nothing = [empty[0] if width == 1 else empty]
        cut = [sentence[:max_tokens] if len(sentence) else nothing for sentence in sentences]
        offsets = np.zeros(len(cut) + 1, np.int64)
        np.cumsum([len(sentence) for sentence in cut], out=offsets[1:])
        flat = [token for sentence in cut for token in sentence]
        return cls(np.array(flat, np.int32).reshape(-1, width), offsets)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sentence, int64 [n]."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def pad(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cut a batch. Returns ids int64 [batch, longest, width], zero where padded, and lengths int64 [batch]."""
        starts, lengths = self.offsets[rows], self.lengths[rows]
        steps = np.arange(lengths.max())
        inside = steps < lengths[:, None]
        places = np.where(inside, starts[:, None] + steps, 0)
        return self.ids[places].astype(np.int64) * inside[..., None], lengths
