"""The report as one self-contained HTML file: styles, pictures and scripts are inline, and no network is needed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compression.analysis.pictures import COLOURS, svg_markup
from compression.experiments.report.columns import metric_heading
from compression.experiments.report.models_table import label_tables, models_table, summary
from compression.experiments.report.pivot_layout import stage_label
from compression.experiments.report.record import ExperimentRecord, Quote, RecordedRun
from compression.experiments.report.reliability import draw_reliability
from compression.experiments.report.results import Row, grouped
from compression.experiments.report.seed_groups import SplitResults, mean
from compression.experiments.report.skyline import draw_skylines, panels, point_id
from compression.experiments.report.table import Entry, Head, Line, Table, heading_levels, number_entry, text_entry

_HERE = Path(__file__).parent
_PART_COLOURS = dict(zip(("embedding", "encoder", "classifier"), COLOURS, strict=False))


def render_page(record: ExperimentRecord, rows: list[Row], splits: list[SplitResults], pivots: list[Table]) -> str:
    """Return the page's HTML, deterministically. The template escapes all text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["heading_levels"] = heading_levels
    pivots = [table.without("csv") for table in pivots]
    models = [models_table(results) for results in splits]
    return environment.get_template("page.html.j2").render(
        record=record,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((_HERE / "page.js").read_text(encoding="utf-8")),
        counts=_counts(record, rows),
        pivots=pivots,
        groups=[
            {
                "heading": results.heading,
                "summary": summary(results),
                "table": table,
                "skyline": Markup(_skyline(results, record.quote, f"s{number}-")),
                "reliability": Markup(_reliability(results, f"r{number}-")),
            }
            for number, (results, table) in enumerate(zip(splits, models, strict=True))
        ],
        shapes=_parameter_shapes(rows),
        labels=label_tables(record),
        runs=_runs_table(record, rows),
        models=_other_models(rows),
        jobs=[(str(job.get("job", "job")), _setting_texts({**job, "job": None})) for job in record.jobs],
        fixed=_setting_texts(record.settings),
        quotes=any(head.group == "quoted" for table in pivots for head in table.heads),
        notes=dict.fromkeys(note for table in (*models, *pivots) for note in table.notes),
    )


