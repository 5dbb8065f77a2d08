"""Kinds of task: what a model's logits mean, and how they become answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from .reader import PackedError
from .spans import best_span
from .words import word_spans

BY_WORD, MULTILABEL = 4, 8
"""Bits of the settings' flags that tell kinds apart; with both, a byte with the kind's `code` follows the flags."""
NONE = "none of these"
"""What the command line prints for a text without a label."""


class Kind:
    """One label a text, the most probable one. Other kinds override its methods."""

    name: ClassVar[str] = "labels"
    bits: ClassVar[int] = 0
    """Bits of the settings' flags."""
    code: ClassVar[int | None] = None
    """Number of a kind that has both bits."""
    has_probabilities: ClassVar[bool] = True
    """Whether its files have a temperature."""
    has_threshold: ClassVar[bool] = True
    """Whether its files may have a threshold, if there are two labels."""
    rejects: ClassVar[bool] = False
    """Whether a text has no answer if its most probable label is less probable than the file's threshold."""

    def outputs(self, labels: Sequence[str]) -> int:
        """Return the number of a model's outputs."""
        return len(labels)

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        """Return probabilities, float32 [..., outputs]; for numbers, these. Raises PackedError if there are none."""
        return to_probabilities(logits, temperature)

    def answers(self, model: Any, texts: Sequence) -> list:
        """Return the answer to each text, see `Model.predict`."""
        return [self.answer(model, row) for row in model.probabilities(texts).tolist()]

    def lines(self, model: Any, texts: Sequence) -> Iterator[str]:
        """Yield what the command line prints for each text, such as the answer and each label's probability."""
        for row in model.probabilities(texts).tolist():
            shares = "\t".join(f"{label} {share:.6f}" for label, share in zip(model.labels, row))
            yield f"{self.shown(model, row)}\t{shares}"

    def answer(self, model: Any, probabilities: Sequence[float]) -> Any:
        """Return the answer with these probabilities."""
        return model.labels[probabilities.index(max(probabilities))]

    def shown(self, model: Any, probabilities: Sequence[float]) -> str:
        """Return the answer with these probabilities as the command line prints it."""
        answer = self.answer(model, probabilities)
        return NONE if answer is None else answer


class LabelOrNone(Kind):
    """One label a text, the most probable one, or none if that is less probable than the threshold."""

    bits, code = BY_WORD | MULTILABEL, 1
    rejects = True

    def answer(self, model: Any, probabilities: Sequence[float]) -> str | None:
        return super().answer(model, probabilities) if max(probabilities) >= model.threshold else None


class SeveralLabels(Kind):
    """Any number of labels a text: those with a probability of at least 0.5."""

    name = "multilabel"
    bits = MULTILABEL
    has_threshold = False

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        return to_probabilities(logits, temperature, independent=True)

    def answer(self, model: Any, probabilities: Sequence[float]) -> list[str]:
        return [label for label, p in zip(model.labels, probabilities) if p >= 0.5]

    def shown(self, model: Any, probabilities: Sequence[float]) -> str:
        return "|".join(self.answer(model, probabilities)) or NONE


class ANumber(Kind):
    """A number a text, scaled to [0, 1]."""

    name = "numbers"
    has_probabilities = has_threshold = False

    def outputs(self, labels: Sequence[str]) -> int:
        return 1

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        return logits

    def answers(self, model: Any, texts: Sequence) -> list:
        return model.probabilities(texts)[:, 0].tolist()

    def lines(self, model: Any, texts: Sequence) -> Iterator[str]:
        return (f"{number:.6f}" for number in self.answers(model, texts))


class TagsOfWords(Kind):
    """A tag for each word of a text; single spaces separate words."""

    name = "tags"
    bits = BY_WORD
    has_probabilities = has_threshold = False

    def answers(self, model: Any, texts: Sequence) -> list:
        texts = [text for (text,) in model.tidied(texts)]
        counts = (len(text.split()) for text in texts)
        rows = zip(model.probabilities(texts), counts)
        return [[model.labels[i] for i in row[:n].argmax(-1).tolist()] for row, n in rows]

    def lines(self, model: Any, texts: Sequence) -> Iterator[str]:
        for text, tags in zip(texts, self.answers(model, texts)):
            yield "".join(f"{word}\t{tag}\n" for word, tag in zip(text.split(), tags))


class PartsOfContexts(Kind):
    """An answer to a question, the first text: a part of its context, the second text."""

    name = "answers"
    bits = BY_WORD
    has_probabilities = False

    def probabilities(self, logits: np.ndarray, temperature: float) -> np.ndarray:
        raise PackedError("a model that answers questions has no probabilities of labels")

    def answers(self, model: Any, texts: Sequence) -> list:
        pairs = model.tidied(texts)
        answers = []
        for (_, context), logits in zip(pairs, model.logits(pairs)):
            words = word_spans(context, model.plain_words)
            best = best_span(logits[: 1 + len(words)], model.threshold)
            answers.append("" if best is None else context[words[best[0]][0] : words[best[1]][1]])
        return answers

    def lines(self, model: Any, texts: Sequence) -> Iterator[str]:
        return iter(self.answers(model, texts))


KINDS: dict[str, Kind] = {
    "labels or none": LabelOrNone(),
    **{kind.name: kind for kind in (Kind(), SeveralLabels(), ANumber(), TagsOfWords(), PartsOfContexts())},
}
"""Name of a kind -> its object. A further kind has both bits and a `code`, and adds itself here."""


def kind_with(bits: int, code: int | None, pair: bool, labels: Sequence[str]) -> Kind:
    """Return the kind of a file. code: with both bits, the kind's. Raises PackedError if it is unknown."""
    if bits == BY_WORD:
        return KINDS["answers" if pair else "tags"]
    if bits == MULTILABEL:
        return KINDS["multilabel"]
    if not bits:
        return KINDS["labels" if labels else "numbers"]
    for kind in KINDS.values():
        if kind.code == code:
            return kind
    raise PackedError(f"a kind of task with the unknown number {code}")


def to_probabilities(logits: np.ndarray, temperature: float = 1.0, independent: bool = False) -> np.ndarray:
    """Return softmax(logits / temperature), or for independent labels the sigmoid. logits: float32 [..., outputs]."""
    if independent:
        return np.exp(-np.logaddexp(0, -logits / temperature))
    powers = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return powers / powers.sum(-1, keepdims=True)
