"""The thesis's own figures (configs/reference), to show next to ours and never to mix with them."""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from typing import Any

from common.config import CONFIG_DIR
from common.errors import UserError

FOLDER = CONFIG_DIR / "reference"
QUOTED_TEACHER = "RoBERTa-large"
"""The thesis's teacher, as its tables name it."""
_TASKS = {
    "sst-2": ({"accuracy": "sst2_accuracy"}, "size_mb_single_sentence"),
    "qqp": ({"accuracy": "qqp_accuracy", "f1": "qqp_f1"}, "size_mb_sentence_pair"),
    "mnli": ({"accuracy": "mnli_accuracy"}, "size_mb_sentence_pair"),
}
"""Table 7.5's columns by task: those of the metrics, and the size of the models that read one sentence or two."""
_STUDENT = re.compile(r"(BiLSTM|RNN|FFN)-(Hash|BPE|Char)(\d+)(\*?)((?:\+[pq])*)")
"""A student's name in table 7.5; the star means a vocabulary of 2,500 in place of 5,000."""
_FIELDS = {
    **dict.fromkeys(("student_arch", "embedding_type", "pooling", "loss"), str),
    **dict.fromkeys(("embedding_dim", "vocab_size"), int),
    "alpha": float,
    "augmented": "true".__eq__,
}
"""Columns of the tables that identify a student, and how to read them."""
_LABEL_TABLE, _SHARE_OF = "B.1", "share of "
_WITH_PARAMETERS = "7.1"
"""The table with the baselines' numbers of parameters; 7.2 and 7.3 have the same."""


@dataclasses.dataclass(frozen=True)
class QuotedPoint:
    """A model of the thesis's table 7.5 on one task. metrics: from 0 to 1, as in results.json; size_bytes: on disk.

    baseline: whether it is one of the four models that the thesis compares its students with; parameters: theirs.
    """

    name: str
    metrics: dict[str, float]
    size_bytes: float
    baseline: bool
    parameters: float | None = None


@dataclasses.dataclass(frozen=True)
class QuotedFigure:
    """One printed figure: a mean over four seeds and, where printed, its deviation, both from 0 to 1.

    fields: those by which the table identifies students, under results.json's names, with `pooling`, `loss` and
    `stage` (distilled, +p, +q, +p+q). text: as printed, in percent.
    """

    task: str
    fields: dict[str, Any]
    metric: str
    mean: float
    sd: float | None
    text: str


def quoted_points(task: str) -> list[QuotedPoint]:
    """Return the models of table 7.5 with their scores on a task, in its order; none for a task not in the thesis."""
    if task not in _TASKS:
        return []
    metrics, size = _TASKS[task]
    baselines = [line for line in _lines("thesis_tables.csv") if not line["embedding_type"]]
    parameters = {b["student_arch"]: float(b["parameters"]) for b in baselines if b["table"] == _WITH_PARAMETERS}
    return [
        QuotedPoint(
            name=line["model"],
            metrics={metric: _share(line[column]) for metric, column in metrics.items()},
            size_bytes=float(line[size]) * 1e6,
            baseline=not _STUDENT.fullmatch(line["model"]),
            parameters=parameters.get(line["model"]),
        )
        for line in _lines("thesis_table_7_5.csv")
    ]


@functools.cache
def quotable_tables() -> tuple[str, ...]:
    """Return the names of the tables that a sweep may quote."""
    return tuple(sorted({line["table"] for line in _lines("thesis_tables.csv")} | {"7.5"}))


def quoted_figures(table: str) -> list[QuotedFigure]:
    """Return the figures of students in a table of the thesis; none for B.1, which is of labels (`quoted_shares`).

    Raises UserError for a table that is not here.
    """
    if table not in quotable_tables():
        raise UserError(f"quote: no table {table!r} of the thesis is here (there are: {', '.join(quotable_tables())})")
    if table == "7.5":
        return [figure for task in _TASKS for figure in _compressed(task)]
    students = (line for line in _lines("thesis_tables.csv") if line["table"] == table and line["embedding_type"])
    return [
        QuotedFigure(
            task=line["task"],
            fields={name: read(line[name]) for name, read in _FIELDS.items() if line[name]} | {"stage": "distilled"},
            metric=line["metric"],
            mean=_share(line["mean"]),
            sd=_share(line["sd"]) if line["sd"] else None,
            text=line["mean"] + (f" ± {line['sd']}" if line["sd"] else ""),
        )
        for line in students
    ]


def _compressed(task: str) -> list[QuotedFigure]:
    """Table 7.5's students on a task."""
    named = [(line, match) for line in _lines("thesis_table_7_5.csv") if (match := _STUDENT.fullmatch(line["model"]))]
    figures = []
    for line, match in named:
        arch, embedding, dim, star, suffix = match.groups()
        fields = {"student_arch": arch.lower(), "embedding_type": embedding.lower(), "embedding_dim": int(dim)}
        fields |= {"vocab_size": 2500 if star else 5000, "stage": suffix or "distilled"}
        for metric, column in _TASKS[task][0].items():
            figures.append(QuotedFigure(task, fields, metric, _share(line[column]), None, line[column]))
    return figures


def quoted_shares(task: str, augmented: bool) -> dict[str, float]:
    """Return label -> share, from 0 to 1, in table B.1, of the original or the augmented rows; empty if unknown."""
    wanted = (_LABEL_TABLE, task, str(augmented).lower())
    return {
        line["metric"].removeprefix(_SHARE_OF): _share(line["mean"])
        for line in _lines("thesis_tables.csv")
        if (line["table"], line["task"], line["augmented"]) == wanted
    }


@functools.cache
def _lines(name: str) -> tuple[dict[str, str], ...]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def _share(percent: str) -> float:
    """'78.3' as the number nearest to 0.783, which 78.3 / 100 is not."""
    return float(f"{percent}e-2")
