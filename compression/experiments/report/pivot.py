"""Tables of means and deviations, in the layout of the thesis's table 7.1, for any axes of a sweep."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence

from common.tables import UNITS, human_bytes
from compression.experiments.report.models_table import SELECTED_ON_TEST
from compression.experiments.report.pivot_layout import (
    Cell,
    Column,
    Labels,
    PivotTable,
    averaged,
    columns_of,
    pivot_tables,
)
from compression.experiments.report.pivot_sizes import (
    PAIRS,
    SINGLE,
    Size,
    Sizes,
    kinds_of,
    quoted_sizes,
    size_columns,
    sizes_of,
)
from compression.experiments.report.record import ExperimentRecord, TableLayout
from compression.experiments.report.reference import QuotedFigure, QuotedPoint, quoted_figures, quoted_points
from compression.experiments.report.results import Row, grouped
from compression.experiments.report.seed_groups import DASH, Stat, mean, mean_over_splits, name_without_seed, stat
from compression.experiments.report.speed_columns import HEADINGS, speed_notes
from compression.experiments.report.table import Entry, Head, Line, Table, plain_table

SEEDS = 4
"""Runs behind each of the thesis's figures (table 7.1)."""
SHORT = {"student_arch": "student", "embedding_type": "embedding", "embedding_dim": "dim", "vocab_size": "vocab"}
"""Names of axes on a terminal."""
ABOUT_SIZES = (
    "P: parameters of the whole model. S: size on disk in MB, of the weights file for what was distilled, of that file "
    f"gzipped for what was pruned or quantized. {UNITS}"
)
Kinds = dict[str, list[str]]
"""Kind of tasks -> tasks; see pivot_sizes."""
ABOUT_QUOTES = "Quoted figures are the thesis's, of its own protocol and hardware; they are never the best of a row."


@dataclasses.dataclass(frozen=True)
class Score(Entry):
    """A table entry: the mean (`sort`) over n of the planned seeds, and its sample deviation, as in results.json.

    text: '78.50 ± 1.02', with '(3/4)' if seeds are missing, a dagger if the weights were selected on test and the row's
    heading does not have one, and the size if the layout includes it. packed: mean bytes_packed.
    """

    text: str = DASH
    sd: float | None = None
    n: int = 0
    planned: int = 0
    packed: float | None = None


@dataclasses.dataclass(frozen=True)
class PivotRow:
    """Scores in the order of the columns. labels: one per row axis; a baseline's are its name, then empty ones.

    sizes: sizes of the row's models by kind of tasks; thesis: the same of the thesis's models.
    """

    labels: Labels
    scores: Sequence[Score]
    sizes: Sizes
    thesis: Sizes = dataclasses.field(default_factory=dict)
    selected_on_test: bool = False
    quoted: bool = False


@dataclasses.dataclass(frozen=True)
class Pivot:
    """One table. baselines: teachers, then the thesis's baselines (quoted), with scores in the columns they belong to.

    speed_notes: notes on how to read the speeds; own_notes: all other notes.
    """

    title: str
    layout: TableLayout
    columns: Sequence[Column]
    rows: Sequence[PivotRow]
    baselines: Sequence[PivotRow]
    own_notes: Sequence[str]
    speed_notes: Sequence[str]

    @property
    def notes(self) -> list[str]:
        """Notes on how to read the table."""
        return [*self.own_notes, *self.speed_notes]

    @property
    def speeds(self) -> list[str]:
        """Names of the speeds known for any row. They are shown together with the sizes."""
        sizes = [size for row in (*self.baselines, *self.rows) for size in row.sizes.values()]
        return [name for name in HEADINGS if any(name in size.speeds for size in sizes)]

    @property
    def quotes_sizes(self) -> bool:
        """Whether the thesis's sizes are known."""
        return any(size.size for row in self.rows for size in row.thesis.values())

    @property
    def has_ratios(self) -> bool:
        """Whether ratios to the teacher's size are shown: next to the thesis's, if the teacher's own size is known."""
        return self.quotes_sizes and any(size.ratio for row in self.rows for size in row.sizes.values())

    def table(self, quoted: bool = True, sizes: bool = True, short: bool = False) -> Table:
        """Return the table to show. quoted: with the thesis's figures; sizes: with sizes; short: use short headings."""
        every = (*self.baselines, *self.rows)
        sizes = sizes and not self.layout.sizes and any(size != Size() for row in every for size in row.sizes.values())
        thesis = quoted and self.quotes_sizes
        shown = [i for i, column in enumerate(self.columns) if quoted or not column.quoted]
        one_metric = short and not quoted and len({column.metric for column in self.columns}) == 1
        heads = [Head((SHORT.get(axis, axis) if short else axis,), numeric=False) for axis in self.layout.rows]
        measures = size_columns(every[0].sizes, self.has_ratios, thesis, self.speeds) if sizes else []
        heads += [head for _, head, _ in measures]
        for column in (self.columns[i] for i in shown):
            heads.append(Head(column.labels if one_metric else column.levels, quoted=column.quoted))

        def line(row: PivotRow) -> Line:
            # The last label gets a dagger if all weights were selected on test, and '(quoted)' in the thesis's rows.
            last = max((i for i, label in enumerate(row.labels) if label), default=0)
            mark = " †" * row.selected_on_test + " (quoted)" * row.quoted
            labels = [Entry(label + mark * (i == last), label) for i, label in enumerate(row.labels)]
            numbers = [entry(row.sizes[kind], row.thesis.get(kind, Size())) for kind, _, entry in measures]
            return Line([*labels, *numbers, *(row.scores[i] for i in shown)], "quoted" if row.quoted else "")

        baselines = [line(row) for row in self.baselines if quoted or not row.quoted]
        return Table(self.title, heads, list(map(line, self.rows)), baselines, len(self.layout.rows), self.notes)


