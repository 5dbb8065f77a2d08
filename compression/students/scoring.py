"""Running students over text."""

import numpy as np
import torch

from common.data.split import Split
from common.kinds.ragged import EncodedText, offsets_of, padded
from common.progress import bar
from common.training.batching import sorted_batches
from compression.runtime import merge_windows
from compression.runtime.words import word_spans
from compression.students.batch import Batch, EncodedRows
from compression.students.student import Student
from compression.tokenizers import UNCUT, Tokenizer

_BATCH = 256
_CHUNK = 20_000
"""Sentences tokenized at a time: tokenizers work with lists, which take far more memory than the result."""


def encode_split(tokenizer: Tokenizer, split: Split) -> EncodedRows:
    """Return the token ids of a split.

    If words have labels, each one (between single spaces) is encoded by itself; if questions are answered, each word of
    questions and contexts (see common.kinds.spans). Contexts are whole; all other texts are cut at max_tokens. A word
    that is cut off has the last token's index.
    """
    if not split.kind.by_word:
        return EncodedRows(*(_encode(tokenizer, sentences) for sentences in split.sentences()))
    if split.kind.always_pairs:
        question, _ = _encode_words(tokenizer, list(map(_words, split.sentence1)), tokenizer.max_tokens)
        context, starts = _encode_words(tokenizer, list(map(_words, split.sentence2 or [])), UNCUT)
        flat = np.insert(starts.ids, starts.offsets[:-1], 0, 0)  # the entry of "no answer"
        words = EncodedText(flat, starts.offsets + np.arange(len(starts.offsets)))
        return EncodedRows(question, context, words, tokenizer.max_tokens)
    text, starts = _encode_words(tokenizer, [text.split(" ") for text in split.sentence1], tokenizer.max_tokens)
    return EncodedRows(text, word_starts=starts)


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


def _encode_words(tokenizer: Tokenizer, texts: list[list[str]], max_tokens: int) -> tuple[EncodedText, EncodedText]:
    """Return the tokens of texts, encoded word by word, and the index of each word's first token, int32 [words, 1].

    max_tokens: number of tokens at which a text is cut; a word is cut at the tokenizer's own.
    """
    counts = np.array(list(map(len, texts)), np.int64)
    words = _encode(tokenizer, [tokenizer.word_format.format(word) for text in texts for word in text])
    row = np.repeat(np.arange(len(texts)), counts)  # text of each word
    lengths = np.bincount(row, words.lengths, len(texts)).astype(np.int64)
    text = EncodedText.from_flat(words.ids, lengths, tokenizer.unknown, max_tokens)
    starts = words.offsets[:-1] - offsets_of(lengths)[row]
    starts = np.minimum(starts, text.lengths[row] - 1)
    return text, EncodedText(starts[:, None].astype(np.int32), offsets_of(counts))


def _encode(tokenizer: Tokenizer, sentences: list[str]) -> EncodedText:
    starts = range(0, max(len(sentences), 1), _CHUNK)
    return EncodedText.joined([tokenizer.encode(sentences[start : start + _CHUNK]) for start in starts])


def without_padding(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return a batch's logits; if words have logits, without padding: [batch, words, outputs] -> [words, outputs]."""
    return logits if batch.word_starts is None else logits[batch.word_starts >= 0]


def for_loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return a batch's logits as common.training.losses reads them: without padding, or for spans, NaN at padding.

    A context's words that were cut off are padding too: no state stands for them.
    """
    if batch.word_starts is None or batch.second is None:
        return without_padding(logits, batch)
    return logits.masked_fill((batch.word_starts < 0)[..., None], torch.nan)


def student_logits(student: Student, rows: EncodedRows, device: torch.device, label: str = "student") -> np.ndarray:
    """Return the logits of every row, float32 [n, outputs]; if words have logits, padded, [n, words, outputs].

    Contexts of questions are read in windows, whose logits are merged; see compression.runtime.spans.
    """
    if rows.max_tokens is not None:
        rows, windows = rows.windows()
    batches = sorted_batches(rows.lengths, _BATCH)
    was_training = student.training
    student.eval()
    parts = []
    with torch.inference_mode():
        for indices in bar(batches, label):
            batch = rows.batch(indices, device)
            parts.append(without_padding(student(batch), batch).float().cpu().numpy())
    student.train(was_training)
    values, order = np.concatenate(parts), np.concatenate(batches)  # both in the batches' order
    places = np.argsort(order)
    if rows.word_starts is None:
        return values[places]
    counts = rows.word_starts.lengths
    logits = padded(values, counts[order])[places]
    if rows.max_tokens is None:
        return logits
    of_windows = logits[np.arange(logits.shape[1]) < counts[:, None]]
    return padded(*merge_windows(of_windows, counts, windows))
