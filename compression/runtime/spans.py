"""Answers to questions: the words of a context, and the best span of them."""

from __future__ import annotations

import re

import numpy as np

LONGEST_ANSWER = 30
"""Words of the longest answer."""
_SPAN_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the characters [start, end) of a text's words: runs of letters and digits, or one other sign."""
    return [match.span() for match in _SPAN_WORD.finditer(text)]


def best_span(logits: np.ndarray, threshold: float | None) -> tuple[int, int] | None:
    """Return the first and the last word, from 0, of the best answer; None if there is none.

    logits: of start and end, float32 [1 + words, 2], those of "no answer" first. threshold: least probability of the
    answer compared with "no answer", the sigmoid of the difference of their summed logits; None: any context has one.
    """
    none, start, end = float(logits[0].sum()), logits[1:, 0], logits[1:, 1]
    best, found = -np.inf, None
    for more in range(min(LONGEST_ANSWER, len(start))):
        sums = start[: len(start) - more] + end[more:]
        first = int(sums.argmax())
        if sums[first] > best:
            best, found = float(sums[first]), (first, first + more)
    unlikely = threshold is not None and np.exp(-np.logaddexp(0, none - best)) < threshold
    return None if unlikely else found
