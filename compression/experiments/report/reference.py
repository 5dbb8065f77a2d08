"""The thesis's own figures (configs/reference), to stand beside ours and never to be mixed with them."""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from typing import Any

from common.config import CONFIG_DIR
from common.errors import UserError

FOLDER = CONFIG_DIR / "reference"
_TASKS = {
    "sst-2": ({"accuracy": "sst2_accuracy"}, "size_mb_single_sentence"),
    "qqp": ({"accuracy": "qqp_accuracy", "f1": "qqp_f1"}, "size_mb_sentence_pair"),
    "mnli": ({"accuracy": "mnli_accuracy"}, "size_mb_sentence_pair"),
}
"""Table 7.5's columns by task: those of the metrics, and the size of the models that read one sentence or two."""
QUOTED_TEACHER = "RoBERTa-large"
"""The thesis's teacher, as its tables name it."""
_STUDENT = re.compile(r"(BiLSTM|RNN|FFN)-(Hash|BPE|Char)(\d+)(\*?)((?:\+[pq])*)")
"""A student's name in table 7.5; the star means a vocabulary of 2,500."""
_SMALL_VOCABULARY, _VOCABULARY = 2500, 5000
_READ_AS = {"embedding_dim": int, "vocab_size": int, "alpha": float, "augmented": "true".__eq__}
_FIELDS = ("student_arch", "embedding_type", "embedding_dim", "vocab_size", "alpha", "augmented", "pooling", "loss")
LABEL_TABLE = "B.1"
"""The table of label distributions."""
_SHARE_OF = "share of "
_WITH_PARAMETERS = "7.1"
"""The table to take the baselines' numbers of parameters from; 7.2 and 7.3 have the same."""


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

    fields: what the table tells students by, under results.json's names, with `pooling`, `loss` and `stage`
    (distilled, +p, +q, +p+q). text: as printed, in percent.
    """

    task: str
    fields: dict[str, Any]
    metric: str
    mean: float
    sd: float | None
    text: str


def quoted_points(task: str) -> list[QuotedPoint]:
    """The models of table 7.5 with their scores on a task, in its order; none for a task the thesis does not have."""
    if task not in _TASKS:
        return []
    metrics, size = _TASKS[task]
    parameters = {
        line["student_arch"]: float(line["parameters"])
        for line in _lines("thesis_tables.csv")
        if line["table"] == _WITH_PARAMETERS and not line["embedding_type"]
    }
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
    """Names of the tables that a sweep may quote."""
    return tuple(sorted({line["table"] for line in _lines("thesis_tables.csv")} | {"7.5"}))


def quoted_figures(table: str) -> list[QuotedFigure]:
    """The figures of students in a table of the thesis; none for B.1, which is of labels (`quoted_shares`).

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
            fields={name: _READ_AS.get(name, str)(line[name]) for name in _FIELDS if line[name]}
            | {"stage": "distilled"},
            metric=line["metric"],
            mean=_share(line["mean"]),
            sd=_share(line["sd"]) if line["sd"] else None,
            text=line["mean"] + (f" ± {line['sd']}" if line["sd"] else ""),
        )
        for line in students
    ]


def _compressed(task: str) -> list[QuotedFigure]:
    """Table 7.5's students on a task."""
    figures = []
    metrics, _ = _TASKS[task]
    for line in _lines("thesis_table_7_5.csv"):
        named = _STUDENT.fullmatch(line["model"])
        if named is None:
            continue
        arch, embedding, dim, star, suffix = named.groups()
        fields = {
            "student_arch": arch.lower(),
            "embedding_type": embedding.lower(),
            "embedding_dim": int(dim),
            "vocab_size": _SMALL_VOCABULARY if star else _VOCABULARY,
            "stage": suffix or "distilled",
        }
        figures += [
            QuotedFigure(task, fields, metric, _share(line[column]), None, line[column])
            for metric, column in metrics.items()
        ]
    return figures


def quoted_shares(task: str, augmented: bool) -> dict[str, float]:
    """Label -> its share, from 0 to 1, in table B.1: of the original rows or the augmented ones; empty if unknown."""
    wanted = (LABEL_TABLE, task, str(augmented).lower())
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
