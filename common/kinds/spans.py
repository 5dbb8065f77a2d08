"""Answers as spans of a context: conversion between characters (in files and splits) and words (in models).

A context's words are numbered from 1. Word 0 stands for "no answer", so that every row has values for [1 + words],
whether its question can be answered or not.
"""

import functools
from collections.abc import Sequence

import numpy as np

from common.kinds.ragged import padded

# The same words and answers as in packed students; see pyproject.toml.
from compression.runtime.spans import best_answers
from compression.runtime.words import word_spans as divide

ENDS = ("start", "end")
"""The outputs of a model for each word: whether the answer starts there, and whether it ends there."""
NO_ANSWER = (0, 0)
"""The span, of characters or of words, that means "no answer"."""


def word_spans(text: str) -> np.ndarray:
    """Return the characters [start, end) of a text's words, int64 [words, 2].

    "$5.3bn" -> "$", "5", ".", "3bn". Unlike `split_words`, it splits "Ann's", because "Ann" may be an answer.
    """
    return np.array(divide(text), np.int64).reshape(-1, 2)


def to_words(answers: np.ndarray, contexts: Sequence[str]) -> np.ndarray:
    """Return the first and last word of each row's first answer, int64 [n, 2]; -1 if unknown.

    answers: characters [start, end) of each answer, int64 [n, answers, 2], -1 after a row's last one. An answer that
    starts or ends within a word is extended to the whole word.
    """
    spans = np.full((len(answers), 2), -1, np.int64)
    for row, (start, end) in enumerate(answers[:, 0]):
        if (start, end) == NO_ANSWER:
            spans[row] = NO_ANSWER
        elif start >= 0:
            words = word_spans(contexts[row])
            touched = np.flatnonzero((words[:, 1] > start) & (words[:, 0] < end))
            # An answer without a letter, digit or sign, such as a control character, cannot be found.
            spans[row] = (touched[0] + 1, touched[-1] + 1) if len(touched) else NO_ANSWER
    return spans


def to_characters(chosen: np.ndarray, contexts: Sequence[str]) -> np.ndarray:
    """Return answers as characters [start, end), int64 [n, 1, 2], from their first and last words, int64 [n, 2]."""
    answers = np.zeros((len(chosen), 1, 2), np.int64)
    for row, (first, last) in enumerate(chosen):
        if first > 0:
            words = word_spans(contexts[row])
            answers[row] = words[first - 1, 0], words[last - 1, 1]
    return answers


def within_words(answers: np.ndarray, contexts: Sequence[str]) -> int:
    """Return how many rows have a first answer that begins or ends within a word. answers: as in `to_words`."""
    count, words = 0, functools.lru_cache(maxsize=1)(divide)  # rows of one context follow each other
    for (start, end), context in zip(answers[:, 0].tolist(), contexts, strict=True):
        if end > 0:
            starts, ends = zip(*(words(context) or [NO_ANSWER]), strict=True)
            count += start not in starts or end not in ends
    return count


def of_present_words(logits: np.ndarray, contexts: Sequence[str]) -> np.ndarray:
    """Return logits of `word_spans` from those of the words of older files, [n, 1 + words, 2], NaN after a row's last.

    A word has the logits of the older words that start and end where it does, or the row's lowest one.
    """
    rows = []
    for values, context in zip(logits, contexts, strict=True):
        older, present = np.array(divide(context, plain=True)).reshape(-1, 2), word_spans(context)
        values = values[: 1 + len(older)]
        row = np.full((1 + len(present), 2), values.min(), np.float32)
        row[0] = values[0]
        for side in range(2):
            _, index, place = np.intersect1d(present[:, side], older[:, side], return_indices=True)
            row[1 + index, side] = values[1 + place, side]
        rows.append(row)
    return padded(np.concatenate(rows), np.array(list(map(len, rows))))


def texts_of(answers: np.ndarray, contexts: Sequence[str]) -> list[list[str]]:
    """Return the text of each answer of each row, "" for no answer. answers: as in `to_words`."""
    rows = zip(answers.tolist(), contexts, strict=True)
    return [[context[start:end] for start, end in row if start >= 0] for row, context in rows]


def best_spans(logits: np.ndarray, threshold: float | None) -> np.ndarray:
    """Return first and last word of each row's best answer, int64 [n, 2], NO_ANSWER if it is not probable enough.

    logits, and the best answer: as in `best_answers`. threshold: least probability of an answer; None: "no answer" is
    only chosen if the context has no words.
    """
    chosen, probabilities = best_answers(logits)
    if threshold is not None:
        chosen[probabilities < threshold] = NO_ANSWER
    return chosen
