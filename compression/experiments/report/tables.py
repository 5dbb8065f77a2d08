"""Tables of results: which columns there are, and how they look in Markdown and on a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from common.tables import UNITS, human_bytes, text_table
from compression.experiments.report.families import Family, Group, Stat

DASH = "–"
TERMINAL_WIDTH = 110
TITLES = {
    "accuracy": "Accuracy",
    "agreement": "Agreement with teacher",
    "f1": "F1",
    "f1_macro": "F1 macro",
    "entity_f1": "Entity F1",
    "entity_precision": "Precision",
    "entity_recall": "Recall",
}
CORRELATIONS = {
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "agreement_pearson": "Pearson with teacher",
}
"""Metrics by the titles they have in tables; what is no correlation is a share, shown in percent."""
SELECTED_ON_TEST = "† The test split itself chose these weights, as in the thesis: their scores on it are too good."


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell's text, and the number or text to sort it by; None sorts last."""

    text: str
    sort: float | str | None


@dataclasses.dataclass(frozen=True)
class Column:
    """A heading, and what to show of a family."""

    heading: str
    cell: Callable[[Family], Cell]
    numeric: bool = True
    on_terminal: bool = True


def percent(score: Stat) -> str:
    """'79.25 ± 0.31 (4)': mean, sample standard deviation and number of seeds, all times 100."""
    spread = "" if score.sd is None else f" ± {100 * score.sd:.2f}"
    return f"{100 * score.mean:.2f}{spread} ({score.n})"


def columns(group: Group) -> list[Column]:
    """The columns of a group's table: those of which at least one model has a value."""
    teachers = {teacher.name for family in group.families if (teacher := group.teacher_of(family))}
    only_teacher = next(iter(teachers)) if len(teachers) == 1 else None
    cells = any(family.rows[0].get("cell") for family in group.families)  # whose names say how they were trained
    than = f"smaller than {only_teacher}" if only_teacher else "smaller than teacher"
    wanted = [
        Column("Model", lambda family: Cell(family.label, family.label), numeric=False),
        Column("Trained on", lambda family: Cell(family.trained_on, family.trained_on), False, on_terminal=not cells),
        Column("Stage", lambda family: _text(family.rows[0].get("stage")), numeric=False, on_terminal=False),
        Column("Parameters", lambda family: _number(family.size("parameters"), ",.0f")),
        Column(
            "Trained parameters", lambda family: _number(family.size("trained_parameters"), ",.0f"), on_terminal=False
        ),
        Column("Nonzero", lambda family: _number(family.size("nonzero_parameters"), ",.0f"), on_terminal=False),
        _size_column("bytes_model", on_terminal=False),
        _size_column("bytes_gzip"),
        _size_column("bytes_packed", on_terminal=False),
        *(_metric_column(name) for name in group.metrics),
        Column("Training, s", lambda family: _number(family.training_seconds(), ",.1f"), on_terminal=False),
        _ratio_column(f"× {than}", group, "bytes_model", only_teacher, on_terminal=False),
        _ratio_column(f"gzipped, × {than}", group, "bytes_gzip", only_teacher, on_terminal=True),
    ]
    return [column for column in wanted if any(column.cell(family).sort is not None for family in group.families)]


def _text(value: str | None) -> Cell:
    return Cell(value or DASH, value)


def _number(value: float | None, pattern: str) -> Cell:
    return Cell(DASH if value is None else format(value, pattern), value)


def _size_column(field: str, on_terminal: bool = True) -> Column:
    def cell(family: Family) -> Cell:
        size = family.size(field)
        return Cell(DASH if size is None else f"{size / 1000:,.1f}", size)

    return Column(f"{field}, KB", cell, on_terminal=on_terminal)


def _metric_column(name: str) -> Column:
    def cell(family: Family) -> Cell:
        score = family.metric(name)
        return Cell(percent(score), score.mean) if score else Cell(DASH, None)

    return Column(metric_heading(name), cell)


def metric_heading(name: str) -> str:
    """'accuracy' -> 'Accuracy, %', 'matthews' -> 'Matthews × 100'."""
    return f"{CORRELATIONS[name]} × 100" if name in CORRELATIONS else f"{TITLES.get(name, name)}, %"


