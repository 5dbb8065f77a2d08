"""What the page's template shows of rows and record, put together here: the template only lays it out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compression.analysis.pictures import COLOURS, svg_markup
from compression.experiments.report.families import Family, Group, Row
from compression.experiments.report.label_shares import quoted_beside
from compression.experiments.report.points import panels
from compression.experiments.report.record import ExperimentRecord, Quote
from compression.experiments.report.skyline import draw_skylines, point_id
from compression.experiments.report.tables import Cell, columns

_PART_COLOURS = dict(zip(("embedding", "encoder", "classifier"), COLOURS, strict=False))


@dataclasses.dataclass(frozen=True)
class Head:
    """A column's heading, and whether its cells are numbers."""

    text: str
    numeric: bool = True


@dataclasses.dataclass(frozen=True)
class Line:
    """A row of a table. kind: its class (teacher, best, missing). details: headings and texts to unfold, if any."""

    cells: list[Cell]
    kind: str = ""
    details: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that readers sort by any column; its first column names the row. caption: for those who cannot see it."""

    caption: str
    heads: list[Head]
    lines: list[Line]


@dataclasses.dataclass(frozen=True)
class Slice:
    """A part of a pie. start, share: of the whole, from 0 to 1."""

    name: str
    count: int
    start: float
    share: float
    colour: str


@dataclasses.dataclass(frozen=True)
class Shape:
    """A kind of student with a number of parameters: one pie (figure 7.1 of the thesis)."""

    name: str
    total: int
    slices: list[Slice]


@dataclasses.dataclass(frozen=True)
class Bar:
    """A label's share of some rows. share: from 0 to 1; kind: its colour's class; said: what it is of."""

    said: str
    share: float
    kind: str


def counts(record: ExperimentRecord, rows: Sequence[Row]) -> list[tuple[str, int]]:
    """What there is, in numbers: shown at the head of the page. Zeros are left out."""
    done = {row["run_id"] for row in rows if row.get("run_id") is not None}
    cells = {tuple(run.cell.items()) for run in record.runs}
    scored = {tuple(run.cell.items()) for run in record.runs if run.id in done}
    models = {(row["task"], row["model"]) for row in rows}
    found = [
        ("runs", len(record.runs)),
        ("runs without a result", sum(run.id not in done for run in record.runs)),
        ("cells without any", len(cells - scored)),
        ("seeds", len(record.seeds)),
        ("jobs", len(record.jobs)),
        ("models scored", len(models)),
    ]
    return [(name, number) for name, number in found if number]


def families_table(group: Group) -> Table:
    """All families of a group, as in the Markdown report."""
    shown = columns(group)
    best = group.best_student

    def kind(family: Family) -> str:
        return "teacher" if family.is_teacher else "best" if family is best else ""

    return Table(
        f"Models on {group.task}, {group.split}",
        [Head(column.heading, column.numeric) for column in shown],
        [Line([column.cell(family) for column in shown], kind(family)) for family in group.families],
    )


def skyline_figure(group: Group, quote: Quote | None, prefix: str) -> str:
    """The group's skylines as an <svg> element. prefix: of its ids."""
    texts = {
        point_id(number, index): point.about
        for number, panel in enumerate(panels([group], quote))
        for index, point in enumerate(panel.every)
    }
    return svg_markup(draw_skylines([group], quote), prefix, texts)


def parameter_shapes(rows: Iterable[Row]) -> list[Shape]:
    """The distinct kinds of students, from few parameters to many; pruning and quantizing change no numbers of them."""
    shapes: dict[tuple[Any, ...], Shape] = {}
    for row in rows:
        parts = {name: count for name, count in (row.get("parts") or {}).items() if count}
        if parts and row.get("stage") != "teacher":
            fields = ("student_arch", "embedding_type", "embedding_dim")
            name = " ".join(str(row[field]) for field in fields if row.get(field) is not None)
            name += f", vocabulary {row['vocab_size']:,}" if isinstance(row.get("vocab_size"), int) else ""
            shapes.setdefault((name, tuple(parts.items())), Shape(name, sum(parts.values()), _slices(parts)))
    return sorted(shapes.values(), key=lambda shape: (shape.total, shape.name))


def _slices(parts: Mapping[str, int]) -> list[Slice]:
    total, seen, found = sum(parts.values()), 0, []
    for name, count in parts.items():
        found.append(Slice(name, count, seen / total, count / total, _PART_COLOURS.get(name, COLOURS[3])))
        seen += count
    return found


def label_bars(record: ExperimentRecord) -> dict[str, dict[str, list[Bar]]]:
    """Task -> label -> a bar for each kind of rows, and after it the thesis's share where its own task is quoted."""
    tasks: dict[str, dict[str, list[Bar]]] = {}
    for shares in record.labels:
        kind = shares.rows if shares.rows in ("train", "augmented") else "other"
        quoted = quoted_beside(record, shares.task, shares.rows)
        for label, share in shares.shares.items():
            bars = tasks.setdefault(shares.task, {}).setdefault(label, [])
            bars.append(Bar(f"{shares.rows} ({shares.count:,} rows)", share, kind))
            if label in quoted:
                bars.append(Bar(f"{shares.rows}, thesis (quoted)", quoted[label], "quoted"))
    return tasks


def job_lines(jobs: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Jobs as their name and their settings, each as name and value."""
    return [(str(job.get("job", "job")), setting_texts({**job, "job": None})) for job in jobs]


def setting_texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as text, those that are set."""
    return [(name, value_text(value)) for name, value in settings.items() if value is not None]


def value_text(value: Any) -> str:
    """A setting's value as JSON, a text without its quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
