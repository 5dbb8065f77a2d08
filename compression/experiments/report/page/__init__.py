"""The report as one self-contained HTML file: styles, pictures and scripts are inline, and no network is needed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compression.analysis.pictures import COLOURS, svg_markup
from compression.evaluation.rows import Row
from compression.experiments.report.columns import label_tables, metric_heading, models_table, summary
from compression.experiments.report.pictures import draw_reliability, draw_skylines, panels, point_id
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import SplitResults, grouped, mean
from compression.experiments.report.table import Entry, Head, Table, heading_levels, number_entry, table_of, text_entry

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

    def skyline(results: SplitResults, prefix: str) -> str:
        """Return the skylines of a split as an <svg> element. prefix: prefix of its ids."""
        texts = {
            point_id(number, index): point.description
            for number, panel in enumerate(panels([results], record.quote))
            for index, point in enumerate(panel.points)
        }
        return Markup(svg_markup(draw_skylines([results], record.quote), prefix, texts))

    environment = Environment(
        loader=FileSystemLoader([_HERE, *([extension.template.parent] if extension else [])]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["heading_levels"] = heading_levels
    environment.filters["shown"] = _value_text
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
                "skyline": "" if extension else skyline(results, f"s{number}-"),
                "reliability": Markup(svg_markup(figure, f"r{number}-", {}) if figure else ""),
                "columns": figure.axes[0].get_gridspec().ncols if figure else 0,
            }
            for number, (results, table, figure) in enumerate(zip(splits, models, diagrams, strict=True))
        ],
        shapes=_parameter_shapes(rows),
        labels=label_tables(record),
        models=_models_table(record, rows),
        quotes=any(head.group == "quoted" for table in pivots for head in table.heads),
        notes=dict.fromkeys(note for table in (*models, *pivots) for note in table.notes),
    )


def _counts(record: ExperimentRecord, rows: Sequence[Row]) -> dict[str, int]:
    """Return the numbers of runs, models and so on, for the head of the page."""
    done = {row.get("run_id") for row in rows} - {None}
    cells = {str(run.cell) for run in record.runs}
    return {
        "runs": len(record.runs),
        "runs without a result": sum(run.id not in done for run in record.runs),
        "cells without any": len(cells - {str(run.cell) for run in record.runs if run.id in done}),
        "seeds": len(record.seeds),
        "jobs": len(record.jobs),
        "models scored": len({(row["task"], row["model"]) for row in rows}),
    }


def _parameter_shapes(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return a pie for each distinct shape of students, by number of parameters (figure 7.1 of the thesis).

    A slice has a name, count, colour, and start and share of the whole, both from 0 to 1.
    """
    shapes: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        parts = {name: count for name, count in row["parts"].items() if count}
        if parts and row["stage"] != "teacher":
            words = (row["student_arch"], row["embedding_type"], row["embedding_dim"])
            name = " ".join(str(word) for word in words if word is not None)
            name += f", vocabulary {row['vocab_size']:,}" if row["vocab_size"] is not None else ""
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
    models = grouped(rows, lambda row: (row["task"], row["model"], str(row.get("cell")), row["seed"]))
    items: list[dict[str, Any]] = [{**scored[0], "score": mean(map(_score, scored))} for scored in models.values()]
    done = {row.get("run_id") for row in rows} - {None}
    for run in record.runs:
        if run.id not in done:
            missing = {"model": None, "task": run.settings.get("task"), "stage": "missing", "score": None}
            settings = {**record.settings, **run.settings}
            items.append({"cell": run.cell, "seed": run.seed, "run_id": run.id, "settings": settings, **missing})
    if not items:
        return None
    metrics = {metric for row in rows for metric in itertools.islice(row["metrics"], 1)}
    columns = [
        (Head((axis,), numeric=False), lambda item, axis=axis: text_entry((item.get("cell") or {}).get(axis)))
        for axis in record.axes
    ]
    columns += [
        (Head((name,), numeric=False), lambda item, name=name: text_entry(item[name]))
        for name in ("model", "task", "stage")
    ]
    score = Head((metric_heading(*metrics) if len(metrics) == 1 else "Score × 100",))
    columns += [
        (Head(("seed",)), lambda item: Entry(str(item["seed"]), item["seed"])),
        (score, lambda item: number_entry(item["score"], ".2f", 0.01)),
        (Head(("run",), numeric=False), lambda item: Entry((item.get("run_id") or "")[:12], item.get("run_id"))),
    ]
    table = table_of("Models", columns, items, lambda item: item["stage"] * (item["stage"] in ("teacher", "missing")))
    lines = [dataclasses.replace(line, details=_details(item)) for line, item in zip(table.lines, items, strict=True)]
    return dataclasses.replace(table, lines=lines)


def _score(row: Row) -> float | None:
    """Return the main score of a row."""
    return next(iter(row["metrics"].values()), None)


def _details(item: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the settings of a model or run, which the page unfolds."""
    text = "\n".join(f"{name}: {_value_text(value)}" for name, value in item["settings"].items())
    return [(item["model"] or f"run with seed {item['seed']}", text)] if text else []


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
