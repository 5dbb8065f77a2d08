"""Running students over text."""

import numpy as np
import torch

from common.data.ragged import EncodedText, count_words, padded
from common.data.split import Split
from common.progress import bar
from common.training.batching import sorted_batches
from compression.students.layers import inside
from compression.students.student import Student
from compression.tokenizers import Tokenizer

_BATCH = 256
_CHUNK = 20_000
"""Sentences made into tokens at a time: tokenizers think in lists, which take far more memory than what comes out."""


def encode_split(tokenizer: Tokenizer, split: Split) -> list[EncodedText]:
    """Token ids of a split: one EncodedText, or two for pairs; of tokens a text, and its words' places in it."""
    if split.tokens:
        return encode_words(tokenizer, split.sentence1)
    return [_encode(tokenizer, sentences) for sentences in split.sentences()]


def encode_words(tokenizer: Tokenizer, sentences: list[str]) -> list[EncodedText]:
    """Token ids of texts whose words, between single spaces, are encoded each by itself, and where each word begins.

    A word that is cut off has the last token's place.
    """
    counts = count_words(sentences)
    words = _encode(tokenizer, [word + tokenizer.after_word for text in sentences for word in text.split(" ")])
    owner = np.repeat(np.arange(len(sentences)), counts)
    whole = np.bincount(owner, words.lengths, len(sentences)).astype(np.int64)
    nothing = np.zeros(words.ids.shape[1])  # never needed: every word has a token
    text = EncodedText.from_flat(words.ids, whole, nothing, tokenizer.max_tokens)
    starts = words.offsets[:-1] - np.repeat(np.cumsum(whole) - whole, counts)
    places = np.minimum(starts, text.lengths[owner] - 1)
    return [text, EncodedText(places[:, None].astype(np.int32), np.concatenate([[0], np.cumsum(counts)]))]


def _encode(tokenizer: Tokenizer, sentences: list[str]) -> EncodedText:
    starts = range(0, max(len(sentences), 1), _CHUNK)
    return EncodedText.joined([tokenizer.encode(sentences[start : start + _CHUNK]) for start in starts])


def bucket_lengths(encoded: list[EncodedText]) -> np.ndarray:
    """One length a row to make batches by: the sum over its sentences, or over tokens and words."""
    return np.sum([text.lengths for text in encoded], axis=0)


def batch_of(
    encoded: list[EncodedText], rows: np.ndarray, device: torch.device
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a student is called with for these rows: (ids [batch, time, width], lengths [batch]) of each sentence."""
    return [tuple(torch.from_numpy(array).to(device) for array in text.pad(rows)) for text in encoded]


def forward(student: Student, encoded: list[EncodedText], rows: np.ndarray, device: torch.device) -> torch.Tensor:
    """Logits of a batch of rows, [batch, outputs]; of tokens those of all words in a row, [words, outputs]."""
    sentences = batch_of(encoded, rows, device)
    return in_a_row(student, student(*sentences), sentences)


def in_a_row(
    student: Student, logits: torch.Tensor, sentences: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """A student's answers to a batch without padding: of tokens [batch, words, outputs] -> [words, outputs]."""
    return logits[inside(logits, sentences[1][1])[..., 0]] if student.tokens else logits


def student_logits(
    student: Student, encoded: list[EncodedText], device: torch.device, label: str = "student"
) -> np.ndarray:
    """Logits of every row, float32 [n, outputs], in the rows' order; of tokens padded, [n, words, outputs]."""
    lengths = bucket_lengths(encoded)
    batches = sorted_batches(lengths, _BATCH)
    was_training = student.training
    student.eval()
    with torch.inference_mode():
        parts = [forward(student, encoded, rows, device).float().cpu().numpy() for rows in bar(batches, label)]
    student.train(was_training)
    order = np.concatenate(batches)
    counts = encoded[1].lengths[order] if student.tokens else np.ones(len(order), np.int64)
    made = padded(np.concatenate(parts), counts)  # [n, words, outputs], in the batches' order
    result = np.empty_like(made)
    result[order] = made
    return result if student.tokens else result[:, 0]