def _ratio_column(heading: str, group: Group, field: str, only_teacher: str | None, on_terminal: bool) -> Column:
    def cell(family: Family) -> Cell:
        ratio, teacher = group.times_smaller(family, field), group.teacher_of(family)
        if ratio is None or teacher is None:
            return Cell(DASH, None)
        text = f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.1f}"
        return Cell(text if only_teacher else f"{text} ({teacher.name})", ratio)

    return Column(heading, cell, on_terminal=on_terminal)


def notes(groups: Sequence[Group]) -> list[str]:
    """What a reader must know to read the tables, one sentence or two each."""
    families = [family for group in groups for family in group.families]
    lines = [
        "Scores are means over seeds ± the sample standard deviation (n − 1), with the number of seeds in brackets.",
        f"bytes_model is the weights file, bytes_gzip that file gzipped. {UNITS}",
    ]
    metrics = {name for group in groups for name in group.metrics}
    if metrics & set(CORRELATIONS):
        lines.append("Matthews, Pearson and Spearman are correlations, here times 100 as GLUE reports them.")
    if metrics & {"agreement", "agreement_pearson"}:
        lines.append("Agreement with the teacher is all that rows without labels can show.")
    if any(family.is_teacher for family in families):
        lines.append(
            "Times smaller: the teacher's bytes_model divided by the model's bytes_model, "
            "and (the thesis's measure) by its bytes_gzip."
        )
    if any(family.selected_on_test for family in families):
        lines.append(SELECTED_ON_TEST)
    return lines


def summary(group: Group) -> str:
    """The best student in a sentence, beside its teacher."""
    best = group.best_student
    if best is None:
        return "No student was scored."
    metric = group.metrics[0]
    size = best.size("bytes_gzip")
    text = f"Best student: {best.label}, {_spoken(metric)} {_mean(best, metric)}"
    text += f", {human_bytes(size)} gzipped" if size else ""
    teacher, ratio = group.teacher_of(best), group.times_smaller(best, "bytes_gzip")
    if teacher and ratio:
        text += f"; its teacher {teacher.name}"
        text += f" has {_mean(teacher, metric)} in" if teacher.metric(metric) else " takes"
        text += f" {human_bytes(teacher.size('bytes_model') or 0)}, {ratio:,.0f} times as much"
    return text + "."


def _spoken(metric: str) -> str:
    """A metric's name within a sentence."""
    title = CORRELATIONS.get(metric) or TITLES.get(metric, metric)
    return title.lower() if metric in ("accuracy", "agreement") else title


def _mean(family: Family, metric: str) -> str:
    score = family.metric(metric)
    assert score is not None
    return f"{100 * score.mean:.2f}" + ("" if metric in CORRELATIONS else " %")


def heading(group: Group) -> str:
    """'sst-2, test (872 rows)'."""
    return f"{group.task}, {group.split}" + (f" ({group.rows_scored:,} rows)" if group.rows_scored else "")


def markdown_table(group: Group) -> str:
    """The group's table in Markdown, the best student in bold."""
    shown = columns(group)
    body = []
    for family in group.families:
        cells = [escape_markdown(column.cell(family).text) for column in shown]
        body.append([f"**{cell}**" for cell in cells] if family is group.best_student else cells)
    header = [escape_markdown(column.heading) for column in shown]
    return markdown_lines(header, body, [column.numeric for column in shown])


def markdown_lines(header: Sequence[str], body: Iterable[Sequence[str]], numeric: Sequence[bool]) -> str:
    """A table in Markdown of cells that are escaped already, numbers to the right."""
    rule = "|" + "|".join("---:" if right else "---" for right in numeric) + "|"
    first, *others = ("| " + " | ".join(cells) + " |" for cells in (header, *body))
    return "\n".join([first, rule, *others])


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    for sign in "\\`*[]<>|":
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())


def terminal_group(group: Group) -> str:
    """The group's table for a terminal, the narrower choice of columns."""
    shown = [column for column in columns(group) if column.on_terminal]
    body = [[column.cell(family).text for column in shown] for family in group.families]
    # A teacher's name may be long, and a heading of several words is not needed here.
    header = ["× smaller" if "smaller" in column.heading else column.heading for column in shown]
    return text_table(header, body, [column.numeric for column in shown], TERMINAL_WIDTH)
