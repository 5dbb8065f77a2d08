"""Words of the test rows that speak for each label: those without which its probability falls the most."""

from __future__ import annotations

import itertools
import string
from collections import Counter, defaultdict
from collections.abc import Iterator

from compression.inference.classifier import Classifier, Sentences
from compression.inference.explain import MOST_WORDS, leave_one_out

_CHARACTERS = 1_000_000
"""Characters that the student reads for this: about a second."""
_WORDS = 8
"""Words of a label."""


def evidence(model: Classifier, texts: Sentences) -> dict[str, tuple[str, ...]]:
    """Return up to eight words for each label, the strongest first; labels that are no text's answer are left out.

    A word's strength is the sum of its drops (`leave_one_out`) over the texts with this answer. Of many or long texts,
    the first ones are read.
    """
    read = list(_within(texts, _CHARACTERS))
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


def _within(texts: Sentences, characters: int) -> Iterator[tuple[str, ...]]:
    """Yield the first texts, as many as can be read with each word left out in this number of characters."""
    for text in texts:
        characters -= sum(map(len, text)) * sum(min(MOST_WORDS, len(sentence.split())) for sentence in text)
        if characters < 0:
            return
        yield text
