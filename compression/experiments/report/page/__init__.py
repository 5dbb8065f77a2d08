"""The report as one self-contained HTML file: styles, pictures and scripts are inline, and no network is needed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compression.analysis.pictures import COLOURS, svg_markup
from compression.experiments.report.columns import metric_heading
from compression.experiments.report.models_table import label_tables, models_table, summary
from compression.experiments.report.record import ExperimentRecord, Quote
from compression.experiments.report.reliability import draw_reliability
from compression.experiments.report.results import Row, grouped
from compression.experiments.report.seed_groups import DASH, SplitResults, mean
from compression.experiments.report.skyline import draw_skylines, panels, point_id
from compression.experiments.report.table import Entry, Head, Line, Table, heading_levels, number_entry, text_entry

_HERE = Path(__file__).parent
_PART_COLOURS = dict(zip(("embedding", "encoder", "classifier"), COLOURS, strict=False))


@dataclasses.dataclass(frozen=True)
class Extension:
    """What a kind of experiment shows in place of skylines.

    template: extends page.html.j2; context: its values; tables: for report.md.
    """

    template: Path
    context: Mapping[str, Any]
    tables: Sequence[Table]


def render_page(
    record: ExperimentRecord,
    rows: list[Row],
    splits: list[SplitResults],
    pivots: list[Table],
    extension: Extension | None = None,
) -> str:
    """Return the page's HTML, deterministically. The template escapes all text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([_HERE, *([extension.template.parent] if extension else [])]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["heading_levels"] = heading_levels
    pivots = [table.without("csv") for table in pivots]
    models = list(map(models_table, splits))
    diagrams = list(map(draw_reliability, splits))
    return environment.get_template(extension.template.name if extension else "page.html.j2").render(
        extension.context if extension else {},
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
                "skyline": "" if extension else Markup(_skyline(results, record.quote, f"s{number}-")),
                "reliability": Markup(svg_markup(figure, f"r{number}-", {}) if figure else ""),
                "columns": figure.axes[0].get_gridspec().ncols if figure else 0,
            }
            for number, (results, table, figure) in enumerate(zip(splits, models, diagrams, strict=True))
        ],
        shapes=_parameter_shapes(rows),
        labels=label_tables(record),
        models=_models_table(record, rows),
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


def _models_table(record: ExperimentRecord, rows: Sequence[Row]) -> Table | None:
    """Return a table of all models, and of a sweep's runs without a result; None if there are none."""
    axes, metrics = list(record.axes), list(dict.fromkeys(map(_main_metric, rows)))
    done = {row.get("run_id") for row in rows if row.get("run_id") is not None}
    missing = [
        {**run.model_dump(), "run_id": run.id, "model": None, "task": run.settings.get("task"), "stage": "missing"}
        for run in record.runs
        if run.id not in done
    ]
    lines = []
    models = grouped([*rows, *missing], lambda row: (row["task"], row["model"], str(row.get("cell")), row.get("seed")))
    for (_, model, _, seed), scored in models.items():
        row, stage, run = scored[0], scored[0].get("stage"), scored[0].get("run_id")
        settings = {**record.settings, **row["settings"]} if stage == "missing" else row.get("settings")
        texts = [*map((row.get("cell") or {}).get, axes), *map(row.get, ("model", "task", "stage"))]
        score = mean((one.get("metrics") or {}).get(_main_metric(one)) for one in scored)
        entries = [
            *(text_entry(text and str(text)) for text in texts),
            Entry(DASH if seed is None else str(seed), seed),
            number_entry(score, ".2f", 0.01),
            Entry((run or "")[:12], run),
        ]
        details = [(model or f"run with seed {seed}", _setting_lines(settings))] if settings else ()
        lines.append(Line(entries, stage if stage in ("teacher", "missing") else "", details))
    heads = [Head((name,), numeric=False) for name in (*axes, "model", "task", "stage")]
    heads += [Head(("seed",)), Head((metric_heading(metrics[0]) if len(metrics) == 1 else "Score × 100",))]
    return Table("Models", [*heads, Head(("run",), numeric=False)], lines) if lines else None


def _main_metric(row: Row) -> str:
    return next(iter(row.get("metrics") or {}), "")


def _setting_lines(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {_value_text(value)}" for name, value in settings.items())


def _setting_texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _value_text(value)) for name, value in settings.items() if value is not None]


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
