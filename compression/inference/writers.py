"""Writers of answers (labels and probabilities, tags of words, or parts of contexts) as lines, CSV, TSV or JSONL."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from common.errors import UserError
from common.kinds.iob import as_iob, entities
from common.kinds.multilabel import JOINED_BY
from compression.inference.classifier import Classifier
from compression.inference.explain import Drops
from compression.inference.texts import Format, Row, Texts
from compression.runtime.spans import best_span
from compression.runtime.words import word_spans

DIGITS = 6
"""Decimal places of a probability or a score."""
CHOSEN_FROM = 0.5
"""Default minimum probability of a multilabel model's predicted labels."""

SHOWN_WORDS = 10
"""Number of words of a sentence in an explanation in lines and tables: those with the largest effect."""
NO_LABEL = "none of these"
"""Text shown if no label is probable enough; null in JSONL. For multilabel it is used in lines only: in tables the cell
is empty, as in a task's files, and in JSONL the list is empty."""


NO_ANSWER = "no answer"
"""Text shown for a question without an answer in its context; null in JSONL."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """A model's values for a row and, if requested, the drops that explain the answer.

    values: a probability per label; for tagged words, a list of these for each word; for a regression, one score; for a
    question, two logits for "no answer" and for each word of the context.
    """

    values: list
    drops: Drops | None = None


Writer = Callable[[Row, Answer], str]
"""Function from a row and its answer to a line of text, including the newline."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Options of a writer. top: number of labels, None for all in their own order; least: minimum probability."""

    top: int | None = None
    least: float | None = None
    explain: bool = False


def choose(labels: Sequence[str], probabilities: Sequence[float], least: float | None = None) -> str | None:
    """Return the most probable label, the first one if tied; None if its probability is below `least`."""
    most = max(probabilities)
    return labels[probabilities.index(most)] if most >= (least or 0) else None


@dataclasses.dataclass(frozen=True)
class TextAnswers:
    """Answers to whole texts: the most probable of the model's labels."""

    model: Classifier
    wanted: Wanted

    @property
    def labels(self) -> tuple[str, ...]:
        """The model's labels."""
        return self.model.labels

    def shown(self, values: list[float]) -> list[tuple[str, float]]:
        """Return labels with their probabilities: all in their own order, or the `top` most probable ones."""
        pairs = list(zip(self.labels, values, strict=True))
        return pairs if self.wanted.top is None else sorted(pairs, key=lambda pair: -pair[1])[: self.wanted.top]

    def choice(self, values: list[float]) -> str:
        """Return the answer: a label, or NO_LABEL."""
        return choose(self.labels, values, self.wanted.least) or NO_LABEL

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table."""
        explanation = ["explanation"] if self.wanted.explain else []
        if self.wanted.top is None:
            return ["predicted_label", *(f"probability_{label}" for label in self.labels), *explanation]
        ranks = range(1, min(self.wanted.top, len(self.labels)) + 1)
        return ["predicted_label", *(f"{name}_{i}" for i in ranks for name in ("label", "probability")), *explanation]

    def cells(self, row: Row, answer: Answer) -> list[str]:
        """Return the cells of these columns."""
        cells = [self.choice(answer.values)]
        for label, probability in self.shown(answer.values):
            cells += [*([] if self.wanted.top is None else [label]), f"{probability:.{DIGITS}f}"]
        return [*cells, *([] if answer.drops is None else [explanation_text(answer.drops)])]

    def fields(self, row: Row, answer: Answer) -> dict[str, Any]:
        """Return the fields added to a JSON object."""
        explanation = {} if answer.drops is None else {"explanation": explanation_lists(answer.drops)}
        label = choose(self.labels, answer.values, self.wanted.least)
        shown = [(each, round(probability, DIGITS)) for each, probability in self.shown(answer.values)]
        if self.wanted.top is None:
            return {"predicted_label": label, "probabilities": dict(shown), **explanation}
        top = [{"label": each, "probability": probability} for each, probability in shown]
        return {"predicted_label": label, "top": top, **explanation}

    def lines(self, row: Row, answer: Answer) -> str:
        """Return 'positive <tab> negative 0.012876 <tab> positive 0.987124': a label, and each label's probability.

        An explanation is a separate line below, indented by a tab.
        """
        shown = self.shown(answer.values)
        cells = [self.choice(answer.values), *(f"{label} {value:.{DIGITS}f}" for label, value in shown)]
        below = "" if answer.drops is None else f"\t{explanation_text(answer.drops)}\n"
        return "\t".join(cells) + "\n" + below


def explanation_text(drops: Drops) -> str:
    """Return 'gorgeous +0.4102  witty +0.1250  a -0.0010': the words with the largest effect, in decreasing order.

    The words of a pair's two sentences are separated by ' | '.
    """
    most = (sorted(words, key=lambda each: -abs(each[1]))[:SHOWN_WORDS] for words in drops)
    return " | ".join("  ".join(f"{word} {drop:+.4f}" for word, drop in words) for words in most)


def explanation_lists(drops: Drops) -> list:
    """Return [word, drop] for every word in order; for a pair, a list of these for each sentence."""
    lists = [[[word, round(drop, DIGITS)] for word, drop in words] for words in drops]
    return lists[0] if len(lists) == 1 else lists


@dataclasses.dataclass(frozen=True)
class LabelsAnswers(TextAnswers):
    """Answers to whole texts that have any number of labels: those with a probability of at least `least`."""

    def chosen(self, values: list[float]) -> list[str]:
        """Return the labels of a text."""
        least = CHOSEN_FROM if self.wanted.least is None else self.wanted.least
        return [label for label, value in zip(self.labels, values, strict=True) if value >= least]

    def choice(self, values: list[float]) -> str:
        """Return the labels as one text; empty if there are none."""
        return JOINED_BY.join(self.chosen(values))

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table."""
        return ["predicted_labels", *super().columns[1:]]

    def fields(self, row: Row, answer: Answer) -> dict[str, Any]:
        """Return the fields added to a JSON object."""
        of_label = super().fields(row, answer)
        del of_label["predicted_label"]
        return {"predicted_labels": self.chosen(answer.values), **of_label}

    def lines(self, row: Row, answer: Answer) -> str:
        """Return 'sport|war <tab> sport 0.912876 <tab> war 0.587124 <tab> art 0.012345'; NO_LABEL if none is chosen."""
        return ("" if self.chosen(answer.values) else NO_LABEL) + super().lines(row, answer)


