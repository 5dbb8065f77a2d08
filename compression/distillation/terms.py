"""How many terms the losses of a batch are means over: a part's share of them is its weight in the batch's loss.

The losses of texts are means over rows, those of words over words, whose number differs between the parts of a batch.
"""

import numpy as np

from common.training.distillation_losses import LOSSES
from compression.students.batch import EncodedRows


def loss_terms(encoded: EncodedRows, labels: np.ndarray, loss: str, rows: np.ndarray) -> tuple[int, int]:
    """Return the numbers of terms of the loss of labels and of the loss between logits, over some rows.

    labels: targets of all rows; for spans, the first and last word of each answer, int64 [n, 2]. loss: name of the loss
    between a student's and a teacher's logits, as in the settings.
    """
    if encoded.word_starts is None:
        return len(rows), len(rows)
    padded, counts = encoded.word_starts.pad(rows)
    if encoded.max_tokens is None:
        return int(counts.sum()), int(counts.sum())
    starts = padded[..., 0]  # the index of each word's first token, [rows, words]
    read = starts < encoded.max_tokens
    of_labels = np.take_along_axis(read, labels[rows], 1).sum()
    if LOSSES[loss].distributions:  # start and end are classes of a row; a mean over values is over padding too
        of_logits = len(rows) if LOSSES[loss].over_rows else starts.size
    else:
        of_logits = (read & (np.arange(starts.shape[1]) < counts[:, None])).sum()
    return int(of_labels), int(of_logits)
