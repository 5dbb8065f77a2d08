"""Answers to questions: the words of a context, the windows in which it is read, and the best span of words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LONGEST_ANSWER = 30
"""Words of the longest answer."""


def windows_of(starts: Sequence[int], tokens: int, max_tokens: int) -> list[tuple[slice, slice]]:
    """Return the tokens and the words of each window in which a context is read, in order.

    starts: index of each word's first token; tokens: number of tokens of the context; no word has more than max_tokens.
    A context of at most max_tokens tokens is one window. Else a window has max_tokens tokens, and the next one begins
    with the last word that leaves an overlap of at least a third of this. The last window begins with the first word
    from which max_tokens tokens reach the context's end: answers are found better in a long window. Each word belongs
    to the window in which it has the most context on both sides, which changes in the middle of an overlap.
    """
    if tokens <= max_tokens:
        return [(slice(0, tokens), slice(0, len(starts)))]
    places = np.array(starts)
    centres = places + np.append(places[1:], tokens)  # start plus end of each word: twice its centre
    last = int(np.searchsorted(places, tokens - max_tokens))
    windows, begin, word = [], 0, 0
    while tokens - begin > max_tokens:
        end = begin + max_tokens
        following = int(np.searchsorted(places, end - max_tokens // 3, "right")) - 1
        if places[following] == begin:  # a word too long for such an overlap
            following += 1
        begin_next = int(places[min(following, last)])
        word_next = int(np.searchsorted(centres, begin_next + end, "right"))  # beyond the middle of the overlap
        windows.append((slice(begin, end), slice(word, word_next)))
        begin, word = begin_next, word_next
    return [*windows, (slice(begin, tokens), slice(word, len(starts)))]


def merge_windows(logits: np.ndarray, counts: np.ndarray, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of contexts, from those of their windows, and how many each context has, int64 [contexts].

    logits: of "no answer" and of each word, for all windows, concatenated, [sum of counts, 2]; counts: how many each
    window has, int64 [windows]; windows: how many each context has, int64 [contexts]. The logits of "no answer" are
    their minimum over a context's windows: one window that may hold the answer is enough (Alberti et al., 2019,
    section 3).
    """
    none, first = np.cumsum(counts) - counts, np.cumsum(windows) - windows
    merged, kept = logits.copy(), np.ones(len(logits), bool)
    merged[none[first]] = np.minimum.reduceat(logits[none], first)
    kept[np.delete(none, first)] = False
    return merged[kept], np.add.reduceat(counts - 1, first) + 1


def best_span(logits: np.ndarray, threshold: float | None) -> tuple[int, int] | None:
    """Return the first and the last word, from 0, of the best answer; None if there is none.

    logits: of start and end, float32 [1 + words, 2], those of "no answer" first. threshold: least probability of the
    answer compared with "no answer", the sigmoid of the difference of their summed logits; None: any context has one.
    """
    none, start, end = float(logits[0].sum()), logits[1:, 0], logits[1:, 1]
    best, span = -np.inf, None
    for more in range(min(LONGEST_ANSWER, len(start))):
        sums = start[: len(start) - more] + end[more:]
        first = int(sums.argmax())
        if sums[first] > best:
            best, span = float(sums[first]), (first, first + more)
    unlikely = threshold is not None and np.exp(-np.logaddexp(0, none - best)) < threshold
    return None if unlikely else span