def pivots(rows: Sequence[Row], record: ExperimentRecord) -> list[Pivot]:
    """Return a table for each combination of values of the axes, including `task`, that the layout leaves out.

    Empty without a layout. Raises UserError if the record quotes a table of the thesis that is not available.
    """
    if record.table is None:
        return []
    figures = quoted_figures(record.quote.table) if record.quote else []
    teachers = [row for row in rows if row.get("stage") == "teacher" and row.get("cell") is None]
    return [_pivot(table, record, figures, teachers) for table in pivot_tables(rows, record, record.table)]


def _pivot(
    table: PivotTable, record: ExperimentRecord, figures: Sequence[QuotedFigure], teachers: Sequence[Row]
) -> Pivot:
    columns = [
        column
        for column in columns_of(table, record, figures)
        # A quoted column without any figure is left out.
        if not column.quoted
        or any(_figure(cell, column, figures) for (_, label), cell in table.cells.items() if label == column.labels)
    ]
    kinds = kinds_of(table.tasks, "task" in record.table.columns)
    rows = [_row(table, labels, columns, figures, record.table.sizes, kinds, teachers) for labels in table.rows]
    blank = ("",) * (len(record.table.rows) - 1)
    baselines = [*_teachers(table, columns, teachers, blank, kinds), *_quoted_baselines(table, columns, blank, kinds)]
    notes = list(_notes(columns, rows, baselines))
    scored = [row for cell in table.cells.values() for row in cell.rows]
    timed = [*scored, *(row for row in teachers if row["task"] in table.tasks)]
    about_speeds = [] if record.table.sizes else speed_notes(timed)
    return Pivot(table.title, record.table, columns, rows, baselines, notes, about_speeds)


def _row(
    table: PivotTable,
    labels: Labels,
    columns: list[Column],
    figures: Sequence[QuotedFigure],
    with_size: bool,
    kinds: Kinds,
    teachers: Sequence[Row],
) -> PivotRow:
    cells = [table.cells.get((labels, column.labels), Cell("", "")) for column in columns]
    stats = [_stat(cell, column) for cell, column in zip(cells, columns, strict=True)]
    on_test = [_on_test(cell.rows) for cell in cells]
    scored_on_test = {test for test, score in zip(on_test, stats, strict=True) if score}
    best = _best(columns, stats, on_test)
    scores, quoted = [], []
    for i, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        if column.quoted and cell.task:
            figure = _figure(cell, column, figures)
            quoted += [figure] if figure else []
            shown = (figure.text, figure.mean, "quoted", figure.sd, SEEDS) if figure else (DASH, None, "quoted")
            scores.append(Score(*shown))
        else:
            packed = mean(row.get("bytes_packed") for row in cell.rows) if with_size else None
            marked = on_test[i] and scored_on_test != {True}
            scores.append(_score(stats[i], len(cell.planned), i in best, marked, packed))
    in_row = [row for (row_labels, _), cell in table.cells.items() if row_labels == labels for row in cell.rows]
    return PivotRow(
        labels=labels,
        scores=scores,
        sizes=sizes_of(in_row, kinds, teachers),
        thesis=quoted_sizes(quoted, kinds),
        selected_on_test=scored_on_test == {True},
    )


