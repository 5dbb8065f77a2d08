"""A table as data, and its rendering in Markdown, plain text, LaTeX and CSV; page.html.j2 renders it in HTML."""

import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from common.tables import text_table
from compression.experiments.report.results import DASH, Stat

Value = float | str | Stat | None
Group = Literal["", "size", "quoted", "csv"]
"""Columns that a narrow table leaves out together: sizes and speeds, or quoted figures; csv: only CSV files have it."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A cell: its text, its value, by which tables are sorted, and its kind: best, quoted or empty."""

    text: str
    value: Value = None
    kind: str = ""

    @property
    def sort(self) -> float | str | None:
        """Number or text to sort by."""
        return self.value.mean if isinstance(self.value, Stat) else self.value


@dataclasses.dataclass(frozen=True)
class Head:
    """A column's heading. levels: texts from the top level to the lowest.

    name: in CSV files, by default the joined levels. seeds: whether values are a `Stat`, which is three columns of CSV.
    """

    levels: tuple[str, ...]
    numeric: bool = True
    group: Group = ""
    name: str = ""
    seeds: bool = False

    @property
    def text(self) -> str:
        """The levels on one line."""
        return " · ".join(self.levels)


@dataclasses.dataclass(frozen=True)
class Line:
    """A row. kind: student, teacher, best, quoted, missing or ''. details: heading and settings that a page unfolds."""

    entries: Sequence[Entry]
    kind: str = ""
    details: tuple[str, Mapping[str, Any]] | tuple[()] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """Lines under heads. baselines: lines above the others; labels: number of columns that name a line.

    notes: note -> the group of columns that it is about, or an empty text.
    """

    title: str
    heads: Sequence[Head]
    lines: Sequence[Line]
    baselines: Sequence[Line] = ()
    labels: int = 1
    notes: Mapping[str, Group] = dataclasses.field(default_factory=dict)

    @property
    def all_lines(self) -> list[Line]:
        """All lines, baselines first."""
        return [*self.baselines, *self.lines]

    def without(self, *groups: Group) -> Self:
        """Return the table without groups of columns, their notes, and, without quoted figures, quoted lines."""
        kept = [i for i, head in enumerate(self.heads) if head.group not in groups]
        baselines = [line for line in self.baselines if line.kind not in groups]
        notes = {note: group for note, group in self.notes.items() if group not in groups}
        return dataclasses.replace(self, baselines=baselines, notes=notes).of_columns(kept)

    def with_values(self) -> Self:
        """Return the table without columns that have no value in any line, except labels and means over seeds."""
        known = [any(line.entries[i].value is not None for line in self.all_lines) for i in range(len(self.heads))]
        return self.of_columns([i for i, h in enumerate(self.heads) if known[i] or h.seeds or i < self.labels])

    def of_columns(self, kept: Sequence[int]) -> Self:
        """Return the table with some of its columns. kept: their indices."""

        def shortened(lines: Sequence[Line]) -> list[Line]:
            return [dataclasses.replace(line, entries=[line.entries[i] for i in kept]) for line in lines]

        heads = [self.heads[i] for i in kept]
        return dataclasses.replace(self, heads=heads, lines=shortened(self.lines), baselines=shortened(self.baselines))


def table_of(
    title: str,
    columns: Iterable[tuple[Head, Callable[[Any], Entry]]],
    items: Iterable[Any],
    kind: Callable[[Any], str] = lambda item: "",
) -> Table:
    """Return a table with a line for each item, without columns that have no value in any line.

    columns: head, and function from an item to its entry; kind: of the line of an item.
    """
    heads, entries = zip(*columns, strict=True)
    return Table(title, heads, [Line([entry(one) for entry in entries], kind(one)) for one in items]).with_values()


def text_entry(value: str | None) -> Entry:
    """Return an entry with a text, or a dash if it is None."""
    return Entry(value or DASH, value)


def number_entry(value: float | None, pattern: str = ",.0f", unit: float = 1) -> Entry:
    """Return an entry with a number in units of `unit`, or a dash if it is None; the percent sign is left out."""
    return Entry(DASH if value is None else format(value / unit, pattern).rstrip("%"), value)


def text_column(name: str, text: Callable[[Any], str | None]) -> tuple[Head, Callable[[Any], Entry]]:
    """Return a column of texts for `table_of`. text: of an item."""
    return Head((name,), numeric=False), lambda item: text_entry(text(item))


def number_column(
    name: str, number: Callable[[Any], float | None], pattern: str = ",.0f", unit: float = 1, group: Group = ""
) -> tuple[Head, Callable[[Any], Entry]]:
    """Return a column of numbers for `table_of`. number: of an item; pattern, unit: see `number_entry`."""
    return Head((name,), group=group), lambda item: number_entry(number(item), pattern, unit)


def heading_levels(table: Table) -> list[list[tuple[str, int]]]:
    """Return text and width, in columns, of each level's headings. Equal adjacent ones above the lowest are merged."""
    depth = max(len(head.levels) for head in table.heads)
    padded = [("",) * (depth - len(head.levels)) + head.levels for head in table.heads]
    above = [itertools.groupby(padded, lambda levels, i=i: levels[: i + 1]) for i in range(depth - 1)]
    merged = [[(levels[-1], len(list(same))) for levels, same in spans] for spans in above]
    return [*merged, [(levels[-1], 1) for levels in padded]]


