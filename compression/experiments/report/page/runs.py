"""The page's tables of runs and of models, each with the settings of its models."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compression.experiments.report.models_table import metric_heading
from compression.experiments.report.pivot_layout import stage_label
from compression.experiments.report.record import ExperimentRecord, RecordedRun
from compression.experiments.report.results import Row
from compression.experiments.report.table import Entry, Head, Line, Table, number_entry, text_entry


def runs_table(record: ExperimentRecord, rows: Iterable[Row]) -> Table | None:
    """Return every run of a sweep, with its scores at each stage; None for a chain."""
    if not record.runs:
        return None
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("run_id") is not None:
            found.setdefault(row["run_id"], []).append(row)
    every = [row for own in found.values() for row in own]
    metrics, stages = (list(dict.fromkeys(map(of, every))) for of in (_main_metric, stage_label))
    title = metric_heading(metrics[0]) if len(metrics) == 1 and metrics[0] else "Score × 100"
    axes = list(record.axes) or list(record.runs[0].cell)

    def line(run: RecordedRun) -> Line:
        own = found.get(run.id or "", [])
        scores = [_score([row for row in own if stage_label(row) == stage]) for stage in stages]
        entries = [
            *(text_entry(run.cell.get(axis)) for axis in axes),
            Entry(str(run.seed), run.seed),
            *(number_entry(score, ".2f", 0.01) for score in scores),
            text_entry("done" if own else "missing"),
            Entry(text_entry(run.id).text[:12], run.id),
        ]
        planned = [(f"run with seed {run.seed}", _lines({**record.settings, **run.settings}))]
        return Line(entries, "" if own else "missing", _details(own) or planned)

    heads = [Head((axis,), numeric=False) for axis in axes]
    heads += [Head((name,)) for name in ("seed", *(f"{title} ({stage})" for stage in stages))]
    heads += [Head((name,), numeric=False) for name in ("result", "run")]
    return Table("Runs", heads, list(map(line, record.runs)))


def models_table(rows: Iterable[Row]) -> Table | None:
    """Return every model that is not of a sweep's run: teachers, and all models of a chain. None without any."""
    models: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.get("run_id") is None:
            models.setdefault((row["task"], row["model"]), []).append(row)
    lines = []
    for own in models.values():
        row, score = own[0], _score(own)
        texts = [text_entry(row.get(field) and str(row[field])) for field in ("model", "task", "stage")]
        points = number_entry(score, ".2f", 0.01).text
        shown = points if score is None else f"{points} {_main_metric(row)}"
        entries = [*texts, number_entry(row.get("seed"), ".0f"), Entry(shown, score)]
        lines.append(Line(entries, "teacher" if row.get("stage") == "teacher" else "", _details(own[:1])))
    heads = [Head((name,), numeric=False) for name in ("model", "task", "stage")]
    return Table("Models", [*heads, Head(("seed",)), Head(("score × 100",))], lines) if lines else None


def _main_metric(row: Row) -> str:
    return next(iter(row.get("metrics") or {}), "")


def _score(rows: Sequence[Row]) -> float | None:
    """The mean of the main metric over the test splits of one model."""
    values = [value for row in rows if (value := (row.get("metrics") or {}).get(_main_metric(row))) is not None]
    return statistics.fmean(values) if values else None


def _details(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Settings of each model of a run: of the first all, of those after it the ones that differ."""
    models = {row["model"]: row.get("settings") or {} for row in rows}
    first = next(iter(models.values()), {})
    found = []
    for number, (model, settings) in enumerate(models.items()):
        shown = {key: value for key, value in settings.items() if not number or first.get(key, key) != value}
        found.append((model, _lines(shown)))
    return found if first else []


def _lines(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {value_text(value)}" for name, value in settings.items())


def value_text(value: Any) -> str:
    """Return a setting's value as JSON, a text without its quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
