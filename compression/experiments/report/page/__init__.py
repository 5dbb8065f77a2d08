"""The report as one self-contained HTML file: styles, pictures and scripts are in it, and it needs no network."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compression.analysis.pictures import COLOURS, svg_markup
from compression.experiments.report.models_table import label_tables, notes, summary
from compression.experiments.report.models_table import models_table as group_table
from compression.experiments.report.page.runs import models_table, runs_table, value_text
from compression.experiments.report.pivot import Pivot
from compression.experiments.report.points import panels
from compression.experiments.report.record import ExperimentRecord, Quote
from compression.experiments.report.results import Row
from compression.experiments.report.seed_groups import SplitResults
from compression.experiments.report.skyline import draw_skylines, point_id
from compression.experiments.report.table import heading_levels

_HERE = Path(__file__).parent
_PART_COLOURS = dict(zip(("embedding", "encoder", "classifier"), COLOURS, strict=False))


def render_page(record: ExperimentRecord, rows: list[Row], splits: list[SplitResults], pivots: list[Pivot]) -> str:
    """Return the page's HTML, the same for the same arguments. The template escapes every text."""
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
    return environment.get_template("page.html.j2").render(
        record=record,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((_HERE / "page.js").read_text(encoding="utf-8")),
        counts=_counts(record, rows),
        pivots=[pivot.table() for pivot in pivots],
        groups=[
            {
                "heading": results.heading,
                "summary": summary(results),
                "table": group_table(results),
                "skyline": Markup(_skyline(results, record.quote, f"s{number}-")),
            }
            for number, results in enumerate(splits)
        ],
        shapes=_parameter_shapes(rows),
        labels=label_tables(record),
        runs=runs_table(record, rows),
        models=models_table(rows),
        jobs=[(str(job.get("job", "job")), _setting_texts({**job, "job": None})) for job in record.jobs],
        fixed=_setting_texts(record.settings),
        quotes=any(line.quoted for pivot in pivots for line in (*pivot.baselines, *pivot.columns)),
        notes=dict.fromkeys([*notes(splits), *(note for pivot in pivots for note in pivot.notes)]),
    )


def _counts(record: ExperimentRecord, rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Numbers of runs, models and so on for the head of the page, without zeros."""
    done = {row["run_id"] for row in rows if row.get("run_id") is not None}
    cells = {str(run.cell) for run in record.runs}
    scored = {str(run.cell) for run in record.runs if run.id in done}
    found = {
        "runs": len(record.runs),
        "runs without a result": sum(run.id not in done for run in record.runs),
        "cells without any": len(cells - scored),
        "seeds": len(record.seeds),
        "jobs": len(record.jobs),
        "models scored": len({(row["task"], row["model"]) for row in rows}),
    }
    return [(name, number) for name, number in found.items() if number]


def _skyline(results: SplitResults, quote: Quote | None, prefix: str) -> str:
    """The skylines of a split as an <svg> element. prefix: of its ids."""
    texts = {
        point_id(number, index): point.about
        for number, panel in enumerate(panels([results], quote))
        for index, point in enumerate(panel.points)
    }
    return svg_markup(draw_skylines([results], quote), prefix, texts)


def _parameter_shapes(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The distinct shapes of students, from few parameters to many: a pie for each (figure 7.1 of the thesis).

    A slice has its name, count, start and share of the whole, from 0 to 1, and its colour.
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


def _setting_texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as names and texts, those that are set."""
    return [(name, value_text(value)) for name, value in settings.items() if value is not None]