def markdown_table(table: Table) -> str:
    """Return the table in Markdown: baselines first, the best in bold, heading levels joined by dots."""
    table = table.without("csv")
    header = [escape_markdown(head.text) for head in table.heads]
    rule = "|" + "|".join("---:" if head.numeric else "---" for head in table.heads) + "|"
    body = []
    for line in table.all_lines:
        texts = [(escape_markdown(entry.text), "best" in (line.kind, entry.kind)) for entry in line.entries]
        body.append([f"**{text}**" if bold else text for text, bold in texts])
    first, *others = ("| " + " | ".join(cells) + " |" for cells in (header, *body))
    return "\n".join([first, rule, *others])


def escape_markdown(text: str) -> str:
    """Return text escaped for Markdown, on one line."""
    return " ".join(re.sub(r"([\\`*\[\]<>|])", r"\\\1", text).split())


def markdown_list(notes: Iterable[str]) -> str:
    """Return notes as a Markdown list."""
    return "\n".join(f"- {escape_markdown(note)}" for note in notes)


def plain_table(table: Table, width: int = 0) -> str:
    """Return the table in plain text, with a star at each best entry and names shortened to fit `width`."""
    table = table.without("csv")
    starred = {i for line in table.all_lines for i, entry in enumerate(line.entries) if entry.kind == "best"}

    def shown(i: int, entry: Entry) -> str:
        star = "*" if entry.kind == "best" else " "
        return entry.text + star if i in starred else entry.text

    body = [[shown(i, entry) for i, entry in enumerate(line.entries)] for line in table.all_lines]
    return text_table([head.text for head in table.heads], body, [head.numeric for head in table.heads], width)


def csv_table(table: Table) -> str:
    """Return the table as CSV: kinds of lines and values, as in results.json; unknown values are empty.

    A mean over seeds has columns for the mean, the sample standard deviation and the number of seeds.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    endings = [
        (head, ending) for head in table.heads for ending in ((", mean", ", sd", ", n") if head.seeds else ("",))
    ]
    writer.writerow(["kind", *(f"{head.name or head.text}{ending}" for head, ending in endings)])
    for line in table.all_lines:
        cells: list[float | str | None] = [line.kind]
        for head, entry in zip(table.heads, line.entries, strict=True):
            of_seeds = dataclasses.astuple(entry.value) if isinstance(entry.value, Stat) else (None, None, 0)
            cells += of_seeds if head.seeds else (entry.sort,)
        writer.writerow(cells)
    return stream.getvalue()


_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    # At the start of a table line, LaTeX would read these as an argument of the preceding line break.
    "[": "{[}",
    "*": "{*}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "α": r"$\alpha$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    DASH: r"\textendash{}",
}


def escape_latex(text: str) -> str:
    """Return text escaped for LaTeX, on one line, without control characters."""
    shown = "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()) if sign.isprintable())
    return re.sub("-(?=-)", "-{}", shown)  # LaTeX would turn two hyphens into a dash


def latex_table(table: Table) -> str:
    """Return a LaTeX `table` like the thesis's table 7.1: baselines first, the best in bold, notes below."""
    table = table.without("csv")
    *upper, lowest = heading_levels(table)
    head = []
    for spans in upper:
        starts = itertools.accumulate((width for _, width in spans), initial=1)
        ranges = [(start, start + width - 1) for (text, width), start in zip(spans, starts, strict=False) if text]
        rules = [rf"\cmidrule(lr){{{first}-{last}}}" for first, last in ranges]
        head += [_line(_wide(escape_latex(text), width) for text, width in spans), "".join(rules)]
    head.append(_line(_stacked(text) for text, _ in lowest))
    body = []
    for line in table.baselines:  # the name spans the columns of labels, and equal adjacent scores are merged
        name, *texts = (escape_latex(entry.text) for entry in (line.entries[0], *line.entries[table.labels :]))
        scores = (_wide(text, len(list(same))) for text, same in itertools.groupby(texts))
        body.append(_line([_wide(name, table.labels, "l"), *scores]))
    body += [r"\midrule"] if body else []
    above: list[str] = []
    for line in table.lines:
        labels = [entry.text for entry in line.entries[: table.labels]]
        if above and table.labels > 1 and labels[0] != above[0]:
            body.append(r"\addlinespace")
        same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(above, labels, strict=False))))
        names = ["" if i < same else escape_latex(label) for i, label in enumerate(labels)]
        texts = [(escape_latex(entry.text), entry.kind == "best") for entry in line.entries[table.labels :]]
        body.append(_line([*names, *(rf"\textbf{{{text}}}" if best else text for text, best in texts)]))
        above = labels
    return "\n".join(
        [
            r"% Needs \usepackage{booktabs} and \usepackage[T1]{fontenc}.",
            *(r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(table.title)}}}"),
            rf"\begin{{tabular}}{{{''.join('r' if head.numeric else 'l' for head in table.heads)}}}",
            *(r"\toprule", *head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"),
            rf"\par\smallskip\footnotesize {' '.join(map(escape_latex, table.notes))}",
            r"\end{table}" + "\n",
        ]
    )


def _wide(text: str, width: int, align: str = "c") -> str:
    return text if width == 1 else rf"\multicolumn{{{width}}}{{{align}}}{{{text}}}"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _stacked(title: str) -> str:
    """Return a quoted column's heading broken into several lines, to save width."""
    lines = [escape_latex(part) for part in re.split(r", (?=thesis)| (?=\(quoted\))", title)]
    return lines[0] if len(lines) == 1 else r"\shortstack{" + r"\\".join(lines) + "}"
