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
    answer; None: any context has one.
    """
    ((first, last),), (probability,) = (values.tolist() for values in best_answers(logits[None]))
    unlikely = threshold is not None and probability < threshold
    return None if unlikely or not first else (first - 1, last - 1)


def best_answers(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return first and last word of each row's best answer, int64 [n, 2], and its probability, float64 [n].

    logits: of start and end for each word, float32 [n, 1 + words, 2], NaN after a row's last word. The best answer has
    at most LONGEST_ANSWER words and the largest sum of its two logits (Devlin et al., 2019, section 4.2); ties go to
    the shortest answer, then to the first. Its probability is that of the answer against "no answer": the sigmoid of
    the difference of their sums. A context without words has the words 0 and 0, with probability 0.
    """
    scores = np.where(np.isnan(logits), -np.inf, logits)
    start, end = scores[:, 1:, 0], scores[:, 1:, 1]
    rows, words = np.arange(len(logits)), start.shape[1]
    best = np.full(len(logits), -np.inf)
    chosen = np.zeros((len(logits), 2), np.int64)
    for more in range(min(LONGEST_ANSWER, words)):
        sums = start[:, : words - more] + end[:, more:]
        first = sums.argmax(1)
        better = sums[rows, first] > best
        best = np.where(better, sums[rows, first], best)
        chosen[better] = np.stack([first, first + more], 1)[better] + 1
    return chosen, np.exp(-np.logaddexp(0, logits[:, 0].sum(1) - best))
