"""Answers to questions: parts of the questions' contexts."""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError
from common.kinds.base import ANSWERED_FROM, Contexts, Definition, PaddedKind, shares
from common.kinds.spans import ENDS, best_spans, texts_of, to_characters, to_words, word_spans

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

_LOGIT_LIMIT = 8.0
"""In files of logits, those that are further than this below a row's highest are raised to it."""
_LOGIT_STEPS = 16
"""There, logits are rounded to multiples of 1 / _LOGIT_STEPS."""
_IGNORED = -100
"""Class that cross-entropy leaves out."""
_IMPOSSIBLE = -1e4
"""Logit of padding; finite, because the difference of two infinite logits would be NaN."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Answers(PaddedKind):
    """Questions, each with a context that contains its answer.

    Labels are int64 [n, answers, 2], the characters [start, end) of each answer in the context, [0, 0) for no answer,
    and -1 after a row's last answer. Logits are of start and end for each of the context's words, after an entry for
    "no answer": [n, 1 + words, 2]. Choices are the first and last word, int64 [n, 2]; see common.kinds.spans.
    """

    name = "answers"
    labelled_things = "answers"
    metrics = default_metrics = ("answer_f1", "exact_match")
    fields = ("unanswerable",)
    fixed_labels = ENDS
    always_pairs = True
    has_classes = False
    augments = False
    files = "questions"
    prediction = "predicted_answer"

    def check(self, task: Definition) -> None:
        if task.labels != ENDS or task.label_values or task.equivalence is not None:
            raise ValueError("kind: a task of kind answers has no labels: an answer is a part of its context")
        if task.columns != {"sentence1": "text", "label": "label"} or task.source.where or task.source.header:
            raise ValueError("kind: files of kind answers are SQuAD's JSON, which has no columns")
        if task.symmetric:
            raise ValueError("symmetric: a question and its context cannot be exchanged")

    def check_student(self, task: Definition, arch: str, attends: bool, symmetric: bool) -> None:
        if not attends:
            raise UserError(f"question answering ({task.name}) needs --pair-encoder align or compose, or a transformer")
        if symmetric:
            raise UserError(f"--symmetric: the question and the context of {task.name} cannot be exchanged")

    def check_adoption(self, task: Definition, arch: str, ours: bool) -> None:
        raise UserError(f"--as-is: question answering ({task.name}) is not supported: fine-tune an encoder")

    def shape(self, task: Definition) -> tuple[int, ...]:
        return (1, 2)

    def known(self, labels: np.ndarray) -> np.ndarray:
        """Return which answers a row has, bool [n, answers]."""
        return labels[..., 0] >= 0

    def counts(self, labels: np.ndarray, task: Definition) -> None:
        return None

    def balance(self, labels: np.ndarray, task: Definition) -> dict[str, Any]:
        answered = labels[self.labelled(labels)][:, 0].any(1)
        return shares({"answer": int(answered.sum()), "no answer": int((~answered).sum())}, len(answered))

    def word_counts(self, first: Sequence[str], second: Sequence[str] | None) -> np.ndarray:
        """Return 1 + the number of words of each context, int64 [n]."""
        return np.array([1 + len(word_spans(context)) for context in second or []], np.int64)

    def compact_logits(self, logits: np.ndarray) -> np.ndarray:
        limited = np.maximum(logits, np.nanmax(logits, axis=1, keepdims=True) - _LOGIT_LIMIT)
        return np.round(limited * _LOGIT_STEPS) / _LOGIT_STEPS

    def targets(self, task: Definition, labels: np.ndarray, contexts: Contexts = None) -> np.ndarray:
        """Return the first and the last word of each row's first answer, int64 [n, 2]."""
        return to_words(labels, contexts or [])

    def label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of starts and ends, each a classification over a row's words.

        logits: padded, [batch, 1 + words, 2], NaN at words that a student cut off; targets: int64 [batch, 2]; the mean
        is over the ends of answers that have a logit.
        """
        from torch.nn import functional as F

        # An end that was cut off cannot be found: no other word is right instead, and nothing is learned from it.
        cut = logits.gather(1, targets[:, None])[:, 0].isnan()
        kept = targets.masked_fill(cut, _IGNORED)
        return F.cross_entropy(_by_ends(logits), kept.flatten(), reduction="sum") / (~cut).sum().clamp(min=1)

    def compared(self, logits: Tensor, teacher: Tensor, distributions: bool) -> tuple[Tensor, Tensor]:
        """Return the distributions of starts and ends over words, or the logits of all words."""
        # The teacher's are padded to the longest row of all, and it read words that the student did not.
        teacher = teacher[:, : logits.shape[1]].masked_fill(logits.isnan(), float("nan"))
        if distributions:
            return _by_ends(logits), _by_ends(teacher)
        return logits[~logits.isnan()], teacher[~teacher.isnan()]

    def choices(self, task: Definition, logits: np.ndarray, threshold: float = ANSWERED_FROM) -> np.ndarray:
        """Return the first and last word of each row's best answer, int64 [n, 2]."""
        return best_spans(logits, threshold if task.unanswerable else None)

    def fill(self, labels: np.ndarray, labelled: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> np.ndarray:
        labels = labels.copy()
        labels[~labelled] = -1
        unanswered = [contexts[row] for row in np.flatnonzero(~labelled)] if contexts else []
        labels[~labelled, :1] = to_characters(chosen, unanswered)
        return labels

    def confidence(self, task: Definition, logits: np.ndarray) -> np.ndarray:
        """Return the start's probability times the end's, float32 [n].

        Each is a softmax over the words, and "no answer", if there may be none.
        """
        chosen, possible = self.choices(task, logits), logits.copy()
        if not task.unanswerable:
            possible[chosen[:, 0] > 0, 0] = np.nan
        shares_of_words = np.exp(possible - np.nanmax(possible, 1, keepdims=True))
        shares_of_words /= np.nansum(shares_of_words, 1, keepdims=True)
        return np.take_along_axis(shares_of_words, chosen[:, None], 1)[:, 0].prod(1)

    def scores(self, task: Definition, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, float]:
        """Return SQuAD's metrics, means over questions, in [0, 1]."""
        exact, f1 = answer_scores(labels, chosen, contexts or ()).mean(0)
        scores = {"exact_match": exact, "answer_f1": f1}
        return {name: float(scores[name]) for name in task.all_metrics}

    def right(self, labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return (labels == chosen).all(1)

    def prediction_columns(self, labels: np.ndarray, chosen: np.ndarray, contexts: Contexts) -> dict[str, pa.Array]:
        import pyarrow as pa

        contexts, unknown = contexts or [], ~self.labelled(labels)
        exact, f1 = answer_scores(labels, chosen, contexts).T
        return {
            "prediction": pa.array([text for (text,) in texts_of(to_characters(chosen, contexts), contexts)]),
            "exact_match": pa.array(exact, mask=unknown),
            "answer_f1": pa.array(f1, mask=unknown),
        }


def answer_scores(labels: np.ndarray, chosen: np.ndarray, contexts: Sequence[str]) -> np.ndarray:
    """Return exact match and F1 of each row, float64 [n, 2]. labels: as in Answers; chosen: words, int64 [n, 2]."""
    answers = [text for (text,) in texts_of(to_characters(chosen, contexts), contexts)]
    return row_scores(answers, texts_of(labels, contexts))


def _by_ends(logits: Tensor) -> Tensor:
    # Start and end are two classifications over a row's words: [batch, words, 2] -> [2 batch, words].
    return logits.masked_fill(logits.isnan(), _IMPOSSIBLE).transpose(1, 2).flatten(0, 1)


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

    They are those of SQuAD's evaluation script 2.0 (Rajpurkar et al., 2016, 2018). For questions with answers they
    equal those of script 1.1, with one exception: if neither the answer nor the gold answer has a word ("the", for
    example), F1 is 1 and not 0.

    answers: "" for no answer; gold: at least one per row; those without words are ignored if others have some.
    """
    scores = np.zeros((len(answers), 2))
    for row, (answer, expected) in enumerate(zip(answers, gold, strict=True)):
        expected = [text for text in expected if answer_words(text)] or [""]
        scores[row] = [max(compare(answer, text) for text in expected) for compare in (exact_match, overlap_f1)]
    return scores
