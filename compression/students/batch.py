"""A batch of token ids, a student's only argument, and the encoded rows that batches are taken from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from common.kinds.ragged import EncodedText
from compression.runtime import windows_of
from compression.students.encoders import padding_mask


@dataclasses.dataclass(frozen=True)
class Batch:
    """Padded token ids of some rows.

    ids: int64 [batch, time, width]; lengths: int64 [batch], at least 1; second: the second sentences of pairs;
    word_starts: if every word has logits, the index of its first token, int64 [batch, words], -1 after the last word.
    For pairs these are the words of the second text, after an entry for "no answer", which is not an index; -1 also
    where the text is cut before the word.
    """

    ids: torch.Tensor
    lengths: torch.Tensor
    second: Batch | None = None
    word_starts: torch.Tensor | None = None

    @property
    def sentences(self) -> tuple[Batch, ...]:
        """The sentences as separate batches: one, or two for pairs."""
        return (self,) if self.second is None else (self, self.second)

    def without_words(self, share: float, unknown: Sequence[int]) -> Batch:
        """Return the batch with a share of its tokens replaced, drawn by PyTorch's CPU generator; padding stays.

        unknown: integers of the token that replaces them, [width].
        """
        draws = torch.rand(self.ids.shape[:2]).to(self.ids.device)
        dropped = padding_mask(self.ids, self.lengths) & (draws < share)[..., None]
        ids = torch.where(dropped, torch.tensor(unknown, device=self.ids.device), self.ids)
        second = None if self.second is None else self.second.without_words(share, unknown)
        return dataclasses.replace(self, ids=ids, second=second)


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """Token ids of many rows. second: the second sentences of pairs; word_starts: if words have logits, width 1.

    max_tokens: for questions, whose contexts (second) are whole, the number of tokens that a student reads at a time.
    `batch` cuts contexts there, which is for training; `windows` divides them, so that all words have logits.
    """

    text: EncodedText
    second: EncodedText | None = None
    word_starts: EncodedText | None = None
    max_tokens: int | None = None

    def __len__(self) -> int:
        return len(self.text)

    @property
    def columns(self) -> list[EncodedText]:
        """The columns that are not None."""
        return [column for column in (self.text, self.second, self.word_starts) if column is not None]

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row's text in a batch, int64 [n]; for pairs, of both texts, int64 [n, 2]."""
        first = self.text.lengths
        if self.second is None:
            return first
        second = self.second.lengths
        return np.stack([first, second if self.max_tokens is None else np.minimum(second, self.max_tokens)], 1)

    def batch(self, rows: np.ndarray, device: torch.device) -> Batch:
        """Return the batch of these rows."""

        def pad(text: EncodedText, max_tokens: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
            ids, lengths = text.pad(rows, max_tokens)
            return torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device)

        second = None if self.second is None else Batch(*pad(self.second, self.max_tokens))
        starts = None
        if self.word_starts is not None:
            padded, counts = pad(self.word_starts)
            starts = padded[..., 0]
            past = torch.arange(starts.shape[1], device=device) >= counts[:, None]
            if self.max_tokens is not None:
                past |= starts >= self.max_tokens
            starts = starts.masked_fill(past, -1)
        return Batch(*pad(self.text), second, starts)

    def windows(self) -> tuple[EncodedRows, np.ndarray]:
        """Return the windows of questions' contexts as rows, each with its question, and how many each row has.

        A window has the entry of "no answer" and the words that belong to it; see compression.runtime.spans.
        """
        columns, counts = ([], [], []), []
        for row in range(len(self)):
            question, context, starts = (column[row] for column in self.columns)
            none, words = starts[:1], starts[1:]
            windows = windows_of(words[:, 0], len(context), self.max_tokens)
            counts.append(len(windows))
            for tokens, of_window in windows:
                window = question, context[tokens], np.concatenate([none, words[of_window] - tokens.start])
                for column, value in zip(columns, window, strict=True):
                    column.append(value)
        return EncodedRows(*map(EncodedText.of, columns), self.max_tokens), np.array(counts, np.int64)
