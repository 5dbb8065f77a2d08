"""The report as one HTML file that needs nothing beside it: styles, pictures and the sorting of tables are inside."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.report.families import Family, Group
from common.report.pictures import png_bytes
from common.report.skyline import draw_skylines
from common.report.tables import columns, heading, notes, summary

TEMPLATE = "page.html.j2"


def render_page(title: str, groups: Sequence[Group], settings: str) -> str:
    """The page's HTML. Every text is escaped by the template."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE).render(
        title=title,
        groups=[_described(group) for group in groups],
        notes=notes(groups),
        settings=settings,
    )


def _described(group: Group) -> dict[str, Any]:
    """What the template shows of a group."""
    shown = columns(group)
    return {
        "heading": heading(group),
        "summary": summary(group),
        "skyline": base64.b64encode(png_bytes(draw_skylines([group]))).decode(),
        "columns": shown,
        "lines": [
            {"kind": _kind(group, family), "cells": [column.cell(family) for column in shown]}
            for family in group.families
        ],
    }


def _kind(group: Group, family: Family) -> str:
    return "teacher" if family.is_teacher else "best" if family is group.best_student else ""
