"""Writers of answers (labels and probabilities, tags of words, or parts of contexts) as lines, CSV, TSV or JSONL."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import re
from collections.abc import Callable, Container, Sequence
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


Writer = Callable[[Row, list, Drops | None], str]
"""Function from a row, the model's values for it and, if asked for, their explanation, to text with its newline."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a writer. top: number of labels, None for all in their own order; least: minimum probability."""

    top: int | None = None
    least: float | None = None
    explain: bool = False


def choose(labels: Sequence[str], probabilities: Sequence[float], least: float | None = None) -> str | None:
    """Return the most probable label, the first one if tied; None if its probability is below `least`."""
    most = max(probabilities)
    return labels[probabilities.index(most)] if most >= (least or 0) else None


@dataclasses.dataclass(frozen=True)
class Answers:
    """Base class of the ways in which answers are written, one for each kind of task.

    values, in all methods: a probability per label; for tagged words, a list of these for each word; for numbers, the
    numbers; for a question, two logits for "no answer" and for each word of the context.
    """

    model: Classifier
    options: Options

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table."""
        raise NotImplementedError

    def cells(self, row: Row, values: list) -> list[str]:
        """Return the cells of these columns."""
        raise NotImplementedError

    def fields(self, row: Row, values: list) -> dict[str, Any]:
        """Return the fields added to a JSON object."""
        raise NotImplementedError

    def lines(self, row: Row, values: list) -> str:
        """Return the answer as one line or several."""
        return "\t".join(self.cells(row, values)) + "\n"


class _OneLabel(Answers):
    """Lines: 'positive <tab> negative 0.012876 <tab> positive 0.987124', a label, and each label's probability."""

    def shown(self, values: list[float]) -> list[tuple[str, float]]:
        """Return labels with their probabilities: all in their own order, or the `top` most probable ones."""
        pairs = list(zip(self.model.labels, values, strict=True))
        return pairs if self.options.top is None else sorted(pairs, key=lambda pair: -pair[1])[: self.options.top]

    def chosen(self, values: list[float]) -> Any:
        """Return the most probable label; None if its probability is below `least`, by default the model's."""
        least = self.model.threshold if self.options.least is None else self.options.least
        return choose(self.model.labels, values, least)

    def choice(self, values: list[float]) -> str:
        return self.chosen(values) or NO_LABEL

    @property
    def columns(self) -> list[str]:
        labels = self.model.labels
        if self.options.top is None:
            return ["predicted_label", *(f"probability_{label}" for label in labels)]
        ranks = range(1, min(self.options.top, len(labels)) + 1)
        return ["predicted_label", *(f"{name}_{i}" for i in ranks for name in ("label", "probability"))]

    def cells(self, row: Row, values: list[float]) -> list[str]:
        cells = [self.choice(values)]
        for label, probability in self.shown(values):
            cells += [*([] if self.options.top is None else [label]), f"{probability:.{DIGITS}f}"]
        return cells

    def fields(self, row: Row, values: list[float]) -> dict[str, Any]:
        predicted = self.chosen(values)
        shown = {label: round(probability, DIGITS) for label, probability in self.shown(values)}
        if self.options.top is None:
            return {"predicted_label": predicted, "probabilities": shown}
        top = [{"label": label, "probability": probability} for label, probability in shown.items()]
        return {"predicted_label": predicted, "top": top}

    def lines(self, row: Row, values: list[float]) -> str:
        shown = (f"{label} {value:.{DIGITS}f}" for label, value in self.shown(values))
        return "\t".join([self.choice(values), *shown]) + "\n"


class _SeveralLabels(_OneLabel):
    """Lines: 'sport|war <tab> sport 0.912876 <tab> war 0.587124 <tab> art 0.012345'; NO_LABEL if none is chosen."""

    def chosen(self, values: list[float]) -> list[str]:
        """Return the labels with a probability of at least `least`."""
        least = CHOSEN_FROM if self.options.least is None else self.options.least
        return [label for label, value in zip(self.model.labels, values, strict=True) if value >= least]

    def choice(self, values: list[float]) -> str:
        return JOINED_BY.join(self.chosen(values))

    @property
    def columns(self) -> list[str]:
        return ["predicted_labels", *super().columns[1:]]

    def fields(self, row: Row, values: list[float]) -> dict[str, Any]:
        of_label = super().fields(row, values)
        del of_label["predicted_label"]
        return {"predicted_labels": self.chosen(values), **of_label}

    def lines(self, row: Row, values: list[float]) -> str:
        return ("" if self.chosen(values) else NO_LABEL) + super().lines(row, values)


class _Numbers(Answers):
    @property
    def columns(self) -> list[str]:
        return [f"predicted_{name}" for name in self.model.kind.value_names]

    def cells(self, row: Row, values: list[float]) -> list[str]:
        return [f"{value:.{DIGITS}f}" for value in values]

    def fields(self, row: Row, values: list[float]) -> dict[str, Any]:
        return {name: round(value, DIGITS) for name, value in zip(self.columns, values, strict=True)}


