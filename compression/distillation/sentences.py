"""Pairs of consecutive texts to pre-train on: is the second the next one (BERT), or are the two in order (ALBERT)?

A text is divided at the sentence end nearest its middle, or between two words if it has only one sentence. Half of the
pairs are changed: the second text is replaced by another pair's (Devlin et al., 2019, section 3.1, task 2), or the two
are exchanged (Lan et al., 2020, section 3.1).
"""

from __future__ import annotations

import numpy as np
import torch

from common.kinds.ragged import EncodedText, offsets_of
from compression.distillation.settings import SentenceTask
from compression.students.batch import Batch, EncodedRows
from compression.tokenizers import TeacherTokenizer
from compression.tokenizers.bytelevel import SPACE

ENDS = (".", "!", "?")
"""Pieces that end a sentence."""


def divided(text: EncodedText, tokenizer: TeacherTokenizer) -> EncodedRows:
    """Return each text divided into a pair of parts; texts of one word are left out.

    tokenizer: the one that encoded the text.
    """
    ends = np.isin([piece.removeprefix(SPACE) for piece in tokenizer.pieces], ENDS)[text.ids[:, 0]]
    begins = tokenizer.begins_word[text.ids[:, 0]]
    lengths = text.lengths
    steps = np.arange(len(text.ids)) - np.repeat(text.offsets[:-1], lengths)
    most = 1 + lengths.max()
    # A cost for each position, lowest for the best: after a sentence's end, then nearest the middle, then earliest.
    places = np.where(np.roll(ends, 1), 0, most) + np.abs(2 * steps - np.repeat(lengths, lengths))
    places = np.where(begins & (steps > 0), places * most + steps, 2 * most**2)
    best = np.minimum.reduceat(places, text.offsets[:-1])
    cuts, kept = best % most, best < 2 * most**2
    is_first, is_kept = steps < np.repeat(cuts, lengths), np.repeat(kept, lengths)
    first = EncodedText(text.ids[is_kept & is_first], offsets_of(cuts[kept]))
    return EncodedRows(first, EncodedText(text.ids[is_kept & ~is_first], offsets_of((lengths - cuts)[kept])))


def changed(batch: Batch, task: SentenceTask) -> tuple[Batch, torch.Tensor]:
    """Return a batch with about half of its pairs changed, and int64 [batch], 1 where a pair is unchanged, else 0.

    PyTorch's CPU generator draws the pairs. For "next", a batch of one pair is unchanged: there is no other text.
    """
    first, second = batch.sentences
    stays = torch.rand(len(first.lengths)).to(first.ids.device) < 0.5
    if task == "order":
        return Batch(*_chosen(stays, first, second), Batch(*_chosen(stays, second, first))), stays.long()
    stays = stays | (len(stays) == 1)
    other = Batch(second.ids.roll(1, 0), second.lengths.roll(1, 0))
    return Batch(first.ids, first.lengths, Batch(*_chosen(stays, second, other))), stays.long()


def _chosen(first: torch.Tensor, one: Batch, other: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and lengths of a batch that has the rows of `one` where `first` is true, else those of `other`."""
    time = max(one.ids.shape[1], other.ids.shape[1])
    ids = [torch.nn.functional.pad(text.ids, (0, 0, 0, time - text.ids.shape[1])) for text in (one, other)]
    lengths = torch.where(first, one.lengths, other.lengths)
    return torch.where(first[:, None, None], *ids)[:, : int(lengths.max())], lengths
