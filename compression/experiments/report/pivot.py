"""Tables of means and deviations in the layout of the thesis's table 7.1, for any axes of a sweep."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
from collections.abc import Iterable, Iterator, Sequence

from common.tables import UNITS, human_bytes
from compression.experiments.report.models_table import SELECTED_ON_TEST
from compression.experiments.report.pivot_columns import PivotColumn, averaged, columns_of
from compression.experiments.report.pivot_layout import Cell, Labels, PivotTable, Scored, pivot_tables
from compression.experiments.report.record import ExperimentRecord, TableLayout
from compression.experiments.report.reference import QuotedFigure, QuotedPoint, quoted_figures, quoted_points
from compression.experiments.report.results import Row
from compression.experiments.report.seed_groups import DASH, Stat, mean, name_without_seed, stat
from compression.experiments.report.table import Entry, Head, Line, Table, number_entry, plain_table

SEEDS = 4
"""Runs behind each of the thesis's figures (table 7.1)."""
SHORT = {"student_arch": "student", "embedding_type": "embedding", "embedding_dim": "dim", "vocab_size": "vocab"}
"""Names of axes on a terminal."""
ABOUT_SIZES = (
    "P: parameters of the whole model. S: size on disk in MB, of the weights file for what was distilled, of that file "
    f"gzipped for what was pruned or quantized. {UNITS}"
)
ABOUT_QUOTES = "Quoted figures are the thesis's, of its own protocol and hardware; they are never the best of a row."


@dataclasses.dataclass(frozen=True)
class Score(Entry):
    """A mean over n of the planned seeds, `sort`, and its sample deviation, from 0 to 1 as in results.json.

    text: '78.50 ± 1.02', with '(3/4)' where seeds are missing, a dagger where the test split chose the weights and
    the row's heading does not have one, and the size where the layout asks for it. packed: mean bytes_packed.
    """

    text: str = DASH
    sd: float | None = None
    n: int = 0
    planned: int = 0
    packed: float | None = None

    @property
    def best(self) -> bool:
        """Whether it is bold."""
        return self.kind == "best"


@dataclasses.dataclass(frozen=True)
class PivotRow:
    """Scores in the order of the columns. labels: one a row axis; a baseline has its name, then empty ones.

    parameters: of the whole model; size: bytes, in results.json's `size_field`: bytes_model of a distilled student or
    a teacher, bytes_gzip of a pruned or quantized one, as the thesis reports them. None where unknown or not the same
    in all cells.
    """

    labels: Labels
    parameters: float | None
    size: float | None
    scores: tuple[Score, ...]
    size_field: str | None = None
    selected_on_test: bool = False
    quoted: bool = False

    @property
    def headings(self) -> tuple[str, ...]:
        """The labels as shown: with a dagger when the test split chose all weights, and a mark of the thesis's."""
        last = max((i for i, label in enumerate(self.labels) if label), default=0)
        mark = " †" * self.selected_on_test + " (quoted)" * self.quoted
        return tuple(label + mark if i == last else label for i, label in enumerate(self.labels))


@dataclasses.dataclass(frozen=True)
class Pivot:
    """One table. baselines: teachers, then the thesis's (quoted), in the columns that they belong to."""

    title: str
    layout: TableLayout
    columns: tuple[PivotColumn, ...]
    rows: tuple[PivotRow, ...]
    baselines: tuple[PivotRow, ...]
    notes: tuple[str, ...]

    @property
    def has_sizes(self) -> bool:
        """Whether rows have parameters and sizes; where scores show sizes, rows do not."""
        every = (*self.baselines, *self.rows)
        return not self.layout.sizes and any(row.parameters is not None or row.size is not None for row in every)

    def table(self, quoted: bool = True, sizes: bool = True, short: bool = False) -> Table:
        """Return it as a table to show, with or without the thesis's figures, and the sizes of rows."""
        shown = [i for i, column in enumerate(self.columns) if quoted or not column.quoted]
        sizes = sizes and self.has_sizes
        one_metric = short and not quoted and len({column.metric for column in self.columns}) == 1
        axes = [SHORT.get(axis, axis) if short else axis for axis in self.layout.rows]
        heads = [Head((axis,), numeric=False) for axis in axes] + [Head((name,)) for name in ("P", "S, MB") if sizes]
        for column in (self.columns[i] for i in shown):
            heads.append(Head(column.levels[:-1] if one_metric else column.levels, quoted=column.quoted))

        def line(row: PivotRow) -> Line:
            labels = [Entry(text, label) for text, label in zip(row.headings, row.labels, strict=True)]
            megabytes = None if row.size is None else row.size / 1e6
            digits = 3 if megabytes is None or megabytes < 10 else 1 if megabytes < 1000 else 0
            numbers = [number_entry(row.parameters), Entry(number_entry(megabytes, f",.{digits}f").text, row.size)]
            scores = [row.scores[i] for i in shown]
            return Line([*labels, *(numbers if sizes else ()), *scores], "quoted" if row.quoted else "")

        baselines = [line(row) for row in self.baselines if quoted or not row.quoted]
        return Table(self.title, heads, list(map(line, self.rows)), baselines, len(self.layout.rows), self.notes)


