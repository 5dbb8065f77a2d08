"""The report as one HTML file that needs nothing beside it: styles, pictures and scripts are inside, and no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compression.experiments.report.families import Group, Row
from compression.experiments.report.page.pivots import pivot_table
from compression.experiments.report.page.runs import models_table, runs_table
from compression.experiments.report.page.views import (
    counts,
    families_table,
    job_lines,
    label_bars,
    parameter_shapes,
    setting_texts,
    skyline_figure,
)
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.tables import heading, notes, summary

if TYPE_CHECKING:
    from compression.experiments.report.pivot import Pivot

_HERE = Path(__file__).parent


def render_page(record: ExperimentRecord, rows: list[Row], groups: list[Group], pivots: list[Pivot]) -> str:
    """The page's HTML, the same for the same arguments. Every text is escaped by the template."""
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
    return environment.get_template("page.html.j2").render(
        record=record,
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((_HERE / "page.js").read_text(encoding="utf-8")),
        counts=counts(record, rows),
        pivots=[pivot_table(pivot) for pivot in pivots],
        groups=[
            {
                "heading": heading(group),
                "summary": summary(group),
                "table": families_table(group),
                "skyline": Markup(skyline_figure(group, record.quote, f"s{number}-")),
            }
            for number, group in enumerate(groups)
        ],
        shapes=parameter_shapes(rows),
        labels=label_bars(record),
        runs=runs_table(record, rows),
        models=models_table(rows),
        jobs=job_lines(record.jobs),
        fixed=setting_texts(record.settings),
        quotes=any(row.quoted for pivot in pivots for row in pivot.baselines)
        or any(column.quoted for pivot in pivots for column in pivot.columns),
        notes=list(
            dict.fromkeys([*(notes(groups) if groups else []), *(note for pivot in pivots for note in pivot.notes)])
        ),
    )
