"""Reports of results, made from an experiment's record and rows of results.json: Markdown, an HTML page, pictures.

A sweep with a layout gets its tables of means and deviations too, as Markdown, CSV and LaTeX.
"""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.store.files import write_text
from common.tables import text_table
from compression.analysis.pictures import save_figure
from compression.experiments.report.families import Group, Row, group_rows
from compression.experiments.report.label_shares import ShareTable, share_tables
from compression.experiments.report.latex import latex_pivot
from compression.experiments.report.page import render_page
from compression.experiments.report.pivot import Pivot, pivots
from compression.experiments.report.pivot_text import csv_pivot, markdown_pivot, text_pivot
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.settings_text import settings_lines
from compression.experiments.report.skyline import draw_skylines
from compression.experiments.report.tables import (
    TERMINAL_WIDTH,
    escape_markdown,
    heading,
    markdown_lines,
    markdown_table,
    notes,
    summary,
    terminal_group,
)


def write_report(folder: Path, rows: list[Row], record: ExperimentRecord) -> dict[str, Path]:
    """Write an experiment's report into a folder. Returns the files' paths by name.

    report.md and report.html; skyline.png and .pdf where a model was scored; where the record has a layout, table.md,
    .csv and .tex, or table-<task>.* where there are several. rows: as in results.json, of any tasks, splits, stages
    and seeds. Raises UserError when there is nothing to report: no rows, no planned table, no labels.
    """
    tables = pivots(rows, record)
    if not rows and not tables and not record.labels:
        raise UserError("nothing to report: no model was evaluated")
    groups = group_rows(rows)
    pictures = save_figure(draw_skylines(groups, record.quote), folder, "skyline", ("png", "pdf")) if groups else []
    texts = {
        "report.md": _markdown(record, groups, tables),
        "report.html": render_page(record, rows, groups, tables),
        **_table_files(tables),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return {path.name: path for path in (*pictures, *(folder / name for name in texts))}


def terminal_report(rows: Sequence[Row], record: ExperimentRecord) -> str:
    """What a terminal shows of an experiment: tables of means and deviations where they fit, else a line a family."""
    tables = pivots(rows, record)
    fitting = [(table.title, *text) for table in tables if (text := text_pivot(table, TERMINAL_WIDTH))]
    if tables and len(fitting) == len(tables):
        shown = [f"{title}\n{text}" for title, text, _ in fitting]
        said = dict.fromkeys(note.replace("Bold:", "*:") for _, _, notes in fitting for note in notes)
        return "\n\n".join([*shown, "\n".join(map(_filled, said))])
    parts = [terminal_table(rows)] if rows else []
    for table in share_tables(record):
        numeric = [i > 0 for i in range(len(table.header))]
        parts.append(f"{table.task}, labels\n{text_table(table.header, table.lines, numeric)}")
    return "\n\n".join(parts) or "No model was evaluated."


def terminal_table(rows: Sequence[Row]) -> str:
    """The results as plain text, at most 110 columns wide: a table for each task and split, then how to read it."""
    groups = group_rows(rows)
    tables = [f"{heading(group)}\n{terminal_group(group)}\n{_filled(summary(group))}" for group in groups]
    return "\n\n".join([*tables, "\n".join(map(_filled, notes(groups)))])


def _filled(text: str) -> str:
    return textwrap.fill(text, TERMINAL_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _table_files(tables: list[Pivot]) -> dict[str, str]:
    """Contents of the tables' own files by name."""
    texts = {}
    for table in tables:
        stem = f"table-{_word(table.title)}" if len(tables) > 1 else "table"
        while f"{stem}.md" in texts:
            stem += "-"
        texts[f"{stem}.md"] = "\n\n".join(_section(table, "#")) + "\n"
        texts[f"{stem}.csv"] = csv_pivot(table)
        texts[f"{stem}.tex"] = latex_pivot(table)
    return texts


def _word(title: str) -> str:
    """A title as part of a file's name."""
    return re.sub(r"[^\w.+]+", "-", title).strip("-.")[:80]


def _section(table: Pivot, level: str) -> list[str]:
    return [f"{level} {escape_markdown(table.title)}", markdown_pivot(table), _list(table.notes)]


def _list(notes: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(note)}" for note in notes)


def _markdown(record: ExperimentRecord, groups: list[Group], tables: list[Pivot]) -> str:
    parts = [f"# {escape_markdown(record.title)}"]
    parts += [f"{escape_markdown(heading(group))}: {escape_markdown(summary(group))}" for group in groups]
    for table in tables:
        parts += _section(table, "##")
    parts += ["![Scores against sizes](skyline.png)"] if groups else []
    for table in share_tables(record):
        parts += _shares_section(table)
    for group in groups:
        parts += [f"## {escape_markdown(heading(group))}", markdown_table(group)]
    parts += ["## How to read this", _list(notes(groups))] if groups else []
    # Four tildes: nothing in JSON ends such a block.
    parts += ["## Settings", "\n".join(["~~~~json", *settings_lines(record), "~~~~"])]
    return "\n\n".join(parts) + "\n"


def _shares_section(table: ShareTable) -> list[str]:
    body = [list(map(escape_markdown, line)) for line in table.lines]
    numeric = [i > 0 for i in range(len(table.header))]
    header = list(map(escape_markdown, table.header))
    return [f"## {escape_markdown(table.task)}, labels", markdown_lines(header, body, numeric)]
