"""Reports of results: a Markdown file, an HTML page and the skyline, all made from rows of results.json."""

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.report.families import Group, Row, group_rows
from common.report.page import render_page
from common.report.pictures import save_figure
from common.report.skyline import draw_skylines
from common.report.tables import (
    TERMINAL_WIDTH,
    escape_markdown,
    heading,
    markdown_table,
    notes,
    summary,
    terminal_group,
)
from common.workspace import write_text


def write_report(folder: Path, rows: list[Row], title: str, settings: dict[str, Any]) -> dict[str, Path]:
    """Write report.md, report.html, skyline.png and skyline.pdf into a folder. Returns their paths by file name.

    rows: as in results.json, of any tasks, splits, stages and seeds. settings: shown at the end, for the reader to know
    what was run. Raises UserError when there are no rows.
    """
    if not rows:
        raise UserError("nothing to report: no model was evaluated")
    groups = group_rows(rows)
    said = json.dumps(settings, indent=2, ensure_ascii=False, default=str)
    pictures = save_figure(draw_skylines(groups), folder, "skyline", ("png", "pdf"))
    paths = {path.name: path for path in (*pictures, folder / "report.md", folder / "report.html")}
    write_text(paths["report.md"], _markdown(title, groups, said))
    write_text(paths["report.html"], render_page(title, groups, said))
    return paths


def terminal_table(rows: Sequence[Row]) -> str:
    """The results as plain text, at most 110 columns wide: a table for each task and split, then how to read it."""
    groups = group_rows(rows)
    tables = [f"{heading(group)}\n{terminal_group(group)}\n{_filled(summary(group))}" for group in groups]
    return "\n\n".join([*tables, "\n".join(map(_filled, notes(groups)))])


def _filled(text: str) -> str:
    return textwrap.fill(text, TERMINAL_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _markdown(title: str, groups: list[Group], settings: str) -> str:
    parts = [f"# {escape_markdown(title)}"]
    parts += [f"{escape_markdown(heading(group))}: {escape_markdown(summary(group))}" for group in groups]
    parts.append("![Scores against sizes](skyline.png)")
    for group in groups:
        parts += [f"## {escape_markdown(heading(group))}", markdown_table(group)]
    parts += ["## How to read this", "\n".join(f"- {escape_markdown(note)}" for note in notes(groups))]
    # Four tildes: nothing in JSON ends such a block.
    parts += ["## Settings", f"~~~~json\n{settings}\n~~~~"]
    return "\n\n".join(parts) + "\n"