def _stat(cell: Cell, column: Column) -> Stat | None:
    """Return a metric over the seeds; a seed counts only if it has scores on all splits that are averaged."""
    splits = column.splits.get(cell.task, ())
    means = [mean_over_splits(by_split.values(), splits) for by_split in cell.scored.values()]
    return stat(row["metrics"].get(column.metric) for row in means if row)


def _on_test(rows: Iterable[Row]) -> bool:
    return any(row.get("select_on") == "test" for row in rows)


def _best(columns: list[Column], stats: list[Stat | None], on_test: list[bool]) -> set[int]:
    """Return the columns with the best mean of each metric, including ties of the shown number.

    A metric with a single scored column has none. Means of models selected on test count only if all of them are.
    """
    shown = {i: round(100 * score.mean, 2) for i, score in enumerate(stats) if score is not None}
    best: set[int] = set()
    for group in grouped(shown, lambda i: (columns[i].task, columns[i].metric, *columns[i].splits.values())).values():
        rivals = [i for i in group if not on_test[i]] or group
        highest = max(shown[i] for i in rivals)
        best |= {i for i in rivals if shown[i] == highest and len(group) > 1}
    return best


def _score(
    score: Stat | None, planned: int = 0, best: bool = False, marked: bool = False, packed: float | None = None
) -> Score:
    if score is None:
        return Score(planned=planned)
    text = score.text + (f" ({score.n}/{planned})" if score.n < planned else "") + " †" * marked
    text += f" · {human_bytes(packed)}" if packed is not None else ""
    return Score(text, score.mean, "best" if best else "", score.sd, score.n, planned, packed)


def _figure(cell: Cell, column: Column, figures: Sequence[QuotedFigure]) -> QuotedFigure | None:
    """Return the figure of a cell's students; None if the table has no figure or several for their fields."""
    fields = cell.student_fields()
    same = [
        figure
        for figure in figures
        if (figure.task, figure.metric) == (column.task or cell.task, column.metric)
        and all(fields.get(name) == value for name, value in figure.fields.items())
    ]
    return same[0] if len(same) == 1 else None


def _teachers(
    table: PivotTable, columns: list[Column], rows: Sequence[Row], blank: Labels, kinds: Kinds
) -> Iterator[PivotRow]:
    """Yield a row per teacher, with its score in all columns of its task; one per task if the rows have tasks."""
    by_name: dict[str, dict[str, Cell]] = {}
    for row in rows:
        if row["task"] in table.tasks and str(row["split"]).startswith("test"):
            by_task = by_name.setdefault(_baseline_name(name_without_seed(row), row["task"], columns), {})
            cell = by_task.setdefault(row["task"], Cell(row["task"], "teacher"))
            cell.scored.setdefault(row.get("seed"), {})[row["split"]] = row
    for name, by_task in by_name.items():
        cells = [by_task.get(column.task or next(iter(by_task)), Cell("", "")) for column in columns]
        scores = [_score(_stat(cell, column)) for cell, column in zip(cells, columns, strict=True)]
        scored = [row for cell in by_task.values() for row in cell.rows]
        yield PivotRow((name, *blank), scores, sizes_of(scored, kinds), selected_on_test=_on_test(scored))


def _quoted_baselines(table: PivotTable, columns: list[Column], blank: Labels, kinds: Kinds) -> Iterator[PivotRow]:
    """Yield the thesis's baselines, with scores in the quoted columns."""
    by_name: dict[str, dict[str, QuotedPoint]] = {}
    tasks = [task for column in columns if column.quoted for task in ([column.task] if column.task else table.tasks)]
    for task in dict.fromkeys(tasks):
        for point in quoted_points(task):
            if point.baseline:
                by_name.setdefault(_baseline_name(point.name, task, columns), {})[task] = point
    for name, by_task in by_name.items():
        first = next(iter(by_task))
        scores = []
        for column in columns:
            point = by_task.get(column.task or first) if column.quoted else None
            score = point.metrics.get(column.metric) if point else None
            scores.append(Score() if score is None else Score(f"{100 * score:.2f}", score, "quoted", n=1))
        known_sizes = {
            kind: [by_task[task].size_bytes for task in tasks if task in by_task] for kind, tasks in kinds.items()
        }
        sizes = {
            kind: Size(by_task[first].parameters, mean(of_kind), "bytes_model") for kind, of_kind in known_sizes.items()
        }
        yield PivotRow((name, *blank), scores, sizes, quoted=True)


def _baseline_name(name: str, task: str, columns: list[Column]) -> str:
    return name if all(column.task for column in columns) else f"{name}, {task}"


