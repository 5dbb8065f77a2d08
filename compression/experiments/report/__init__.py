"""Reports of results, written from an experiment's record and rows: Markdown, a self-contained HTML page, pictures.

A sweep with a table layout also gets tables of means and deviations, as Markdown, CSV and LaTeX.
"""

import dataclasses
import functools
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.progress import side_task
from common.store.files import write_text
from compression.analysis.pictures import COLOURS, save_figure, svg_markup
from compression.evaluation.rows import Row
from compression.experiments.report.columns import TERMINAL_WIDTH, label_tables, metric_heading, models_table, summary
from compression.experiments.report.pictures import draw_reliability, draw_skylines, panels, point_id
from compression.experiments.report.pivot import pivots, terminal_pivot
from compression.experiments.report.record import ExperimentRecord, settings_lines
from compression.experiments.report.results import SplitResults, group_rows, grouped, mean
from compression.experiments.report.table import (
    Entry,
    Head,
    Line,
    Table,
    csv_table,
    escape_markdown,
    heading_levels,
    latex_table,
    markdown_list,
    markdown_table,
    number_entry,
    plain_table,
    text_entry,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = Path(__file__).parent / "page"


@dataclasses.dataclass(frozen=True)
class Extension:
    """What a kind of experiment shows in place of skylines.

    template: extends page.html.j2; context: its values; tables: for report.md.
    """

    template: Path
    context: Mapping[str, Any]
    tables: Sequence[Table]


def write_report(
    folder: Path, rows: list[Row], record: ExperimentRecord, extension: Extension | None = None
) -> dict[str, Path]:
    """Write an experiment's report into a folder. Returns the files' paths by name.

    Files: report.md and report.html; skyline.png and .pdf if a model was scored; reliability-<n>.png for the n-th
    split if students have probabilities; table.md, .csv and .tex if the record has a layout, or table-<task>.* if
    there are several tables. rows: as in results.json, of any tasks, splits, stages and seeds; extension: replaces the
    skyline. Raises UserError if there is nothing to report: no rows, no planned table, no labels.
    """
    report = Report(rows, record, extension)
    if not rows and not report.tables and not record.labels:
        raise UserError("nothing to report: no model was evaluated")
    texts = {"report.md": report.markdown(), "report.html": report.page(), **_table_files(report.tables)}
    pictures: list[Path] = []
    with side_task("a picture"):
        if report.splits and not extension:
            pictures += save_figure(draw_skylines(report.splits, record.quote), folder, "skyline", ("png", "pdf"))
        for number, results in enumerate(report.splits, 1):
            if figure := draw_reliability(results):  # drawn again for the page: a second rendering moves its parts
                pictures += save_figure(figure, folder, f"reliability-{number}")
    for name, text in texts.items():
        write_text(folder / name, text)
    return {path.name: path for path in (*pictures, *(folder / name for name in texts))}


def terminal_report(rows: Sequence[Row], record: ExperimentRecord) -> str:
    """Return an experiment as text for a terminal: tables of means if they fit, else one line per seed group."""
    tables = pivots(rows, record)
    fitting = [(table.title, *text) for table in tables if (text := terminal_pivot(table, TERMINAL_WIDTH))]
    if tables and len(fitting) == len(tables):
        every = dict.fromkeys(note for *_, notes in fitting for note in notes)
        return "\n\n".join([*(f"{title}\n{text}" for title, text, _ in fitting), filled(every)])
    parts = [terminal_table(rows)] if rows else []
    parts += [f"{table.title}\n{plain_table(table)}" for table in label_tables(record)]
    return "\n\n".join(parts) or "No model was evaluated."


def terminal_table(rows: Sequence[Row]) -> str:
    """Return the results as plain text, at most 110 columns wide: a table for each task and split, then notes."""
    splits = group_rows(rows)
    tables = [models_table(results, terminal=True) for results in splits]
    parts = [
        f"{table.title}\n{plain_table(table, TERMINAL_WIDTH)}\n{filled([summary(results)])}"
        for results, table in zip(splits, tables, strict=True)
    ]
    return "\n\n".join([*parts, filled(dict.fromkeys(note for table in tables for note in table.notes))])


def filled(texts: Iterable[str]) -> str:
    """Return texts, each wrapped to the width of a terminal."""
    wrapper = textwrap.TextWrapper(TERMINAL_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, texts))


