"""Teachers from Hugging Face that answer questions: any encoder with a head for start and end (Devlin et al., 2019).

Question and context are one sequence. A context that is too long is read in windows, each after the question, that
overlap by a third of `max_tokens` (BERT's 128 of 384); a word's logits are those of the window where it has the most
context on both sides. All words of a row share one softmax, whatever their window (Clark and Gardner, 2018, section 3).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from common.data.split import Split
from common.devices import autocast
from common.errors import UserError
from common.kinds.ragged import EncodedText, offsets_of
from common.kinds.spans import word_spans
from common.stopping import check
from common.teachers.huggingface.teacher import HuggingFaceTeacher, with_segments

FEWEST_TOKENS = 32
"""Smallest max_tokens: less leaves no room for windows next to a question."""
_CHUNK = 512
"""Rows tokenized at a time: a tokenizer's own output takes far more memory than what is kept of it."""


@dataclasses.dataclass(frozen=True)
class EncodedQuestions:
    """Windows over the contexts of n rows.

    windows: word pieces and segments of all windows; first_windows: int64 [n + 1], row i has the windows from
    first_windows[i] to first_windows[i + 1]; words: for "no answer" (word 0, zeros) and each word of the context: its
    window, counted from the row's first one, and the indices in it of the word's first and last piece.
    """

    windows: EncodedText
    first_windows: np.ndarray
    words: EncodedText

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row in all its windows, int64 [n]."""
        return np.diff(self.windows.offsets[self.first_windows])


class HuggingFaceAnswerer(HuggingFaceTeacher):
    """A fine-tuned encoder that finds answers, with its tokenizer."""

    head = "AutoModelForQuestionAnswering"

    def encode(self, split: Split) -> EncodedQuestions:
        """Return the windows of every row. Raises UserError if max_tokens leaves no room for them."""
        if self.max_tokens < FEWEST_TOKENS:
            raise UserError(f"--max-tokens {self.max_tokens}: a question and its context need at least {FEWEST_TOKENS}")
        contexts = split.sentence2 or []
        chunks, counts, words = [], [], []
        for start in range(0, len(split), _CHUNK):
            check()
            rows = slice(start, start + _CHUNK)
            tokens = self._windows(split.sentence1[rows], contexts[rows])
            chunks.append(with_segments(tokens, self.max_tokens))
            of_row = np.array(tokens["overflow_to_sample_mapping"])
            for row, context in enumerate(contexts[rows]):
                parts = [_piece_spans(tokens, window) for window in np.flatnonzero(of_row == row)]
                counts.append(len(parts))
                words.append(_places(word_spans(context), parts))
        return EncodedQuestions(EncodedText.joined(chunks), offsets_of(counts), EncodedText.of(words))

    def pieces(self, split: Split) -> EncodedText:
        """Return the word pieces and segment ids of single texts or pairs, cut at max_tokens."""
        return super().encode(split)

    def forward(self, encoded: EncodedQuestions, rows: np.ndarray) -> torch.Tensor:
        """Return the logits of a batch's words, float32 [batch, 1 + words, 2], NaN after a row's last word.

        The logits of "no answer" are those of the first token, minimised over the row's windows: one window that may
        hold the answer is enough (Alberti et al., 2019, section 3).
        """
        first, last = encoded.first_windows[rows], encoded.first_windows[rows + 1]
        windows = np.concatenate([np.arange(*limits) for limits in zip(first, last, strict=True)])
        with autocast(self.dtype, self.device):
            output = self.model(**self._arguments(encoded.windows, windows))
        logits = torch.stack([output.start_logits, output.end_logits], 2).float()  # [windows, tokens, 2]
        row = torch.from_numpy(np.repeat(np.arange(len(rows)), last - first)).to(self.device)
        none = logits.new_full((len(rows), 2), torch.inf)
        none = none.scatter_reduce(0, row[:, None].expand(-1, 2), logits[:, 0], "amin")
        places, counts = encoded.words.pad(rows)
        window = offsets_of(last - first)[:-1, None] + places[..., 0]
        index = torch.from_numpy(window[..., None] * logits.shape[1] + places[..., 1:]).to(self.device)
        of_words = logits.flatten(0, 1).gather(0, index.flatten(0, 1)).unflatten(0, index.shape[:2])
        of_words = torch.cat([none[:, None], of_words[:, 1:]], 1)
        past = torch.from_numpy(np.arange(places.shape[1]) >= counts[:, None]).to(self.device)
        return of_words.masked_fill(past[..., None], torch.nan)

    def _windows(self, questions: Sequence[str], contexts: Sequence[str]) -> Any:
        """Return the tokenizer's output for all windows. A question takes a quarter of max_tokens at most."""
        cut = self.tokenizer(
            list(questions),
            truncation=True,
            max_length=self.max_tokens // 4,
            add_special_tokens=False,
            return_offsets_mapping=True,
        )
        ends = [max((end for _, end in spans), default=0) for spans in cut["offset_mapping"]]
        return self.tokenizer(
            [question[:end] for question, end in zip(questions, ends, strict=True)],
            list(contexts),
            truncation="only_second",
            max_length=self.max_tokens,
            stride=self.max_tokens // 3,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )


def _piece_spans(tokens: Any, window: int) -> tuple[int, np.ndarray]:
    """Return the index of a window's first context piece, and the characters of all of these, int64 [pieces, 2]."""
    inside = np.flatnonzero([text == 1 for text in tokens.sequence_ids(window)])
    spans = np.array(tokens["offset_mapping"][window], np.int64)
    return int(inside[0]) if len(inside) else 0, spans[inside].reshape(-1, 2)


def _places(words: np.ndarray, windows: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return window, first piece and last piece of "no answer" (zeros) and of each word, int32 [1 + words, 3].

    words: their characters, int64 [words, 2]; windows: as `_piece_spans` returns them. A word without a piece gets that
    of a neighbour.
    """
    places = np.zeros((len(words) + 1, 3), np.int32)
    best = np.full(len(words), -1)
    for window, (begin, pieces) in enumerate(windows):
        count = len(pieces)
        if not count:
            continue
        # The first piece that ends after the word's start, and the last one that starts before its end.
        first = np.searchsorted(pieces[:, 1], words[:, 0], side="right")
        last = np.searchsorted(pieces[:, 0], words[:, 1], side="left") - 1
        inside = (first < count) & (last >= 0)
        margin = np.where(inside, 1 + np.minimum(first, count - 1 - last), 0)
        better = margin > best
        best = np.where(better, margin, best)
        ends = np.stack([np.full(len(words), window), first.clip(0, count - 1), last.clip(0, count - 1)], 1)
        ends[:, 1:] += begin
        places[1:][better] = ends[better]
    return places
