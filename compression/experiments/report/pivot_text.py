"""A table of means and deviations as Markdown, as CSV for programs, and as plain text."""

from __future__ import annotations

import csv
import io

from common.tables import text_table
from compression.experiments.report.pivot_notes import ABOUT_QUOTES, ABOUT_SIZES
from compression.experiments.report.pivot_table import Pivot, PivotRow
from compression.experiments.report.tables import DASH, escape_markdown, markdown_lines

SIZE_HEADINGS = ("P", "S, MB")
MEGABYTE = 1e6
_SHORT = {"student_arch": "student", "embedding_type": "embedding", "embedding_dim": "dim", "vocab_size": "vocab"}
"""Names of axes on a terminal."""


def has_sizes(pivot: Pivot) -> bool:
    """Whether there is anything to show in the columns of parameters and sizes; cells may tell sizes themselves."""
    return not pivot.sizes and any(
        row.parameters is not None or row.size is not None for row in (*pivot.baselines, *pivot.rows)
    )


def size_cells(row: PivotRow) -> tuple[str, str]:
    """'298,002' and '1.193': parameters and megabytes."""
    parameters = DASH if row.parameters is None else f"{row.parameters:,.0f}"
    if row.size is None:
        return parameters, DASH
    megabytes = row.size / MEGABYTE
    return parameters, f"{megabytes:,.{3 if megabytes < 10 else 1 if megabytes < 1000 else 0}f}"


def shown_name(row: PivotRow) -> tuple[str, ...]:
    """A row's headings; a baseline of the thesis is marked."""
    first, *others = row.headings
    return (f"{first} (quoted)" if row.quoted else first, *others)


def markdown_pivot(pivot: Pivot) -> str:
    """The table in Markdown, baselines first, the best means in bold. Its notes are not part of it."""
    sizes = has_sizes(pivot)
    header = [*pivot.row_headings, *(SIZE_HEADINGS if sizes else ()), *(column.heading for column in pivot.columns)]
    body = [
        [
            *map(escape_markdown, shown_name(row)),
            *(size_cells(row) if sizes else ()),
            *(f"**{cell.text}**" if cell.best else cell.text for cell in row.cells),
        ]
        for row in (*pivot.baselines, *pivot.rows)
    ]
    labels = len(pivot.row_headings)
    return markdown_lines(list(map(escape_markdown, header)), body, [i >= labels for i in range(len(header))])


def csv_pivot(pivot: Pivot) -> str:
    """The table for programs: labels, parameters, bytes, then mean, deviation and number of seeds of every column.

    Scores are as in results.json, from 0 to 1 or a correlation; what is not there is empty. kind: student, teacher, or
    quoted for the thesis's baselines.
    """
    header = ["kind", *pivot.row_headings, "parameters", "bytes", "bytes_of", "selected_on_test"]
    told = ("mean", "sd", "n", *(("bytes_packed",) if pivot.sizes else ()))
    header += [f"{column.heading}, {what}" for column in pivot.columns for what in told]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    kinds = [*("quoted" if row.quoted else "teacher" for row in pivot.baselines), *["student"] * len(pivot.rows)]
    for kind, row in zip(kinds, (*pivot.baselines, *pivot.rows), strict=True):
        scores = [value for cell in row.cells for value in (cell.mean, cell.sd, cell.n, cell.packed)[: len(told)]]
        test = str(row.selected_on_test).lower()
        writer.writerow([kind, *row.labels, row.parameters, row.size, row.size_field, test, *scores])
    return stream.getvalue()


def text_pivot(pivot: Pivot, width: int) -> tuple[str, list[str]] | None:
    """The table in plain text, a star at the best means, and its notes; None where it does not fit into `width`.

    Quotations are left out where they do not fit, then parameters and sizes.
    """
    for quoted, sizes in ((True, True), (False, True), (False, False)):
        table = _text(pivot, quoted, sizes and has_sizes(pivot))
        if max(map(len, table.splitlines())) <= width:
            absent = [*([] if quoted else [ABOUT_QUOTES]), *([] if sizes else [ABOUT_SIZES])]
            return table, [note for note in pivot.notes if note not in absent]
    return None


def _text(pivot: Pivot, quoted: bool, sizes: bool) -> str:
    shown = [i for i, column in enumerate(pivot.columns) if quoted or not column.quoted]
    # Of one metric alone the title of the table need not be in every heading.
    one_metric = len({column.metric for column in pivot.columns}) == 1 and not quoted
    headings = [", ".join(pivot.columns[i].labels) if one_metric else pivot.columns[i].heading for i in shown]
    header = [*(_SHORT.get(name, name) for name in pivot.row_headings), *(SIZE_HEADINGS if sizes else ()), *headings]
    body = [
        [
            *shown_name(row),
            *(size_cells(row) if sizes else ()),
            *(row.cells[i].text + ("*" if row.cells[i].best else " ") for i in shown),
        ]
        for row in (*pivot.baselines, *pivot.rows)
        if quoted or not row.quoted
    ]
    labels = len(pivot.row_headings)
    return text_table(header, body, [i >= labels for i in range(len(header))])
