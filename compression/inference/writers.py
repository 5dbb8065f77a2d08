"""Answers as text: labels and probabilities, or the tags of words, as lines, CSV, TSV or JSONL, next to the input."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
from collections.abc import Callable
from typing import Any

from common.data.iob import as_iob, entities
from common.data.tasks import JOINED_BY
from common.errors import UserError
from compression.inference.texts import Format, Row, Texts

DIGITS = 6
"""Decimal places of a probability or a score."""
CHOSEN_FROM = 0.5
"""Least probability of a label that is chosen among any number of them."""
NO_LABELS = "none of these"
"""A line's answer without a label; in a table the cell is empty, as in a task's files."""

Writer = Callable[[Row, list], str]
"""From a row and the model's values for it to text with its newline. values: a probability a label, of tagged words a
list of them for each word; of a regression one score."""


@dataclasses.dataclass(frozen=True)
class TextAnswers:
    """Answers to whole texts. labels: empty for a regression, whose one value is a score."""

    labels: tuple[str, ...]

    def choice(self, values: list[float]) -> str:
        """Return the likeliest label, the first of equals; or the score."""
        return self.labels[values.index(max(values))] if self.labels else f"{values[0]:.{DIGITS}f}"

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table."""
        if not self.labels:
            return ["predicted_score"]
        return ["predicted_label", *(f"probability_{label}" for label in self.labels)]

    def cells(self, row: Row, values: list[float]) -> list[str]:
        """Return the cells of these columns."""
        return [self.choice(values), *(f"{value:.{DIGITS}f}" for value in values if self.labels)]

    def fields(self, row: Row, values: list[float]) -> dict[str, Any]:
        """Return the fields added to a JSON object."""
        rounded = [round(value, DIGITS) for value in values]
        if not self.labels:
            return {"predicted_score": rounded[0]}
        probabilities = dict(zip(self.labels, rounded, strict=True))
        return {"predicted_label": self.choice(values), "probabilities": probabilities}

    def lines(self, row: Row, values: list[float]) -> str:
        """positive <tab> negative 0.012876 <tab> positive 0.987124: a label, and each label's probability."""
        choice, *each = self.cells(row, values)
        return "\t".join([choice, *map(" ".join, zip(self.labels, each, strict=True))]) + "\n"


@dataclasses.dataclass(frozen=True)
class LabelsAnswers(TextAnswers):
    """Answers to whole texts that have any number of labels: those with a probability of at least a half."""

    def chosen(self, values: list[float]) -> list[str]:
        """Return the labels of a text."""
        return [label for label, value in zip(self.labels, values, strict=True) if value >= CHOSEN_FROM]

    def choice(self, values: list[float]) -> str:
        """Return the labels as one text, empty for none."""
        return JOINED_BY.join(self.chosen(values))

    @property
    def columns(self) -> list[str]:
        """Names of the columns added to a table."""
        return ["predicted_labels", *super().columns[1:]]

    def fields(self, row: Row, values: list[float]) -> dict[str, Any]:
        """Return the fields added to a JSON object."""
        return {"predicted_labels": self.chosen(values), "probabilities": super().fields(row, values)["probabilities"]}

    def lines(self, row: Row, values: list[float]) -> str:
        """sport|war <tab> sport 0.912876 <tab> war 0.587124 <tab> art 0.012345; without a label NO_LABELS <tab> ..."""
        return ("" if self.chosen(values) else NO_LABELS) + super().lines(row, values)


@dataclasses.dataclass(frozen=True)
class TagAnswers:
    """Answers to the words of texts: IOB tags. values: may have more words than the row."""

    labels: tuple[str, ...]
    columns = ("predicted_tags",)

    def tagged(self, row: Row, values: list[list[float]]) -> tuple[list[str], list[str]]:
        """Return a row's words and their likeliest tags, the first of equals."""
        words = row.sentences[0].split()
        return words, [self.labels[each.index(max(each))] for each, _ in zip(values, words, strict=False)]

    def lines(self, row: Row, values: list[list[float]]) -> str:
        """A word and its tag a line, and an empty line: a file of tagged words."""
        return as_iob(*self.tagged(row, values))

    def cells(self, row: Row, values: list[list[float]]) -> list[str]:
        """One cell: the tags with spaces between them."""
        return [" ".join(self.tagged(row, values)[1])]

    def fields(self, row: Row, values: list[list[float]]) -> dict[str, Any]:
        """Tags, and the entities in them: kind, text, first word and the word after the last."""
        words, tags = self.tagged(row, values)
        found = [
            {"kind": kind, "text": " ".join(words[first:end]), "first": first, "end": end}
            for kind, first, end in entities(tags)
        ]
        return {"predicted_tags": tags, "entities": found}


def make_writer(
    kind: Format, texts: Texts, labels: tuple[str, ...], tokens: bool = False, multilabel: bool = False
) -> tuple[str, Writer]:
    """Return the text above the rows, and the function that writes a row.

    tokens: whether every word has an answer; multilabel: whether a text has any number of labels.
    Raises UserError for a name that the input already has.
    """
    answers = TagAnswers(labels) if tokens else LabelsAnswers(labels) if multilabel else TextAnswers(labels)
    if kind == "lines":
        return "", answers.lines
    if kind == "jsonl":
        return "", _json_writer(texts, answers)
    for name in answers.columns:
        _refuse_twice(name, texts.header, "the input")
    line = _tsv_line if kind == "tsv" else functools.partial(_csv_line, texts.delimiter)
    header = line([*texts.header, *answers.columns])
    return header, lambda row, values: line([*row.cells, *answers.cells(row, values)])


def _csv_line(delimiter: str, cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _tsv_line(cells: list[str]) -> str:
    """Quotes are text here: tabs and newlines, which would need them, become spaces."""
    return "\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in cells) + "\n"


def _json_writer(texts: Texts, answers: TextAnswers | TagAnswers) -> Writer:
    def write(row: Row, values: list[float]) -> str:
        given = dict(zip(texts.header, row.cells, strict=True)) if row.fields is None else row.fields
        added = answers.fields(row, values)
        for name in added:
            _refuse_twice(name, given, f"line {row.line}")
        text = json.dumps({**given, **added}, ensure_ascii=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot hold
            text = json.dumps({**given, **added})
        return text + "\n"

    return write


def _refuse_twice(name: str, given: Any, where: str) -> None:
    if name in given:
        raise UserError(f"{where} holds {name!r} already; rename it, or ask for --output-format lines")
