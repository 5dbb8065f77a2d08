"""A table as data, and its rendering in Markdown, plain text, LaTeX and CSV; page.html.j2 renders it in HTML."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from common.tables import text_table
from compression.experiments.report.seed_groups import DASH, Stat

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
    """A row. kind: student, teacher, best, quoted, missing or ''. details: headings and texts that the page unfolds."""

    entries: Sequence[Entry]
    kind: str = ""
    details: Sequence[tuple[str, str]] = ()


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
    def every(self) -> list[Line]:
        """All lines, baselines first."""
        return [*self.baselines, *self.lines]

    def without(self, *groups: Group) -> Table:
        """Return the table without groups of columns, their notes, and, without quoted figures, quoted lines."""
        shown = dataclasses.replace(
            self,
            baselines=[line for line in self.baselines if line.kind not in groups],
            notes={note: group for note, group in self.notes.items() if group not in groups},
        )
        return shown.of_columns([i for i, head in enumerate(self.heads) if head.group not in groups])

    def with_values(self) -> Table:
        """Return the table without columns that have no value in any line, except labels and means over seeds."""
        known = [any(line.entries[i].value is not None for line in self.every) for i in range(len(self.heads))]
        return self.of_columns([i for i, h in enumerate(self.heads) if known[i] or h.seeds or i < self.labels])

    def of_columns(self, kept: Sequence[int]) -> Table:
        """Return the table with some of its columns. kept: their indices."""

        def lines(every: Sequence[Line]) -> list[Line]:
            return [dataclasses.replace(line, entries=[line.entries[i] for i in kept]) for line in every]

        heads = [self.heads[i] for i in kept]
        return dataclasses.replace(self, heads=heads, lines=lines(self.lines), baselines=lines(self.baselines))


@dataclasses.dataclass(frozen=True)
class Span:
    """A heading over adjacent columns. first: index of the leftmost column; down: number of levels that it spans."""

    text: str
    first: int
    width: int = 1
    down: int = 1


def text_entry(value: str | None) -> Entry:
    """Return an entry with a text, or a dash if it is None."""
    return Entry(value or DASH, value)


def number_entry(value: float | None, pattern: str = ",.0f", unit: float = 1) -> Entry:
    """Return an entry with a number in units of `unit`, or a dash if it is None; the percent sign is left out."""
    return Entry(DASH if value is None else format(value / unit, pattern).rstrip("%"), value)


def heading_levels(table: Table) -> list[list[Span]]:
    """Return the headings of each level; equal adjacent headings above the lowest level are merged."""
    depth = max((len(head.levels) for head in table.heads), default=1)
    levels: list[list[Span]] = [[] for _ in range(depth)]
    levels[0] += [Span(h.levels[0], i, down=depth) for i, h in enumerate(table.heads) if len(h.levels) == 1 < depth]
    columns = [(i, head.levels) for i, head in enumerate(table.heads) if len(head.levels) == depth]
    for level in range(depth):
        lowest = level == depth - 1
        for _, same in itertools.groupby(columns, lambda c: (c[0] if lowest else -1, c[1][: level + 1])):  # noqa: B023
            members = list(same)
            levels[level].append(Span(members[0][1][level], members[0][0], len(members)))
    return levels


def markdown_table(table: Table) -> str:
    """Return the table in Markdown: baselines first, the best in bold, heading levels joined by dots."""
    table = table.without("csv")
    header = [escape_markdown(head.text) for head in table.heads]
    rule = "|" + "|".join("---:" if head.numeric else "---" for head in table.heads) + "|"
    body = []
    for line in table.every:
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
    starred = {i for line in table.every for i, entry in enumerate(line.entries) if entry.kind == "best"}

    def shown(i: int, entry: Entry) -> str:
        return entry.text + ("*" if entry.kind == "best" else " ") if i in starred else entry.text

    body = [[shown(i, entry) for i, entry in enumerate(line.entries)] for line in table.every]
    return text_table([head.text for head in table.heads], body, [head.numeric for head in table.heads], width)


def csv_table(table: Table) -> str:
    """Return the table as CSV: kinds of lines and values, as in results.json; unknown values are empty.

    A mean over seeds has columns for the mean, the sample standard deviation and the number of seeds.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    endings = [(head, ending) for head in table.heads for ending in (_OF_SEEDS if head.seeds else ("",))]
    writer.writerow(["kind", *(f"{head.name or head.text}{ending}" for head, ending in endings)])
    for line in table.every:
        pairs = zip(table.heads, line.entries, strict=True)
        writer.writerow([line.kind, *(value for head, entry in pairs for value in _values(head, entry))])
    return stream.getvalue()


_OF_SEEDS = (", mean", ", sd", ", n")


def _values(head: Head, entry: Entry) -> Sequence[float | str | None]:
    if not head.seeds:
        return (entry.sort,)
    return dataclasses.astuple(entry.value) if isinstance(entry.value, Stat) else (None, None, 0)


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
    *upper, _ = levels = heading_levels(table)
    head = []
    for spans in upper:
        wide = [span for span in spans if span.down == 1]
        cells = [rf"\multicolumn{{{span.width}}}{{c}}{{{escape_latex(span.text)}}}" for span in wide]
        rules = [rf"\cmidrule(lr){{{span.first + 1}-{span.first + span.width}}}" for span in wide]
        head += [_line([*[""] * (wide[0].first if wide else 0), *cells]), "".join(rules)]
    lowest = sorted((s for spans in levels for s in spans if s.down > 1 or spans is levels[-1]), key=lambda s: s.first)
    head.append(_line(_stacked(span.text) for span in lowest))
    single = sum(len(head.levels) == 1 for head in table.heads)
    body = [_line(_baseline(line, table.labels, single)) for line in table.baselines]
    body += [r"\midrule"] if body else []
    above: list[str] = []
    for line in table.lines:
        labels, scores = ([e.text for e in line.entries[: table.labels]], line.entries[table.labels :])
        if above and table.labels > 1 and labels[0] != above[0]:
            body.append(r"\addlinespace")
        same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(above, labels, strict=False))))
        names = ["" if i < same else escape_latex(label) for i, label in enumerate(labels)]
        texts = [(escape_latex(entry.text), entry.kind == "best") for entry in scores]
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


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _stacked(title: str) -> str:
    """Return a quoted column's heading broken into several lines, to save width."""
    lines = [escape_latex(part) for part in re.split(r", (?=thesis)| (?=\(quoted\))", title)]
    return lines[0] if len(lines) == 1 else r"\shortstack{" + r"\\".join(lines) + "}"


def _baseline(line: Line, labels: int, single: int) -> list[str]:
    """Return a baseline's cells: the name spans the label columns, and equal adjacent scores are merged."""
    name, *texts = (escape_latex(entry.text) for entry in (line.entries[0], *line.entries[labels:]))
    sizes, scores = texts[: single - labels], itertools.groupby(texts[single - labels :])
    spans = (rf"\multicolumn{{{len(list(same))}}}{{c}}{{{text}}}" for text, same in scores)
    return [rf"\multicolumn{{{labels}}}{{l}}{{{name}}}", *sizes, *spans]
