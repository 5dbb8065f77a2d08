"""Words of the test rows that speak for each label: those without which its probability falls the most."""

from __future__ import annotations

import itertools
import string
from collections import Counter, defaultdict
from collections.abc import Iterator

from compression.inference.classifier import Classifier, Sentences
from compression.inference.explain import leave_one_out

_WORDS = 8
"""Words of a label."""
_MOST_WORDS = 30
"""First words of a text that are read: a text is read once without each of its words."""
_CHARACTERS = 1_000_000
"""Characters that the student reads in all: about a second."""


def evidence(model: Classifier, texts: Sentences) -> dict[str, tuple[str, ...]]:
    """Return up to eight words for each label, the strongest first; labels that are no text's answer are left out.

    A word's strength is the sum of its drops (`leave_one_out`) over the texts with this answer. Of long texts the
    beginnings are read, of many texts the first ones.
    """
    read = list(_beginnings(texts))
    values = model.probabilities(read).tolist() if read else []
    strengths: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for drops, row in zip(leave_one_out(model, read, values), values, strict=True):
        answer = model.labels[row.index(max(row))]
        for word, drop in itertools.chain.from_iterable(drops):
            strengths[answer][word.strip(string.punctuation).lower()] += drop
    return {
        label: tuple(word for word, strength in words.most_common() if word and strength > 0)[:_WORDS]
        for label, words in strengths.items()
    }


def _beginnings(texts: Sentences) -> Iterator[tuple[str, ...]]:
    """Yield the first words of the first texts, as many as can be read once without each word."""
    left = _CHARACTERS
    for text in texts:
        words = [sentence.split()[:_MOST_WORDS] for sentence in text]
        beginning = tuple(map(" ".join, words))
        left -= sum(map(len, words)) * sum(map(len, beginning))
        if left < 0:
            return
        yield beginning
