"""A table of means and deviations in LaTeX, in the manner of the thesis's table 7.1."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from compression.experiments.report.pivot_table import Pivot, PivotCell, PivotColumn, PivotRow
from compression.experiments.report.pivot_text import SIZE_HEADINGS, has_sizes, shown_name, size_cells
from compression.experiments.report.tables import DASH

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    # A line of a table that began with one of these two would be read as part of the line break before it.
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
    """Text that LaTeX sets as it is, on one line. Signs that no text has (control characters) are left out."""
    shown = "".join(character for character in " ".join(text.split()) if character.isprintable())
    # Two hyphens would be set as a dash.
    return re.sub("-(?=-)", "-{}", "".join(_SIGNS.get(character, character) for character in shown))


def latex_pivot(pivot: Pivot) -> str:
    """A `table` with baselines first, the best means bold, notes below it."""
    sizes = SIZE_HEADINGS if has_sizes(pivot) else ()
    labels = len(pivot.row_headings)
    body = [_line(_baseline(row, sizes)) for row in pivot.baselines]
    body += [r"\midrule"] if body else []
    shown: tuple[str, ...] = ()
    for row in pivot.rows:
        if shown and row.labels[0] != shown[0] and labels > 1:
            body.append(r"\addlinespace")
        body.append(_line([*_without_repeats(shown, row), *_sizes(row, sizes), *map(_score, row.cells)]))
        shown = row.labels
    notes = " ".join(map(escape_latex, pivot.notes))
    return "\n".join(
        [
            r"% Needs \usepackage{booktabs} and \usepackage[T1]{fontenc}.",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(pivot.title)}}}",
            rf"\begin{{tabular}}{{{'l' * labels}{'r' * (len(sizes) + len(pivot.columns))}}}",
            r"\toprule",
            *_heads(pivot, len(sizes)),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\par\smallskip\footnotesize {notes}",
            r"\end{table}",
            "",
        ]
    )


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _heads(pivot: Pivot, sizes: int) -> list[str]:
    """A line of heads for every axis of the columns, equal neighbours under one head, then the metrics."""
    before = len(pivot.row_headings) + sizes
    lines = []
    for depth in range(len(pivot.column_axes)):
        heads, rules = [], []
        at = before + 1
        for label, members in itertools.groupby(column.labels[: depth + 1] for column in pivot.columns):
            width = len(list(members))
            heads.append(_span(width, escape_latex(label[-1])))
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
            at += width
        lines += [_line([*[""] * before, *heads]), "".join(rules)]
    names = map(escape_latex, (*pivot.row_headings, *SIZE_HEADINGS[:sizes]))
    return [*lines, _line([*names, *map(_title, pivot.columns)])]


def _title(column: PivotColumn) -> str:
    """A metric, and below it, to save width, whose figures these are."""
    metric, source = escape_latex(column.metric), escape_latex(column.source)
    return rf"\shortstack{{{metric}\\{source}}}".replace(" (quoted)", r"\\(quoted)") if source else metric


def _span(width: int, text: str) -> str:
    return rf"\multicolumn{{{width}}}{{c}}{{{text}}}"


def _without_repeats(above: Sequence[str], row: PivotRow) -> list[str]:
    """The row's headings, those left empty that the row above has too."""
    same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(above, row.labels, strict=False))))
    return ["" if i < same else escape_latex(heading) for i, heading in enumerate(shown_name(row))]


def _sizes(row: PivotRow, sizes: Sequence[str]) -> list[str]:
    return [escape_latex(text) for text in size_cells(row)] if sizes else []


def _score(cell: PivotCell) -> str:
    text = escape_latex(cell.text)
    return rf"\textbf{{{text}}}" if cell.best else text


def _baseline(row: PivotRow, sizes: Sequence[str]) -> list[str]:
    """A baseline's name across the row headings, and its score across neighbours that have the same one."""
    texts = (escape_latex(cell.text) for cell in row.cells)
    scores = [(text, len(list(members))) for text, members in itertools.groupby(texts)]
    name = rf"\multicolumn{{{len(row.labels)}}}{{l}}{{{escape_latex(shown_name(row)[0])}}}"
    return [name, *_sizes(row, sizes), *(_span(width, text) for text, width in scores)]
