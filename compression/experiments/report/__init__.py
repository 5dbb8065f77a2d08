"""Reports of results, written from an experiment's record and rows: Markdown, an HTML page and pictures.

A sweep with a table layout also gets tables of means and deviations, as Markdown, CSV and LaTeX.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from common.errors import UserError
from common.progress import side_task
from common.store.files import write_text
from compression.analysis.pictures import save_figure
from compression.evaluation.rows import Row
from compression.experiments.report.columns import TERMINAL_WIDTH, label_tables, models_table, summary
from compression.experiments.report.page import Extension, render_page
from compression.experiments.report.pictures import calibrated_groups, draw_reliability, draw_skylines
from compression.experiments.report.pivot import pivots, terminal_pivot
from compression.experiments.report.record import ExperimentRecord, settings_lines
from compression.experiments.report.results import SplitResults, group_rows
from compression.experiments.report.table import (
    Table,
    csv_table,
    escape_markdown,
    latex_table,
    markdown_list,
    markdown_table,
    plain_table,
)


def write_report(
    folder: Path, rows: list[Row], record: ExperimentRecord, extension: Extension | None = None
) -> dict[str, Path]:
    """Write an experiment's report into a folder. Returns the files' paths by name.

    Files: report.md and report.html; skyline.png and .pdf if a model was scored; reliability-<n>.png for the n-th
    split if students have probabilities; table.md, .csv and .tex if the record has a layout, or table-<task>.* if
    there are several tables. rows: as in results.json, of any tasks, splits, stages and seeds; extension: replaces the
    skyline. Raises UserError if there is nothing to report: no rows, no planned table, no labels.
    """
    tables = pivots(rows, record)
    if not rows and not tables and not record.labels:
        raise UserError("nothing to report: no model was evaluated")
    splits = group_rows(rows)
    pictures: list[Path] = []
    with side_task("a picture"):
        if splits and not extension:
            pictures += save_figure(draw_skylines(splits, record.quote), folder, "skyline", ("png", "pdf"))
        for number, results in enumerate(splits, 1):
            if figure := draw_reliability(results):
                pictures += save_figure(figure, folder, f"reliability-{number}")
    texts = {
        "report.md": _markdown(record, splits, tables, extension),
        "report.html": render_page(record, rows, splits, tables, extension),
        **_table_files(tables),
    }
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


def _markdown(
    record: ExperimentRecord, splits: list[SplitResults], tables: list[Table], extension: Extension | None
) -> str:
    parts = [f"# {escape_markdown(record.title)}"]
    parts += [f"{escape_markdown(results.heading)}: {escape_markdown(summary(results))}" for results in splits]
    parts += [markdown_list([escape_markdown(line) for line in record.summary])] if record.summary else []
    for table in tables:
        parts += _section(table, "##")
    parts += ["![Scores against sizes](skyline.png)"] if splits and not extension else []
    models = [models_table(results) for results in splits]
    for table in (*(extension.tables if extension else ()), *label_tables(record), *models):
        parts += [f"## {escape_markdown(table.title)}", markdown_table(table)]
    for number, results in enumerate(splits, 1):
        picture = f"![Reliability on {escape_markdown(results.heading)}](reliability-{number}.png)"
        parts += [picture] if calibrated_groups(results) else []
    notes = dict.fromkeys(note for table in models for note in table.notes)
    parts += ["## How to read this", markdown_list(notes)] if splits else []
    # Four tildes, because nothing in JSON can close such a block.
    parts += ["## Settings", "\n".join(["~~~~json", *settings_lines(record), "~~~~"])]
    return "\n\n".join(parts) + "\n"
