"""A sweep's record and rows of results.json, written down for the tests of reports."""

from collections.abc import Sequence
from typing import Any

from compression.experiments.report.pivot import pivots
from compression.experiments.report.record import ExperimentRecord, Quote, RecordedRun, TableLayout
from compression.experiments.report.table import Entry, Line, Table

SEEDS = (1, 2, 3, 4)
METHODS = {"no distil": {"alpha": 1.0, "only_original_data": True}, "alpha 0": {"alpha": 0.0}}
"""Two of the thesis's four conditions."""


def row(cell: dict[str, str] | None, seed: int, metrics: dict[str, float] | None, **changes: Any) -> dict[str, Any]:
    """A student's row of results.json."""
    own = {"task": "sst-2", "split": "test", "model": f"bilstm-bpe25-a0-aug-1f3a9c2e-s{seed}", "stage": "distilled"}
    own |= {"student_arch": "bilstm", "embedding_type": "bpe", "embedding_dim": 25, "vocab_size": 5000, "alpha": 0.0}
    own |= {"augmented": True, "seed": seed, "teacher": "minilm", "select_on": "validation", "metrics": metrics}
    own |= {"parameters": 400_000, "bytes_model": 1_600_000, "bytes_gzip": 1_400_000, "bytes_packed": None}
    own |= {"nonzero_parameters": None, "parts": {}, "rows": 0, "settings": {}, "validation": None, "data": None}
    own |= {"seconds": {}, "config_hash": f"{cell} {seed}", "run": "models"}
    return {**own, **({} if cell is None else {"cell": cell}), **changes}


def teacher(metrics: dict[str, float], **changes: Any) -> dict[str, Any]:
    """A teacher's row."""
    own = {"model": "minilm", "stage": "teacher", "student_arch": None, "alpha": None, "augmented": False}
    sizes = {"parameters": 22_000_000, "bytes_model": 90_000_000, "bytes_gzip": 80_000_000}
    return row(None, 7, metrics, **{**own, **sizes, "teacher": None, **changes})


def record(
    axes: dict[str, dict[str, dict[str, Any]]],
    rows: Sequence[str] = ("student_arch",),
    columns: Sequence[str] = ("method",),
    seeds: Sequence[int] = SEEDS,
    skip: Sequence[dict[str, str]] = (),
    quote: Quote | None = None,
    **layout: Any,
) -> ExperimentRecord:
    """The record of a sweep. axes: axis -> label -> settings; skip: cells (or parts of them) that rules leave out."""
    cells: list[tuple[dict[str, str], dict[str, Any]]] = [({}, {"task": "sst-2"})]
    for axis, values in axes.items():
        cells = [
            ({**cell, axis: label}, {**given, **settings})
            for cell, given in cells
            for label, settings in values.items()
        ]
    runs = [
        RecordedRun(cell=cell, seed=seed, settings={**given, "seed": seed})
        for cell, given in cells
        if not any(part.items() <= cell.items() for part in skip)
        for seed in seeds
    ]
    return ExperimentRecord(
        name="grid",
        title="A grid",
        kind="sweep",
        definition="x",
        axes={axis: tuple(values) for axis, values in axes.items()},
        seeds=tuple(seeds),
        runs=tuple(runs),
        table=TableLayout(rows=tuple(rows), columns=tuple(columns), **layout),
        quote=quote,
    )


def values(*labels: Any, axis: str) -> dict[str, dict[str, Any]]:
    """An axis of plain values: label -> the setting of the axis's name."""
    return {str(label): {axis: label} for label in labels}


def thesis_grid(**options: Any) -> ExperimentRecord:
    """Two students under two conditions, in the layout of table 7.1."""
    axes = {
        "student_arch": values("bilstm", "ffn", axis="student_arch"),
        "embedding_type": values("bpe", "hash", axis="embedding_type"),
        "embedding_dim": values(25, axis="embedding_dim"),
        "method": METHODS,
    }
    return record(axes, rows=("student_arch", "embedding_type", "embedding_dim"), **options)


NO_DISTIL, ALPHA_0 = ({"student_arch": "bilstm", "method": method} for method in METHODS)
SMALL = record({"student_arch": values("bilstm", axis="student_arch"), "method": METHODS})


def scored(cell: dict[str, str], *scores: float, **changes: Any) -> list[dict[str, Any]]:
    """Rows of a cell's first seeds."""
    return [row(cell, seed, {"accuracy": score}, **changes) for seed, score in zip(SEEDS, scores, strict=False)]


def only(rows: list[dict[str, Any]], of: ExperimentRecord = SMALL) -> Table:
    (table,) = pivots(rows, of)
    return table


def heads(table: Table) -> list[str]:
    """Headings of the scores."""
    return [head.text for head in table.heads if head.seeds]


def labels_of(table: Table, line: Line) -> tuple[str, ...]:
    """Labels of a line, without those that are empty."""
    return tuple(filter(None, (str(entry.value) for entry in line.entries[: table.labels])))


def scores(table: Table, line: Line) -> list[Entry]:
    """Scores of a line."""
    return [entry for head, entry in zip(table.heads, line.entries, strict=True) if head.seeds]


def texts(table: Table) -> dict[tuple[str, ...], list[str]]:
    """Labels of a line -> its scores, the best ones with a star."""
    return {
        labels_of(table, line): [score.text + "*" * (score.kind == "best") for score in scores(table, line)]
        for line in table.lines
    }


QQP = record(
    {"student_arch": values("bilstm", axis="student_arch"), "method": {name: {"task": "qqp"} for name in METHODS}}
)
