"""The page's tables of runs and of models, each with the settings it was made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compression.experiments.report.families import Row
from compression.experiments.report.page.views import Head, Line, Table, value_text
from compression.experiments.report.places import stage_label
from compression.experiments.report.record import ExperimentRecord, RecordedRun
from compression.experiments.report.tables import DASH, Cell, metric_heading


def runs_table(record: ExperimentRecord, rows: Iterable[Row]) -> Table | None:
    """Every run of a sweep, with its scores at each stage; None for a chain."""
    if not record.runs:
        return None
    found: dict[str | None, list[Row]] = {}
    for row in rows:
        if row.get("run_id") is not None:
            found.setdefault(row["run_id"], []).append(row)
    metrics = list(dict.fromkeys(_main_metric(row) for its in found.values() for row in its))
    title = metric_heading(metrics[0]) if len(metrics) == 1 and metrics[0] else "Score × 100"
    stages = list(dict.fromkeys(stage_label(row) for its in found.values() for row in its))
    axes = list(record.axes) or list(record.runs[0].cell)
    heads = [
        *(Head(axis, numeric=False) for axis in axes),
        Head("seed"),
        *(Head(f"{title} ({stage})") for stage in stages),
        Head("result", numeric=False),
        Head("run", numeric=False),
    ]
    lines = [_run_line(record, run, axes, stages, found.get(run.id, [])) for run in record.runs]
    return Table("Runs", heads, lines)


def _run_line(
    record: ExperimentRecord, run: RecordedRun, axes: Sequence[str], stages: Sequence[str], rows: Sequence[Row]
) -> Line:
    scores = {stage: _score([row for row in rows if stage_label(row) == stage]) for stage in stages}
    cells = [
        *(Cell(run.cell.get(axis, DASH), run.cell.get(axis)) for axis in axes),
        Cell(str(run.seed), run.seed),
        *(Cell(DASH if score is None else f"{100 * score:.2f}", score) for score in scores.values()),
        Cell("done", "done") if rows else Cell("missing", "missing"),
        Cell((run.id or DASH)[:12], run.id),
    ]
    details = _details(rows) or ((f"run with seed {run.seed}", _lines({**record.settings, **run.settings})),)
    return Line(cells, "" if rows else "missing", details)


def models_table(rows: Iterable[Row]) -> Table | None:
    """Every model that is not of a sweep's run: teachers, and all models of a chain. None where there is none."""
    models: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.get("run_id") is None:
            models.setdefault((row["task"], row["model"]), []).append(row)
    if not models:
        return None
    heads = [Head("model", False), Head("task", False), Head("stage", False), Head("seed"), Head("score × 100")]
    return Table("Models", heads, [_model_line(its) for its in models.values()])


def _model_line(rows: Sequence[Row]) -> Line:
    row, score = rows[0], _score(rows)
    texts = [Cell(str(row.get(field) or DASH), row.get(field)) for field in ("model", "task", "stage")]
    seed = row.get("seed")
    numbers = [Cell(DASH if seed is None else str(seed), seed)]
    numbers.append(Cell(DASH if score is None else f"{100 * score:.2f} {_main_metric(row)}", score))
    return Line([*texts, *numbers], "teacher" if row.get("stage") == "teacher" else "", _details(rows[:1]))


def _main_metric(row: Row) -> str:
    return next(iter(row.get("metrics") or {}), "")


def _score(rows: Sequence[Row]) -> float | None:
    """The mean of the main metric over the test splits of one model."""
    values = [value for row in rows if (value := (row.get("metrics") or {}).get(_main_metric(row))) is not None]
    return sum(values) / len(values) if values else None


def _details(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Settings of each model of a run: of the first all, of what was made from it those that are others."""
    models = {row["model"]: row.get("settings") or {} for row in rows}
    first = next(iter(models.values()), {})
    found = []
    for number, (model, settings) in enumerate(models.items()):
        shown = {key: value for key, value in settings.items() if not number or first.get(key, key) != value}
        found.append((model, _lines(shown)))
    return tuple(found) if first else ()


def _lines(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {value_text(value)}" for name, value in settings.items())