def _table_files(tables: list[Table]) -> dict[str, str]:
    """Return file name -> contents of the tables' own files."""
    texts: dict[str, str] = {}
    for table in tables:
        word = re.sub(r"[^\w.+]+", "-", table.title).strip("-.")[:80]
        stem = f"table-{word}" if len(tables) > 1 else "table"
        while f"{stem}.md" in texts:
            stem += "-"
        texts[f"{stem}.md"] = "\n\n".join(_section(table, "#")) + "\n"
        texts[f"{stem}.csv"] = csv_table(table)
        texts[f"{stem}.tex"] = latex_table(table)
    return texts


def _section(table: Table, level: str) -> list[str]:
    parts = [f"{level} {escape_markdown(table.title)}", markdown_table(table)]
    notes = table.without("csv").notes
    return [*parts, markdown_list(notes)] if notes else parts


class Report:
    """What the files of a report show."""

    def __init__(self, rows: list[Row], record: ExperimentRecord, extension: Extension | None = None) -> None:
        """rows, extension: see `write_report`."""
        self.rows, self.record, self.extension = rows, record, extension
        self.tables = pivots(rows, record)
        self.labels = label_tables(record)
        self.splits = group_rows(rows)
        self.models = list(map(models_table, self.splits))
        self.diagrams = [_drawn(functools.partial(draw_reliability, results)) for results in self.splits]

    def markdown(self) -> str:
        """Return the report in Markdown; pictures are files next to it."""
        record, splits = self.record, self.splits
        parts = [f"# {escape_markdown(record.title)}"]
        parts += [f"{escape_markdown(results.heading)}: {escape_markdown(summary(results))}" for results in splits]
        parts += [markdown_list(record.summary)] if record.summary else []
        for table in self.tables:
            parts += _section(table, "##")
        parts += ["![Scores against sizes](skyline.png)"] if splits and not self.extension else []
        for table in (*(self.extension.tables if self.extension else ()), *self.labels, *self.models):
            parts += [f"## {escape_markdown(table.title)}", markdown_table(table)]
        for number, (results, figure) in enumerate(zip(splits, self.diagrams, strict=True), 1):
            picture = f"![Reliability on {escape_markdown(results.heading)}](reliability-{number}.png)"
            parts += [picture] if figure else []
        notes = dict.fromkeys(note for table in self.models for note in table.notes)
        parts += ["## How to read this", markdown_list(notes)] if splits else []
        # Four tildes, because nothing in JSON can close such a block.
        parts += ["## Settings", "\n".join(["~~~~json", *settings_lines(record), "~~~~"])]
        return "\n\n".join(parts) + "\n"

    def page(self) -> str:
        """Return the page's HTML; styles, pictures and scripts are inline, and the template escapes text."""
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup

        record, extension = self.record, self.extension
        environment = Environment(
            loader=FileSystemLoader([_PAGE, *([extension.template.parent] if extension else [])]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.globals["heading_levels"] = heading_levels
        environment.filters["shown"] = lambda value: (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )
        pivots = [table.without("csv") for table in self.tables]
        drawn = zip(self.splits, self.models, self.diagrams, strict=True)
        return environment.get_template(extension.template.name if extension else "page.html.j2").render(
            extension.context if extension else {},
            record=record,
            css=Markup((_PAGE / "page.css").read_text(encoding="utf-8")),
            script=Markup((_PAGE / "page.js").read_text(encoding="utf-8")),
            counts=_counts(record, self.rows),
            pivots=pivots,
            groups=[
                {
                    "heading": results.heading,
                    "summary": summary(results),
                    "table": table,
                    "skyline": "" if extension else Markup(self._skyline(results, f"s{number}-")),
                    "reliability": Markup(svg_markup(figure, f"r{number}-", {}) if figure else ""),
                    "columns": figure.axes[0].get_gridspec().ncols if figure else 0,
                }
                for number, (results, table, figure) in enumerate(drawn)
            ],
            shapes=_parameter_shapes(self.rows),
            colours=COLOURS,
            labels=self.labels,
            models=_models_table(record, self.rows),
            quotes=any(head.group == "quoted" for table in pivots for head in table.heads),
            notes=dict.fromkeys(note for table in (*self.models, *pivots) for note in table.notes),
        )

    def _skyline(self, results: SplitResults, prefix: str) -> str:
        """Return the skylines of a split as an <svg> element. prefix: prefix of its ids."""
        texts = {
            point_id(number, index): point.description
            for number, panel in enumerate(panels([results], self.record.quote))
            for index, point in enumerate(panel.points)
        }
        figure = _drawn(lambda: draw_skylines([results], self.record.quote))
        return svg_markup(figure, prefix, texts) if figure else ""


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


def _parameter_shapes(rows: Iterable[Row]) -> list[tuple[str, dict[str, int]]]:
    """Return name and parameters by part of each distinct shape of students (figure 7.1 of the thesis), small first."""
    shapes = {}
    for row in rows:
        parts = {name: count for name, count in row["parts"].items() if count}
        if parts and row["stage"] != "teacher":
            words = (row["student_arch"], row["embedding_type"], row["embedding_dim"])
            name = " ".join(str(word) for word in words if word is not None)
            name += f", vocabulary {row['vocab_size']:,}" if row["vocab_size"] is not None else ""
            shapes[name, str(parts)] = (name, parts)
    return sorted(shapes.values(), key=lambda shape: (sum(shape[1].values()), shape[0]))


def _drawn(draw: Callable[[], "Figure | None"]) -> "Figure | None":
    """Return a figure for the page; None, with a message, if it cannot be drawn."""
    with side_task("a picture"):
        return draw()
    return None


def _models_table(record: ExperimentRecord, rows: Sequence[Row]) -> Table | None:
    """Return a table of all models, and of a sweep's runs without a result; None if there are none."""
    models = grouped(rows, lambda row: (row["task"], row["model"], str(row.get("cell")), row["seed"]))
    shown: list[tuple[dict[str, Any], list[Row]]] = [(dict(scored[0]), scored) for scored in models.values()]
    done = {row.get("run_id") for row in rows} - {None}
    for run in record.runs:
        if run.id not in done:
            missing = {"run_id": run.id, "model": None, "task": run.settings.get("task"), "stage": "missing"}
            shown.append(({**run.model_dump(), **missing, "settings": {**record.settings, **run.settings}}, []))
    lines = []
    for model, scored in shown:
        run, stage = model.get("run_id"), model["stage"]
        texts = [*map((model.get("cell") or {}).get, record.axes), *map(model.get, ("model", "task", "stage"))]
        score = mean(next(iter(row["metrics"].values()), None) for row in scored)
        entries = [*map(text_entry, texts), Entry(str(model["seed"]), model["seed"]), number_entry(score, ".2f", 0.01)]
        details = (model["model"] or f"run with seed {model['seed']}", model["settings"])
        kind = stage if stage in ("teacher", "missing") else ""
        lines.append(Line([*entries, Entry((run or "")[:12], run)], kind, details if model["settings"] else ()))
    metrics = {next(iter(row["metrics"])) for row in rows if row["metrics"]}
    heads = [Head((name,), numeric=False) for name in (*record.axes, "model", "task", "stage")]
    heads += [Head(("seed",)), Head((metric_heading(*metrics) if len(metrics) == 1 else "Score × 100",))]
    return Table("Models", [*heads, Head(("run",), numeric=False)], lines).with_values() if lines else None