@dataclasses.dataclass(frozen=True)
class NumberAnswers:
    """Answers to whole texts that are numbers, with the names of the kind's values."""

    model: Classifier
    wanted: Wanted

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table."""
        explanation = ["explanation"] if self.wanted.explain else []
        return [*(f"predicted_{name}" for name in self.model.kind.value_names), *explanation]

    def cells(self, row: Row, answer: Answer) -> list[str]:
        """Return the cells of these columns."""
        numbers = [f"{value:.{DIGITS}f}" for value in answer.values]
        return [*numbers, *([] if answer.drops is None else [explanation_text(answer.drops)])]

    def fields(self, row: Row, answer: Answer) -> dict[str, Any]:
        """Return the fields added to a JSON object."""
        values = [round(value, DIGITS) for value in answer.values]
        explanation = [] if answer.drops is None else [explanation_lists(answer.drops)]
        return dict(zip(self.columns, [*values, *explanation], strict=True))

    def lines(self, row: Row, answer: Answer) -> str:
        """Return the numbers, with tabs between them, and an explanation on a line below, indented by a tab."""
        numbers = "\t".join(f"{value:.{DIGITS}f}" for value in answer.values)
        return numbers + "\n" + ("" if answer.drops is None else f"\t{explanation_text(answer.drops)}\n")


@dataclasses.dataclass(frozen=True)
class TagAnswers:
    """Answers to the words of texts: IOB tags. Because of padding, an answer may have more words than the row."""

    model: Classifier
    wanted: Wanted
    columns = ("predicted_tags",)

    def tagged(self, row: Row, answer: Answer) -> tuple[list[str], list[str]]:
        """Return a row's words and their most probable tags, the first one if tied."""
        words = row.sentences[0].split()
        return words, [str(choose(self.model.labels, each)) for each, _ in zip(answer.values, words, strict=False)]

    def lines(self, row: Row, answer: Answer) -> str:
        """Return one line per word with its tag, and an empty line, as in a file of tagged words."""
        return as_iob(*self.tagged(row, answer))

    def cells(self, row: Row, answer: Answer) -> list[str]:
        """Return one cell: the tags separated by spaces."""
        return [" ".join(self.tagged(row, answer)[1])]

    def fields(self, row: Row, answer: Answer) -> dict[str, Any]:
        """Return the tags, and the entities in them: kind, text, index of the first word, and 1 + that of the last."""
        words, tags = self.tagged(row, answer)
        found = [
            {"kind": kind, "text": " ".join(words[first:end]), "first": first, "end": end}
            for kind, first, end in entities(tags)
        ]
        return {"predicted_tags": tags, "entities": found}