def pivots(rows: Sequence[Row], record: ExperimentRecord) -> list[Pivot]:
    """Return a table for each task, unless `task` is laid out, and for each value of an axis that is not laid out.

    None without a layout. Raises UserError when the record quotes a table of the thesis that is not here.
    """
    if record.table is None:
        return []
    figures = quoted_figures(record.quote.table) if record.quote else []
    teachers = [row for row in rows if row.get("stage") == "teacher" and row.get("cell") is None]
    tables = []
    for table in pivot_tables(rows, record, record.table):
        columns = columns_of(table, record.table, record.quote, figures)
        tables.append(_pivot(table, record.table, columns, figures, teachers))
    return tables


def _pivot(
    table: PivotTable,
    layout: TableLayout,
    columns: list[PivotColumn],
    figures: list[QuotedFigure],
    teachers: list[Row],
) -> Pivot:
    rows = [_row(table, labels, layout, columns, figures) for labels in table.rows]
    # A column of quotations without any figure is left out.
    kept = [i for i, column in enumerate(columns) if not column.quoted or any(row.scores[i].n for row in rows)]
    columns = [columns[i] for i in kept]
    rows = [dataclasses.replace(row, scores=tuple(row.scores[i] for i in kept)) for row in rows]
    width = len(layout.rows)
    baselines = [*_teachers(table, columns, teachers, width), *_quoted_baselines(table, columns, width)]
    notes = tuple(_notes(columns, rows, baselines))
    return Pivot(table.title, layout, tuple(columns), tuple(rows), tuple(baselines), notes)


def _row(
    table: PivotTable, labels: Labels, layout: TableLayout, columns: list[PivotColumn], figures: list[QuotedFigure]
) -> PivotRow:
    cells = [table.cells.get((labels, column.labels)) for column in columns]
    found = [_stat(c.scored, column, c.task) if c else None for c, column in zip(cells, columns, strict=True)]
    on_test = [cell is not None and _on_test(cell.rows) for cell in cells]
    chosen = [test for test, score in zip(on_test, found, strict=True) if score]
    whole_row = bool(chosen) and all(chosen)
    best = _best(columns, found, on_test)
    scores = []
    for i, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        if cell is None:
            scores.append(Score())
        elif column.quoted:
            scores.append(_quoted_score(cell, column, figures))
        else:
            packed = mean(row.get("bytes_packed") for row in cell.rows) if layout.sizes else None
            scores.append(_score(found[i], len(cell.planned), i in best, on_test[i] and not whole_row, packed))
    sizes = _sizes(row for key, cell in table.cells.items() if key[0] == labels for row in cell.rows)
    return PivotRow(labels, *sizes[:2], tuple(scores), sizes[2], selected_on_test=whole_row)


def _stat(scored: Scored, column: PivotColumn, task: str) -> Stat | None:
    """A metric over the seeds; a seed counts when all the splits that its score is the mean of are there."""
    splits = column.splits.get(task, ())
    values = [
        [(by_split.get(split, {}).get("metrics") or {}).get(column.metric) for split in splits]
        for by_split in scored.values()
    ]
    return stat(statistics.fmean(of_seed) for of_seed in values if of_seed and None not in of_seed)


