"""A batch of token ids, a student's only argument, and the encoded rows that batches are taken from."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from common.data.ragged import EncodedText


@dataclasses.dataclass(frozen=True)
class Batch:
    """Padded token ids of some rows.

    ids: int64 [batch, time, width]; lengths: int64 [batch], at least 1; second: the second sentences of pairs;
    word_starts: if every word has logits, the index of its first token, int64 [batch, words], -1 after the last word.
    For pairs these are the words of the second text, after an entry for "no answer", which is not an index.
    """

    ids: torch.Tensor
    lengths: torch.Tensor
    second: Batch | None = None
    word_starts: torch.Tensor | None = None

    @property
    def sentences(self) -> tuple[Batch, ...]:
        """The sentences as separate batches: one, or two for pairs."""
        return (self,) if self.second is None else (self, self.second)


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """Token ids of many rows. second: the second sentences of pairs; word_starts: if words have logits, width 1."""

    text: EncodedText
    second: EncodedText | None = None
    word_starts: EncodedText | None = None

    def __len__(self) -> int:
        return len(self.text)

    @property
    def columns(self) -> list[EncodedText]:
        """The columns that are not None."""
        return [column for column in (self.text, self.second, self.word_starts) if column is not None]

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row's text, int64 [n]; for pairs, of both texts, int64 [n, 2]."""
        first = self.text.lengths
        return first if self.second is None else np.stack([first, self.second.lengths], 1)

    def batch(self, rows: np.ndarray, device: torch.device) -> Batch:
        """Return the batch of these rows."""

        def pad(text: EncodedText) -> tuple[torch.Tensor, torch.Tensor]:
            ids, lengths = text.pad(rows)
            return torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device)

        second = None if self.second is None else Batch(*pad(self.second))
        starts = None
        if self.word_starts is not None:
            starts, counts = pad(self.word_starts)
            past = torch.arange(starts.shape[1], device=device) >= counts[:, None]
            starts = starts[..., 0].masked_fill(past, -1)
        return Batch(*pad(self.text), second, starts)