def _notes(columns: Sequence[Column], rows: Sequence[PivotRow], baselines: Sequence[PivotRow]) -> Iterator[str]:
    """Yield notes on how to read the table, one or two sentences each."""
    scores, every = [score for row in rows for score in row.scores], (*rows, *baselines)
    text = "Scores are means over seeds ± the sample standard deviation (n − 1), all times 100."
    if any(score.n < score.planned for score in scores):
        text += " (n/N): so far n of N seeds are scored; a dash: none of them."
    yield text
    if any(score.kind == "best" for score in scores):
        yield "Bold: the best mean of a row, of each metric; all that show the same number."
    for splits in dict.fromkeys(names for column in columns for names in column.splits.values()):
        if len(splits) > 1:
            yield f"{averaged('accuracy', splits)}: a seed's score is the mean over {' and '.join(splits)}."
    if any(score.packed is not None for score in scores):
        yield f"Sizes are of the packed file, all in: weights, vocabulary, labels, settings. {UNITS}"
    else:
        yield from _size_notes(rows, baselines)
    if any(not row.quoted for row in baselines):
        yield "A teacher's score is in every column of its task."
    if any(column.quoted for column in columns):
        yield ABOUT_QUOTES
    if any(row.selected_on_test for row in every) or any("†" in score.text for score in scores):
        yield SELECTED_ON_TEST


def _size_notes(rows: Sequence[PivotRow], baselines: Sequence[PivotRow]) -> Iterator[str]:
    """Yield notes on how to read the columns of sizes."""
    every = (*rows, *baselines)
    if any(size.size is not None for row in every for size in row.sizes.values()):
        yield ABOUT_SIZES
    if any(set(row.sizes) == {SINGLE, PAIRS} for row in every):
        yield "SS: S of single sentences. SP: S of pairs, the mean over tasks."
    if any(size.size is not None for row in rows for size in row.thesis.values()):
        yield "× smaller: than the teacher's weights. The thesis's ratios are computed from its printed sizes."
    scored = [row for row in rows if any(score.n and score.planned for score in row.scores)]
    if any(size.size is None for row in scored for size in row.sizes.values()):
        yield "P and S are left out where a row's models differ in them."


def terminal_pivot(pivot: Pivot, width: int) -> tuple[str, list[str]] | None:
    """Return the table in plain text, with stars at the best means, and its notes; None if it is wider than `width`.

    If the table does not fit, quoted figures are left out, then parameters and sizes.
    """
    for quoted, sizes in ((True, True), (False, True), (False, False)):
        text = plain_table(pivot.table(quoted, sizes, short=True))
        if max(map(len, text.splitlines())) <= width:
            absent = [] if quoted else [ABOUT_QUOTES]
            absent += [] if sizes else [*_size_notes(pivot.rows, pivot.baselines), *pivot.speed_notes]
            return text, [note.replace("Bold:", "*:") for note in pivot.notes if note not in absent]
    return None


def csv_pivot(pivot: Pivot) -> str:
    """Return the table as CSV: labels, parameters, bytes, then mean, deviation and number of seeds of each column.

    Scores are as in results.json, from 0 to 1 or a correlation; unknown values are empty. kind: student, teacher, or
    quoted for the thesis's baselines. Speeds are included, by their names in results.json, if models were timed.
    """
    values = ("mean", "sd", "n", *(("bytes_packed",) if pivot.layout.sizes else ()))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    heads = [f"{' · '.join(column.levels)}, {value}" for column in pivot.columns for value in values]
    kinds = (*pivot.baselines, *pivot.rows)[0].sizes
    fields = ("parameters", "bytes", "bytes_of", "times_smaller", "thesis_bytes", "thesis_times_smaller")
    names = [f"{kind}_{name}".lstrip("_") for kind in kinds for name in (*fields, *pivot.speeds)]
    writer.writerow(["kind", *pivot.layout.rows, *names, "selected_on_test", *heads])
    for row in (*pivot.baselines, *pivot.rows):
        kind = "quoted" if row.quoted else "teacher" if row in pivot.baselines else "student"
        scores = [value for s in row.scores for value in (s.sort, s.sd, s.n, s.packed)[: len(values)]]
        test = str(row.selected_on_test).lower()
        sizes = [(ours, row.thesis.get(kind, Size())) for kind, ours in row.sizes.items()]
        numbers = [
            (ours.parameters, ours.size, ours.field, ours.ratio, their.size, their.ratio) for ours, their in sizes
        ]
        speeds = [tuple(map(ours.speeds.get, pivot.speeds)) for ours, _ in sizes]
        numbers = [value for of_kind in zip(numbers, speeds, strict=True) for value in of_kind]
        writer.writerow([kind, *row.labels, *itertools.chain(*numbers), test, *scores])
    return stream.getvalue()