@dataclasses.dataclass(frozen=True)
class SpanAnswers:
    """Answers to questions: parts of their contexts."""

    model: Classifier
    wanted: Wanted
    columns = ("predicted_answer", "probability")

    def answered(self, row: Row, answer: Answer) -> tuple[str | None, float]:
        """Return a row's answer, or None, and its probability, the product of those of its start and its end."""
        context = row.sentences[1]
        words = word_spans(context, self.model.plain_words)
        logits = np.array(answer.values[: 1 + len(words)], np.float32)
        chosen = best_span(logits, self.model.threshold)
        first, last = (0, 0) if chosen is None else (1 + chosen[0], 1 + chosen[1])
        outcomes = logits if chosen is None or self.model.threshold is not None else logits[1:]
        start, end = np.exp(logits - np.logaddexp.reduce(outcomes)).T
        text = None if chosen is None else context[words[chosen[0]][0] : words[chosen[1]][1]]
        return text, float(start[first] * end[last])

    def lines(self, row: Row, answer: Answer) -> str:
        """Return 'wonderful <tab> 0.912876': the answer, or NO_ANSWER, and its probability."""
        return "\t".join(self.cells(row, answer)) + "\n"

    def cells(self, row: Row, answer: Answer) -> list[str]:
        """Return the cells of these columns."""
        text, probability = self.answered(row, answer)
        return [NO_ANSWER if text is None else text, f"{probability:.{DIGITS}f}"]

    def fields(self, row: Row, answer: Answer) -> dict[str, Any]:
        """Return the fields added to a JSON object: null if there is no answer."""
        text, probability = self.answered(row, answer)
        return {"predicted_answer": text, "probability": round(probability, DIGITS)}


Answers = TextAnswers | NumberAnswers | TagAnswers | SpanAnswers
ANSWERS: dict[str, type[Answers]] = {
    "labels": TextAnswers,
    "multilabel": LabelsAnswers,
    "tags": TagAnswers,
    "answers": SpanAnswers,
}
"""Name of a kind -> how its answers are written; others are numbers."""


def make_writer(kind: Format, texts: Texts, model: Classifier, wanted: Wanted) -> tuple[str, Writer]:
    """Return the header text and the function that writes a row.

    Raises UserError for a name that the input already has.
    """
    answers = ANSWERS.get(model.kind.name, NumberAnswers)(model, wanted)
    if kind == "lines":
        return "", answers.lines
    if kind == "jsonl":
        return "", _json_writer(texts, answers)
    for name in answers.columns:
        _refuse_twice(name, texts.header, "the input")
    line = _tsv_line if kind == "tsv" else functools.partial(_csv_line, texts.delimiter)
    header = line([*texts.header, *answers.columns])
    return header, lambda row, answer: line([*row.cells, *answers.cells(row, answer)])


def _csv_line(delimiter: str, cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _tsv_line(cells: list[str]) -> str:
    """Return a line of TSV. Quotes are ordinary text, so tabs and newlines, which cannot be quoted, become spaces."""
    return "\t".join(re.sub(r"[\t\r\n]+", " ", cell) for cell in cells) + "\n"


def _json_writer(texts: Texts, answers: Answers) -> Writer:
    def write(row: Row, answer: Answer) -> str:
        given = dict(zip(texts.header, row.cells, strict=True)) if row.fields is None else row.fields
        added = answers.fields(row, answer)
        for name in added:
            _refuse_twice(name, given, f"line {row.line}")
        text = json.dumps({**given, **added}, ensure_ascii=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot encode
            text = json.dumps({**given, **added})
        return text + "\n"

    return write


def _refuse_twice(name: str, given: Any, where: str) -> None:
    if name in given:
        raise UserError(f"{where} already has {name!r}; rename it, or use --output-format lines")