def _counts(record: ExperimentRecord, rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Return the nonzero numbers of runs, models and so on, for the head of the page."""
    done = {row["run_id"] for row in rows if row.get("run_id") is not None}
    cells = {str(run.cell) for run in record.runs}
    scored = {str(run.cell) for run in record.runs if run.id in done}
    counts = {
        "runs": len(record.runs),
        "runs without a result": sum(run.id not in done for run in record.runs),
        "cells without any": len(cells - scored),
        "seeds": len(record.seeds),
        "jobs": len(record.jobs),
        "models scored": len({(row["task"], row["model"]) for row in rows}),
    }
    return [(name, number) for name, number in counts.items() if number]


def _skyline(results: SplitResults, quote: Quote | None, prefix: str) -> str:
    """Return the skylines of a split as an <svg> element. prefix: prefix of its ids."""
    texts = {
        point_id(number, index): point.description
        for number, panel in enumerate(panels([results], quote))
        for index, point in enumerate(panel.points)
    }
    return svg_markup(draw_skylines([results], quote), prefix, texts)


def _reliability(results: SplitResults, prefix: str) -> str:
    """Return a split's reliability diagrams as an <svg> element, or '' if there are none. prefix: prefix of its ids."""
    figure = draw_reliability(results)
    return svg_markup(figure, prefix, {}) if figure else ""


def _parameter_shapes(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return a pie for each distinct shape of students, by number of parameters (figure 7.1 of the thesis).

    A slice has a name, count, colour, and start and share of the whole, both from 0 to 1.
    """
    shapes: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        parts = {name: count for name, count in (row.get("parts") or {}).items() if count}
        if parts and row.get("stage") != "teacher":
            fields = ("student_arch", "embedding_type", "embedding_dim")
            name = " ".join(str(row[field]) for field in fields if row.get(field) is not None)
            name += f", vocabulary {row['vocab_size']:,}" if isinstance(row.get("vocab_size"), int) else ""
            total = sum(parts.values())
            starts = itertools.accumulate(parts.values(), initial=0)
            slices = [
                (part, count, start / total, count / total, _PART_COLOURS.get(part, COLOURS[3]))
                for (part, count), start in zip(parts.items(), starts, strict=False)
            ]
            shapes.setdefault((name, str(parts)), {"name": name, "total": total, "slices": slices})
    return sorted(shapes.values(), key=lambda shape: (shape["total"], shape["name"]))


def _runs_table(record: ExperimentRecord, rows: Iterable[Row]) -> Table | None:
    """Return a table of a sweep's runs with their scores at each stage; None for a chain."""
    if not record.runs:
        return None
    by_run = grouped((row for row in rows if row.get("run_id") is not None), lambda row: row["run_id"])
    every = [row for scored in by_run.values() for row in scored]
    metrics, stages = (list(dict.fromkeys(map(of, every))) for of in (_main_metric, stage_label))
    title = metric_heading(metrics[0]) if len(metrics) == 1 and metrics[0] else "Score × 100"
    axes = list(record.axes) or list(record.runs[0].cell)

    def line(run: RecordedRun) -> Line:
        scored = by_run.get(run.id or "", [])
        scores = [_score([row for row in scored if stage_label(row) == stage]) for stage in stages]
        entries = [
            *(text_entry(run.cell.get(axis)) for axis in axes),
            Entry(str(run.seed), run.seed),
            *(number_entry(score, ".2f", 0.01) for score in scores),
            text_entry("done" if scored else "missing"),
            Entry(text_entry(run.id).text[:12], run.id),
        ]
        planned = [(f"run with seed {run.seed}", _setting_lines({**record.settings, **run.settings}))]
        return Line(entries, "" if scored else "missing", _details(scored) or planned)

    heads = [Head((axis,), numeric=False) for axis in axes]
    heads += [Head((name,)) for name in ("seed", *(f"{title} ({stage})" for stage in stages))]
    heads += [Head((name,), numeric=False) for name in ("result", "run")]
    return Table("Runs", heads, list(map(line, record.runs)))


def _other_models(rows: Iterable[Row]) -> Table | None:
    """Return a table of models outside a sweep's runs (teachers, all models of a chain); None if there are none."""
    others = (row for row in rows if row.get("run_id") is None)
    models = grouped(others, lambda row: (row["task"], row["model"]))
    lines = []
    for scored in models.values():
        row, score = scored[0], _score(scored)
        texts = [text_entry(row.get(field) and str(row[field])) for field in ("model", "task", "stage")]
        points = number_entry(score, ".2f", 0.01).text
        shown = points if score is None else f"{points} {_main_metric(row)}"
        entries = [*texts, number_entry(row.get("seed"), ".0f"), Entry(shown, score)]
        lines.append(Line(entries, "teacher" if row.get("stage") == "teacher" else "", _details(scored[:1])))
    heads = [Head((name,), numeric=False) for name in ("model", "task", "stage")]
    return Table("Models", [*heads, Head(("seed",)), Head(("score × 100",))], lines) if lines else None


def _main_metric(row: Row) -> str:
    return next(iter(row.get("metrics") or {}), "")


def _score(rows: Sequence[Row]) -> float | None:
    return mean((row.get("metrics") or {}).get(_main_metric(row)) for row in rows)


def _details(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the settings of a run's models: all of the first model's, and the others' differences from it."""
    models = {row["model"]: row.get("settings") or {} for row in rows}
    first = next(iter(models.values()), {})
    details = []
    for number, (model, settings) in enumerate(models.items()):
        shown = {key: value for key, value in settings.items() if not number or first.get(key, key) != value}
        details.append((model, _setting_lines(shown)))
    return details if first else []


def _setting_lines(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {_value_text(value)}" for name, value in settings.items())


def _setting_texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _value_text(value)) for name, value in settings.items() if value is not None]


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
