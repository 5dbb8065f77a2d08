"""How many terms the losses of a batch are means over: a part's share of them is its weight in the batch's loss.

The losses of texts are means over rows, those of words over words, whose number differs between the parts of a batch.
"""

import numpy as np
import torch

from common.data.ragged import EncodedText
from compression.students.batch import EncodedRows


def label_terms(encoded: EncodedRows, labels: np.ndarray, rows: np.ndarray) -> int:
    """Return the number of terms of `common.training.losses.label_loss` over some rows.

    labels: targets of all rows; for spans, the first and last word of each answer, int64 [n, 2].
    """
    words = encoded.word_starts
    if words is None:
        return len(rows)
    if encoded.max_tokens is None:
        return int(words.lengths[rows].sum())
    starts, _ = _padded(words, rows)
    return int((np.take_along_axis(starts, labels[rows], 1) < encoded.max_tokens).sum())


def logits_terms(encoded: EncodedRows, loss: str, rows: np.ndarray) -> int:
    """Return the number of terms of the loss between a student's and a teacher's logits over some rows.

    loss: its name, as in the settings.
    """
    words = encoded.word_starts
    if words is None:
        return len(rows)
    if encoded.max_tokens is None:
        return int(words.lengths[rows].sum())
    starts, present = _padded(words, rows)
    if loss == "mse":
        return int((present & (starts < encoded.max_tokens)).sum())
    # Start and end are classes of a row; the mean of temperature-softmax is over padding too.
    return len(rows) if loss == "kl" else present.size


def framed_lengths(encoded: EncodedRows, rows: np.ndarray) -> torch.Tensor:
    """Return the lengths of some rows as a transformer reads them, with special tokens, int64 [rows]."""
    lengths = encoded.lengths[rows].reshape(len(rows), -1)
    return torch.from_numpy(1 + (lengths + 1).sum(1))


def _padded(words: EncodedText, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each word's first token, int64 [rows, words], and whether there is a word."""
    starts, counts = words.pad(rows)
    return starts[..., 0], np.arange(starts.shape[1]) < counts[:, None]
