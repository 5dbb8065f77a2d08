"""Running students over text."""

import numpy as np
import torch

from common.batching import sorted_batches
from common.data import Split
from common.progress import bar
from common.tokens import EncodedText
from compression.embeddings import Tokenizer
from compression.students.student import Student

_BATCH = 256
_CHUNK = 20_000
"""Sentences made into tokens at a time: tokenizers think in lists, which take far more memory than what comes out."""


def encode_split(tokenizer: Tokenizer, split: Split) -> list[EncodedText]:
    """Token ids of a split: one EncodedText, or two for pairs."""
    return [_encode(tokenizer, sentences) for sentences in split.sentences()]


def _encode(tokenizer: Tokenizer, sentences: list[str]) -> EncodedText:
    starts = range(0, max(len(sentences), 1), _CHUNK)
    return EncodedText.joined([tokenizer.encode(sentences[start : start + _CHUNK]) for start in starts])


def bucket_lengths(encoded: list[EncodedText]) -> np.ndarray:
    """One length a row to make batches by: the sum over its sentences."""
    return np.sum([text.lengths for text in encoded], axis=0)


def batch_of(
    encoded: list[EncodedText], rows: np.ndarray, device: torch.device
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a student is called with for these rows: (ids [batch, time, width], lengths [batch]) of each sentence."""
    return [tuple(torch.from_numpy(array).to(device) for array in text.pad(rows)) for text in encoded]


def forward(student: Student, encoded: list[EncodedText], rows: np.ndarray, device: torch.device) -> torch.Tensor:
    """Logits of a batch of rows, [batch, outputs]."""
    return student(*batch_of(encoded, rows, device))


def student_logits(
    student: Student, encoded: list[EncodedText], device: torch.device, label: str = "student"
) -> np.ndarray:
    """Logits of every row, float32 [n, outputs], in the rows' order."""
    lengths = bucket_lengths(encoded)
    batches = sorted_batches(lengths, _BATCH)
    was_training = student.training
    student.eval()
    with torch.inference_mode():
        parts = [forward(student, encoded, rows, device).float().cpu().numpy() for rows in bar(batches, label)]
    student.train(was_training)
    result = np.zeros((len(lengths), parts[0].shape[1]), np.float32)
    for rows, part in zip(batches, parts, strict=True):
        result[rows] = part
    return result
