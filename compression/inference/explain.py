"""Leave-one-out explanations: how much each word contributes to an answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from compression.inference.classifier import Classifier, Sentences
from compression.inference.texts import chunks

MOST_WORDS = 256
"""Only the first MOST_WORDS words of a text, or of each text of a pair, are left out in turn."""
VARIANTS, CHARACTERS = 1024, 1_000_000
"""Maximum number of shortened texts classified at a time, and of characters in them."""

Drops = list[list[tuple[str, float]]]
"""For each sentence of a text, (word, drop of the answer's value without it) in the order of the words."""


class _Variant(NamedTuple):
    row: int
    sentence: int
    word: str
    text: tuple[str, ...]


def leave_one_out(model: Classifier, texts: Sentences, values: Sequence[Sequence[float]]) -> list[Drops]:
    """Return the drops of every text; each occurrence of a word is left out separately.

    values: the model's values for the complete texts: probabilities, or one score. A drop is by how much the
    highest of these values falls without the word. A word with a negative drop is evidence against the answer.
    """
    answers = [row.index(max(row)) for row in values]
    drops: list[Drops] = [[[] for _ in text] for text in texts]
    for variants in chunks(_variants(texts), lambda variant: variant.text, VARIANTS, CHARACTERS):
        shortened = model.probabilities([variant.text for variant in variants]).tolist()
        for variant, without in zip(variants, shortened, strict=True):
            answer = answers[variant.row]
            drop = values[variant.row][answer] - without[answer]
            drops[variant.row][variant.sentence].append((variant.word, drop))
    return drops


def _variants(texts: Sentences) -> Iterator[_Variant]:
    for row, text in enumerate(texts):
        for sentence, whole in enumerate(text):
            words = whole.split()
            for place, word in enumerate(words[:MOST_WORDS]):
                rest = " ".join(itertools.chain(words[:place], words[place + 1 :]))
                yield _Variant(row, sentence, word, (*text[:sentence], rest, *text[sentence + 1 :]))
