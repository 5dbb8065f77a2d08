"""Scores of answers to questions, as SQuAD's evaluation script 2.0 computes them (Rajpurkar et al., 2016, 2018).

For questions with answers they equal those of script 1.1, with one exception: if neither the answer nor the gold answer
has a word ("the", for example), F1 is 1 and not 0.
"""

import collections
import re
import string
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_words(text: str) -> list[str]:
    """Return the words of an answer that are compared: lower-cased, without ASCII punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split()


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if two answers have the same words in the same order, else 0."""
    return float(answer_words(answer) == answer_words(gold))


def overlap_f1(answer: str, gold: str) -> float:
    """Return the F1 of an answer's words, counted with repetitions; if either answer has no words, `exact_match`."""
    words, expected = answer_words(answer), answer_words(gold)
    if not words or not expected:
        return float(words == expected)
    same = (collections.Counter(words) & collections.Counter(expected)).total()
    return 2 * same / (len(words) + len(expected))


def row_scores(answers: Sequence[str], gold: Sequence[Sequence[str]]) -> np.ndarray:
    """Return exact match and F1 of each row's answer, float64 [n, 2]: the best over its gold answers.

    answers: "" for no answer; gold: at least one per row; those without words are ignored if others have some.
    """
    scores = np.zeros((len(answers), 2))
    for row, (answer, expected) in enumerate(zip(answers, gold, strict=True)):
        expected = [text for text in expected if answer_words(text)] or [""]
        scores[row] = [max(compare(answer, text) for text in expected) for compare in (exact_match, overlap_f1)]
    return scores
