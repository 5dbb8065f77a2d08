"""Quoted figures (configs/reference), shown next to our own but never mixed with them."""

import csv
import dataclasses
import functools
from pathlib import Path
from typing import Any

from common.config import CONFIG_DIR
from common.errors import UserError
from compression.evaluation.rows import Row

FILE = CONFIG_DIR / "reference" / "thesis_tables.csv"
QUOTED_TEACHER = "RoBERTa-large"
"""The thesis's teacher, as its tables name it."""
TOLERABLE = "GLUE BiLSTM GloVe"
"""The baseline whose scores the thesis calls tolerable, as its tables name it (sections 1.1 and 9)."""
GZIPPED_TABLE = "7.5"
"""Table of the thesis with the gzipped sizes of all students; the others have those of the weights files."""
_FIELDS = {
    **dict.fromkeys(("student_arch", "embedding_type", "pooling", "loss", "stage"), str),
    **dict.fromkeys(("embedding_dim", "vocab_size"), int),
    "alpha": float,
    "augmented": "true".__eq__,
}
"""Columns that identify a student -> functions that parse their values."""


@dataclasses.dataclass(frozen=True)
class QuotedFigure:
    """One printed figure: a mean over four seeds and, if printed, its deviation, both from 0 to 1.

    fields: fields by which the table identifies students, by their names in results.json, with `pooling`, `loss` and
    `stage` (distilled, +p, +q, +p+q). text: as printed, in percent; size_bytes: on disk, if the table has it.
    """

    task: str
    fields: dict[str, Any]
    metric: str
    mean: float
    sd: float | None
    text: str
    size_bytes: float | None


def quoted_rows(task: str) -> list[Row]:
    """Return rows of the models of table 7.5 on a task, in order; empty for a task not in the thesis.

    stage: `quoted` for the thesis's students, of which bytes_model is gzipped, else `baseline`.
    """
    # Tables 7.1 to 7.3 list the same numbers of parameters for the baselines.
    parameters = {line["model"]: float(line["parameters"]) for line in _lines("7.1") if line["model"]}
    rows: dict[str, Row] = {}
    for line in _lines(GZIPPED_TABLE):
        if line["task"] == task:
            name, size = line["model"], float(line["size_mb"]) * 1e6
            stage = "quoted" if line["embedding_type"] else "baseline"
            row = rows.setdefault(name, quoted_row(task, name, stage, size, parameters.get(name)))
            row["metrics"][line["metric"]] = share(line["mean"])
    return list(rows.values())


def quoted_row(task: str, name: str, stage: str, size: float, parameters: float | None) -> Row:
    """Return the row of a quoted model, still without metrics. size: bytes on disk."""
    same = {"task": task, "split": "test", "seed": None, "teacher": None, "select_on": "validation", "metrics": {}}
    return {**same, "model": name, "stage": stage, "bytes_model": size, "parameters": parameters}


def tolerable_scores(task: str) -> dict[str, float]:
    """Return metric -> lowest score, from 0 to 1, of a tolerable student; empty for a task not in the thesis."""
    return next((row["metrics"] for row in quoted_rows(task) if row["model"] == TOLERABLE), {})


def quoted_figures(table: str) -> list[QuotedFigure]:
    """Return the figures of students in a table of the thesis; empty for B.1, which is on labels (`quoted_shares`).

    Raises UserError for a table that is not available.
    """
    known = sorted({line["table"] for line in read_quotes(FILE)})
    if table not in known:
        raise UserError(f"quote: no table {table!r} of the thesis is here (there are: {', '.join(known)})")
    return [
        QuotedFigure(
            task=line["task"],
            fields={"stage": "distilled"} | {name: read(line[name]) for name, read in _FIELDS.items() if line[name]},
            metric=line["metric"],
            mean=share(line["mean"]),
            sd=share(line["sd"]) if line["sd"] else None,
            text=line["mean"] + (f" ± {line['sd']}" if line["sd"] else ""),
            size_bytes=float(line["size_mb"]) * 1e6 if line["size_mb"] else None,
        )
        for line in _lines(table)
        if line["embedding_type"]
    ]


def quoted_shares(task: str, augmented: bool) -> dict[str, float]:
    """Return label -> share, from 0 to 1, of the original or augmented rows in table B.1; empty if unknown."""
    return {
        line["metric"].removeprefix("share of "): share(line["mean"])
        for line in _lines("B.1")
        if (line["task"], line["augmented"]) == (task, str(augmented).lower())
    }


@functools.cache
def read_quotes(path: Path) -> tuple[dict[str, str], ...]:
    """Return the lines of a file of quoted figures."""
    return tuple(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def _lines(table: str) -> list[dict[str, str]]:
    return [line for line in read_quotes(FILE) if line["table"] == table]


def share(percent: str) -> float:
    """Return '78.3' as the float nearest to 0.783, unlike 78.3 / 100."""
    return float(f"{percent}e-2")