def _on_test(rows: Iterable[Row]) -> bool:
    return any(row.get("select_on") == "test" for row in rows)


def _best(columns: list[PivotColumn], found: list[Stat | None], on_test: list[bool]) -> set[int]:
    """Columns of the best mean of each metric: all that show the same number, and only where two or more are scored.

    A mean whose weights the test split chose counts only where it chose all.
    """
    groups: dict[tuple, dict[int, float]] = {}
    for i, (column, score) in enumerate(zip(columns, found, strict=True)):
        if score is not None:
            key = (column.task, column.metric, *column.splits.values())
            groups.setdefault(key, {})[i] = round(100 * score.mean, 2)
    best: set[int] = set()
    for shown in groups.values():
        rivals = [i for i in shown if not on_test[i]] or list(shown)
        highest = max(shown[i] for i in rivals)
        best |= {i for i in rivals if shown[i] == highest and len(shown) > 1}
    return best


def _score(
    found: Stat | None, planned: int = 0, best: bool = False, marked: bool = False, packed: float | None = None
) -> Score:
    if found is None:
        return Score(planned=planned)
    text = found.text + (f" ({found.n}/{planned})" if found.n < planned else "") + " †" * marked
    text += f" · {human_bytes(packed)}" if packed is not None else ""
    return Score(text, found.mean, "best" if best else "", found.sd, found.n, planned, packed)


def _quoted_score(cell: Cell, column: PivotColumn, figures: list[QuotedFigure]) -> Score:
    """The one figure of such a student; a table that does not tell its students apart so far is not quoted."""
    fields = cell.student_fields()
    same = [
        figure
        for figure in figures
        if (figure.task, figure.metric) == (column.of_row([cell.task]), column.metric)
        and all(fields.get(name) == value for name, value in figure.fields.items())
    ]
    return Score(same[0].text, same[0].mean, "quoted", same[0].sd, SEEDS) if len(same) == 1 else Score(kind="quoted")


def _sizes(rows: Iterable[Row]) -> tuple[float | None, float | None, str | None]:
    """Parameters, bytes and the field of these bytes; none where models of several sizes are in one row."""
    listed = list(rows)
    counts = {row.get("parameters") for row in listed}
    fields = {"bytes_gzip" if row.get("stage") in ("pruned", "quantized") else "bytes_model" for row in listed}
    if len(counts) != 1 or len(fields) != 1:
        return None, None, None
    field = fields.pop()
    size = mean(row.get(field) for row in listed)
    return counts.pop(), size, None if size is None else field


def _teachers(table: PivotTable, columns: list[PivotColumn], rows: list[Row], width: int) -> Iterator[PivotRow]:
    """A row for each teacher, its score in all columns of its task; where rows have their own task, one for each."""
    by_name: dict[str, dict[str, Scored]] = {}
    for row in rows:
        if row["task"] in table.tasks and str(row["split"]).startswith("test"):
            scored = by_name.setdefault(_baseline_name(name_without_seed(row), row["task"], columns), {})
            scored.setdefault(row["task"], {}).setdefault(row.get("seed"), {})[row["split"]] = row
    for name, by_task in by_name.items():
        shown = [(column, column.of_row(list(by_task))) for column in columns]
        scores = tuple(_score(_stat(by_task.get(task, {}), column, task)) for column, task in shown)
        own = [row for scored in by_task.values() for by_split in scored.values() for row in by_split.values()]
        parameters, size, field = _sizes(own)
        yield PivotRow((name, *[""] * (width - 1)), parameters, size, scores, field, selected_on_test=_on_test(own))


