"""What is said of texts: labels and probabilities as lines, CSV, TSV or JSONL, beside what came in."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any

from common.errors import UserError
from compression.inference.readers import Format, Row, Texts
from compression.inference.tag_writers import TagAnswers

DIGITS = 6
"""Decimal places of a probability or a score."""

Writer = Callable[[Row, list], str]
"""From a row and what the model gives it to text with its newline: a probability a label, of each word where these have
answers, or one score."""


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model's numbers are called. labels: empty for a regression, whose one number is a score."""

    labels: tuple[str, ...]

    def choice(self, values: list[float]) -> str:
        """The likeliest label, the first of equals; or the score."""
        return self.labels[values.index(max(values))] if self.labels else f"{values[0]:.{DIGITS}f}"

    @property
    def columns(self) -> list[str]:
        """Names of the columns that a table gains."""
        if not self.labels:
            return ["predicted_score"]
        return ["predicted_label", *(f"probability_{label}" for label in self.labels)]

    def cells(self, row: Row, values: list[float]) -> list[str]:
        """What stands in them."""
        return [self.choice(values), *(f"{value:.{DIGITS}f}" for value in values if self.labels)]

    def fields(self, row: Row, values: list[float]) -> dict[str, Any]:
        """The fields that a JSON object gains."""
        rounded = [round(value, DIGITS) for value in values]
        if not self.labels:
            return {"predicted_score": rounded[0]}
        probabilities = dict(zip(self.labels, rounded, strict=True))
        return {"predicted_label": self.choice(values), "probabilities": probabilities}

    def lines(self, row: Row, values: list[float]) -> str:
        """positive <tab> negative 0.012876 <tab> positive 0.987124: a label, and each label's probability."""
        choice, *each = self.cells(row, values)
        return "\t".join([choice, *map(" ".join, zip(self.labels, each, strict=True))]) + "\n"


def make_writer(kind: Format, texts: Texts, labels: tuple[str, ...], tokens: bool = False) -> tuple[str, Writer]:
    """What stands above the rows, and what writes one. tokens: whether every word has an answer.

    Raises UserError for a name that is there already.
    """
    answers = TagAnswers(labels) if tokens else Answers(labels)
    if kind in ("csv", "tsv"):
        return _table_writer(texts, answers, _tsv_line if kind == "tsv" else _csv_line(texts.delimiter))
    return "", _json_writer(texts, answers) if kind == "jsonl" else answers.lines


def _table_writer(texts: Texts, answers: Answers | TagAnswers, line: Callable[[list[str]], str]) -> tuple[str, Writer]:
    for name in answers.columns:
        _refuse_twice(name, texts.header, "the input")
    header = line([*texts.header, *answers.columns])
    return header, lambda row, values: line([*row.cells, *answers.cells(row, values)])


def _csv_line(delimiter: str) -> Callable[[list[str]], str]:
    def line(cells: list[str]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(cells)
        return text.getvalue()

    return line


def _tsv_line(cells: list[str]) -> str:
    """Quotes are text here: tabs and newlines, which would need them, become spaces."""
    return "\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in cells) + "\n"


def _json_writer(texts: Texts, answers: Answers | TagAnswers) -> Writer:
    def write(row: Row, values: list[float]) -> str:
        given = dict(zip(texts.header, row.cells, strict=True)) if row.fields is None else row.fields
        added = answers.fields(row, values)
        for name in added:
            _refuse_twice(name, given, f"line {row.line}")
        return _json_text({**given, **added}) + "\n"

    return write


def _json_text(value: dict[str, Any]) -> str:
    """JSON as people read it; half a surrogate pair, which cannot be written so, as an escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _refuse_twice(name: str, given: Any, where: str) -> None:
    if name in given:
        raise UserError(f"{where} holds {name!r} already; rename it, or ask for --output-format lines")