class _Tags(Answers):
    """IOB tags of words. Lines are those of a file of tagged words. A cell is the tags separated by spaces."""

    columns = ("predicted_tags",)

    def tagged(self, row: Row, values: list[list[float]]) -> tuple[list[str], list[str]]:
        """Return a row's words and their most probable tags, the first one if tied."""
        words = row.sentences[0].split()
        # Because of padding, there may be values of more words than the row has.
        return words, [str(choose(self.model.labels, of_word)) for of_word, _ in zip(values, words, strict=False)]

    def lines(self, row: Row, values: list[list[float]]) -> str:
        return as_iob(*self.tagged(row, values))

    def cells(self, row: Row, values: list[list[float]]) -> list[str]:
        return [" ".join(self.tagged(row, values)[1])]

    def fields(self, row: Row, values: list[list[float]]) -> dict[str, Any]:
        """Return the tags, and the entities in them: kind, text, index of the first word, and 1 + that of the last."""
        words, tags = self.tagged(row, values)
        listed = [
            {"kind": kind, "text": " ".join(words[first:end]), "first": first, "end": end}
            for kind, first, end in entities(tags)
        ]
        return {"predicted_tags": tags, "entities": listed}


class _PartsOfContexts(Answers):
    """Answers to questions. Lines: 'wonderful <tab> 0.912876', the answer, or NO_ANSWER, and its probability."""

    columns = ("predicted_answer", "probability")

    def answered(self, row: Row, values: list[list[float]]) -> tuple[str | None, float]:
        """Return a row's answer, or None, and its probability, the product of those of its start and its end."""
        context = row.sentences[1]
        words = word_spans(context, self.model.plain_words)
        logits = np.array(values[: 1 + len(words)], np.float32)
        chosen = best_span(logits, self.model.threshold)
        first, last = (0, 0) if chosen is None else (1 + chosen[0], 1 + chosen[1])
        outcomes = logits if chosen is None or self.model.threshold is not None else logits[1:]
        start, end = np.exp(logits - np.logaddexp.reduce(outcomes)).T
        text = None if chosen is None else context[words[chosen[0]][0] : words[chosen[1]][1]]
        return text, float(start[first] * end[last])

    def cells(self, row: Row, values: list[list[float]]) -> list[str]:
        text, probability = self.answered(row, values)
        return [NO_ANSWER if text is None else text, f"{probability:.{DIGITS}f}"]

    def fields(self, row: Row, values: list[list[float]]) -> dict[str, Any]:
        text, probability = self.answered(row, values)
        return {"predicted_answer": text, "probability": round(probability, DIGITS)}


def explanation_text(drops: Drops) -> str:
    """Return 'gorgeous +0.4102  witty +0.1250  a -0.0010': the words with the largest effect, in decreasing order.

    The words of a pair's two sentences are separated by ' | '.
    """
    most = (sorted(words, key=lambda word: -abs(word[1]))[:SHOWN_WORDS] for words in drops)
    return " | ".join("  ".join(f"{word} {drop:+.4f}" for word, drop in words) for words in most)


def explanation_lists(drops: Drops) -> list:
    """Return [word, drop] for every word in order; for a pair, a list of these for each sentence."""
    lists = [[[word, round(drop, DIGITS)] for word, drop in words] for words in drops]
    return lists[0] if len(lists) == 1 else lists


ANSWERS: dict[str, type[Answers]] = {
    "labels": _OneLabel,
    "multilabel": _SeveralLabels,
    "tags": _Tags,
    "answers": _PartsOfContexts,
}
"""Name of a kind -> how its answers are written; others are numbers."""


def make_writer(kind: Format, texts: Texts, model: Classifier, options: Options) -> tuple[str, Writer]:
    """Return the header text and the function that writes a row.

    Raises UserError for a name that the input already has.
    """
    answers = ANSWERS.get(model.kind.name, _Numbers)(model, options)
    if kind == "lines":
        return "", functools.partial(_lines, answers)
    if kind == "jsonl":
        return "", functools.partial(_json_line, answers, texts.header)
    columns = [*answers.columns, *(["explanation"] if options.explain else [])]
    for name in columns:
        _refuse_twice(name, texts.header, "the input")
    line = _tsv_line if kind == "tsv" else functools.partial(_csv_line, texts.delimiter)

    def write(row: Row, values: list, drops: Drops | None) -> str:
        explanation = [] if drops is None else [explanation_text(drops)]
        return line([*row.cells, *answers.cells(row, values), *explanation])

    return line([*texts.header, *columns]), write


def _lines(answers: Answers, row: Row, values: list, drops: Drops | None) -> str:
    # An explanation is a line of its own, indented by a tab.
    return answers.lines(row, values) + ("" if drops is None else f"\t{explanation_text(drops)}\n")


def _csv_line(delimiter: str, cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _tsv_line(cells: list[str]) -> str:
    # Quotes are ordinary text, so tabs and newlines, which cannot be quoted, become spaces.
    return "\t".join(re.sub(r"[\t\r\n]+", " ", cell) for cell in cells) + "\n"


def _json_line(answers: Answers, header: list[str], row: Row, values: list, drops: Drops | None) -> str:
    fields = dict(zip(header, row.cells, strict=True)) if row.fields is None else row.fields
    added = answers.fields(row, values) | ({} if drops is None else {"explanation": explanation_lists(drops)})
    for name in added:
        _refuse_twice(name, fields, f"line {row.line}")
    text = json.dumps({**fields, **added}, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot encode
        text = json.dumps({**fields, **added})
    return text + "\n"


def _refuse_twice(name: str, names: Container[str], where: str) -> None:
    if name in names:
        raise UserError(f"{where} already has {name!r}; rename it, or use --output-format lines")