def _quoted_baselines(table: PivotTable, columns: list[PivotColumn], width: int) -> Iterator[PivotRow]:
    """The thesis's own baselines, in the columns that quote it."""
    by_name: dict[str, dict[str, QuotedPoint]] = {}
    quoted = [column for column in columns if column.quoted]
    for task in dict.fromkeys(task for column in quoted for task in ([column.task] if column.task else table.tasks)):
        for point in quoted_points(task):
            if point.baseline:
                by_name.setdefault(_baseline_name(point.name, task, columns), {})[task] = point
    for name, by_task in by_name.items():
        points = [by_task.get(c.of_row(list(by_task))) if c.quoted else None for c in columns]
        means = [p.metrics.get(column.metric) if p else None for p, column in zip(points, columns, strict=True)]
        scores = tuple(Score() if m is None else Score(f"{100 * m:.2f}", m, "quoted", n=1) for m in means)
        sizes = {point.size_bytes for point in by_task.values()}
        size = sizes.pop() if len(sizes) == 1 else None
        labels, parameters = (name, *[""] * (width - 1)), next(iter(by_task.values())).parameters
        yield PivotRow(labels, parameters, size, scores, "bytes_model" if size else None, quoted=True)


def _baseline_name(name: str, task: str, columns: list[PivotColumn]) -> str:
    """A baseline's name, with the task where the columns do not show it."""
    return name if all(column.task for column in columns) else f"{name}, {task}"


def _notes(columns: Sequence[PivotColumn], rows: Sequence[PivotRow], baselines: Sequence[PivotRow]) -> Iterator[str]:
    """What a reader has to know to read this table, one or two sentences each."""
    scores, every = [score for row in rows for score in row.scores], (*rows, *baselines)
    text = "Scores are means over seeds ± the sample standard deviation (n − 1), all times 100."
    if any(score.n < score.planned for score in scores):
        text += " (n/N): so far n of N seeds are scored; a dash: none of them."
    yield text
    if any(score.best for score in scores):
        yield "Bold: the best mean of a row, of each metric; all that show the same number."
    for splits in dict.fromkeys(names for column in columns for names in column.splits.values()):
        if len(splits) > 1:
            yield f"{averaged('accuracy', splits)}: a seed's score is the mean over {' and '.join(splits)}."
    if any(score.packed is not None for score in scores):
        yield f"Sizes are of the packed file, all in: weights, vocabulary, labels, settings. {UNITS}"
    else:
        if any(row.size is not None for row in every):
            yield ABOUT_SIZES
        if any(row.size is None for row in rows if any(score.n and score.planned for score in row.scores)):
            yield "P and S are left out where a row's models differ in them."
    if any(not row.quoted for row in baselines):
        yield "A teacher's score is in every column of its task."
    if any(column.quoted for column in columns):
        yield ABOUT_QUOTES
    if any(row.selected_on_test for row in every) or any("†" in score.text for score in scores):
        yield SELECTED_ON_TEST


def terminal_pivot(pivot: Pivot, width: int) -> tuple[str, list[str]] | None:
    """Return the table in plain text, a star at the best means, and its notes; None where it is wider than `width`.

    Quotations are left out where they do not fit, then parameters and sizes.
    """
    for quoted, sizes in ((True, True), (False, True), (False, False)):
        text = plain_table(pivot.table(quoted, sizes, short=True))
        if max(map(len, text.splitlines())) <= width:
            absent = [*([] if quoted else [ABOUT_QUOTES]), *([] if sizes else [ABOUT_SIZES])]
            return text, [note.replace("Bold:", "*:") for note in pivot.notes if note not in absent]
    return None


def csv_pivot(pivot: Pivot) -> str:
    """Return the table for programs: labels, parameters, bytes, then mean, deviation and number of seeds by column.

    Scores are as in results.json, from 0 to 1 or a correlation; unknown values are empty. kind: student, teacher, or
    quoted for the thesis's baselines.
    """
    values = ("mean", "sd", "n", *(("bytes_packed",) if pivot.layout.sizes else ()))
    header = ["kind", *pivot.layout.rows, "parameters", "bytes", "bytes_of", "selected_on_test"]
    header += [f"{' · '.join(column.levels)}, {value}" for column in pivot.columns for value in values]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in (*pivot.baselines, *pivot.rows):
        kind = "quoted" if row.quoted else "teacher" if row in pivot.baselines else "student"
        scores = [value for s in row.scores for value in (s.sort, s.sd, s.n, s.packed)[: len(values)]]
        test = str(row.selected_on_test).lower()
        writer.writerow([kind, *row.labels, row.parameters, row.size, row.size_field, test, *scores])
    return stream.getvalue()
