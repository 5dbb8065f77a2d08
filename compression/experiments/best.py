"""`experiment.py best`: the best student of a task within a size, or the smallest one that reaches a score.

Students are chosen by their validation scores, never by test scores.
"""

import dataclasses
from typing import Literal, Self

import pydantic

from common.config import Bytes, flag, nearest
from common.data.tasks import load_task
from common.errors import UserError
from common.installed import typed
from common.store.settings import QuerySettings
from common.tables import human_bytes
from compression.evaluation.evaluate import saved_rows
from compression.evaluation.models import readable_models
from compression.evaluation.rows import Row
from compression.experiments.report.columns import TERMINAL_WIDTH, columns_of, metric_column
from compression.experiments.report.reference import TOLERABLE, tolerable_scores
from compression.experiments.report.results import Stat, group_rows, grouped
from compression.experiments.report.table import Entry, Head, Value, plain_table, table_of


class BestSettings(QuerySettings):
    """Choice of a model."""

    task: str
    """Task: a name in configs/tasks (sst-2, qqp, ...), or the YAML file of one of your own."""
    max_bytes: Bytes | None = None
    """Largest size, in bytes; unset means any."""
    size: Literal["bytes_packed", "bytes_gzip", "bytes_model"] = "bytes_packed"
    """Size to count: of the packed file, the gzipped weights file, or the weights file."""
    min_score: float | None = pydantic.Field(None, gt=0, le=100)
    """Show the smallest students whose validation score is at least this, in percent."""
    tolerable: bool = False
    """The same with the score of GLUE's BiLSTM baseline, which the thesis calls tolerable (sst-2, qqp, mnli)."""
    metric: str | None = None
    """Choose by this metric; unset: the task's first."""
    top: int = pydantic.Field(5, gt=0)
    """Number of families of models to show."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.tolerable and self.min_score is not None:
            raise ValueError("--min-score and --tolerable exclude each other")
        return self


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A family of models: the size of its largest member, its scores over seeds, and the member to use.

    test: test split -> score, not used to choose; measured: name -> value of other columns of results; model, folder:
    name and folder of the member that is best on validation.
    """

    family: str
    bytes: int
    validation: Stat
    test: dict[str, Stat]
    measured: dict[str, Value]
    model: str
    folder: str


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Families within the budget, the best on validation first.

    min_score: the lowest accepted validation score, from 0 to 1; if set, the smallest family comes first.
    notes: the families that are left out, and why.
    """

    task: str
    metric: str
    size: str
    max_bytes: int | None
    min_score: float | None
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]


def best(settings: BestSettings) -> Ranking:
    """Return the ranking of a task's evaluated students by mean validation score over seeds; ties: the smaller first.

    With a minimum score, the students that reach it are ranked by size. Raises UserError if there are no evaluated
    students, if they lack the metric, or if none of them meets the budget or the minimum score.
    """
    rows, notes = _students(settings)
    metrics = list(rows[0]["validation"])
    metric = settings.metric or metrics[0]
    if metric not in metrics:
        known = ", ".join(metrics)
        raise UserError(f"no validation score by metric {metric!r}{nearest(metric, metrics)} (there are: {known})")
    families = _candidates(rows, metric, settings.size)
    if not families:
        raise UserError(f"no student of {settings.task} has {settings.size}; choose another {flag('size')}")
    if unknown := len({row["model"] for row in rows if row[settings.size] is None}):
        notes.append(f"left out: {unknown} without {settings.size}, with the other seeds of their families")
    fitting = [one for one in families if settings.max_bytes is None or one.bytes <= settings.max_bytes]
    if not fitting:
        first = min(families, key=lambda one: one.bytes)
        smallest = f"the smallest is {first.family} with {first.bytes:,} ({settings.size})"
        raise UserError(f"no student of {settings.task} fits {settings.max_bytes:,} bytes: {smallest}")
    if len(fitting) < len(families):
        notes.append(f"{len(families) - len(fitting)} of {len(families)} families are larger than the budget")
    name = load_task(settings.task).name
    ranked = sorted(fitting, key=lambda one: (-one.validation.mean, one.bytes, one.family))
    least = None if settings.min_score is None else settings.min_score / 100
    if settings.tolerable:
        least = tolerable_scores(name).get(metric)
        if least is None:
            raise UserError(f"--tolerable: there is no {TOLERABLE} for {metric} on {name}; give --min-score")
    if least is not None:
        good = [one for one in ranked if one.validation.mean >= least]
        if not good:
            best_one = f"the best is {ranked[0].family} with {ranked[0].validation.text} ({metric})"
            raise UserError(f"no student of {name} has {100 * least:g} on validation: {best_one}")
        if len(good) < len(ranked):
            notes.append(f"{len(ranked) - len(good)} of {len(ranked)} families have less than {100 * least:g}")
        ranked = sorted(good, key=lambda one: (one.bytes, -one.validation.mean, one.family))
    return Ranking(name, metric, settings.size, settings.max_bytes, least, tuple(ranked[: settings.top]), tuple(notes))


def _students(settings: BestSettings) -> tuple[list[Row], list[str]]:
    """Return the rows of the task's students that were evaluated and not selected on test, and notes on the others."""
    task, paths = load_task(settings.task), settings.paths
    if "validation" not in task.splits:
        raise UserError(f"{task.name} has no validation rows to choose by; give --task {task.models_task}")
    rows: list[Row] = []
    stale = on_test = 0
    for config in readable_models(paths.root / "models" / task.models_task):
        if config.kind == "student" and config.select_on != "validation":
            on_test += 1
        elif config.kind == "student":
            folder = paths.model(task.models_task, config.name)
            scored = [row for row in saved_rows(paths, task, folder, config) if row["validation"]]
            rows += [{**row, "run": str(folder)} for row in scored]  # it may have been moved
            stale += not scored
    why_left_out = {
        f"without current scores: run {typed('evaluate')} for them": stale,
        "whose weights were not selected on validation": on_test,
    }
    notes = [f"left out: {n} student{'s' * (n > 1)} {why}" for why, n in why_left_out.items() if n]
    if not rows:
        raise UserError("; ".join([f"no student of {task.name} to choose from in {settings.workspace}", *notes]))
    return rows, notes


def _candidates(rows: list[Row], metric: str, size: str) -> list[Candidate]:
    """Return a candidate for each family whose sizes are known; all test splits of a family are in one candidate."""
    groups = [(results.split, group) for results in group_rows(rows) for group in results.groups]
    candidates = []
    for splits in grouped(groups, lambda pair: str(sorted(row["config_hash"] for row in pair[1].rows))).values():
        group = splits[0][1]
        scores, sizes = group.stat("validation", metric), [row[size] for row in group.rows]
        if scores is None or None in sizes:
            continue
        use = max(group.rows, key=lambda row: row["validation"].get(metric, float("-inf")))
        test = {split: score for split, one in splits if (score := one.metric(metric))}
        measured = {column.name: column.value(group, None) for column in columns_of("best")}
        candidates.append(Candidate(group.name, max(sizes), scores, test, measured, use["model"], use["run"]))
    return candidates


def best_text(ranking: Ranking) -> str:
    """Return the ranking and the model to use as text for a terminal, at most 110 columns wide."""
    metric = metric_column(ranking.metric)
    columns = [
        (Head((ranking.task,), numeric=False), lambda one: Entry(one.family)),
        (Head((f"{ranking.size}, largest seed",)), lambda one: Entry(human_bytes(one.bytes), one.bytes)),
        (Head((f"validation {metric.heading}",)), lambda one: metric.shown(one.validation)),
    ]
    for split in dict.fromkeys(split for one in ranking.candidates for split in one.test):
        columns.append((Head((split,)), lambda one, split=split: metric.shown(one.test.get(split))))
    for column in columns_of("best"):
        columns.append((Head((column.heading,)), lambda one, column=column: column.shown(one.measured[column.name])))
    table = plain_table(table_of(ranking.task, columns, ranking.candidates), TERMINAL_WIDTH)
    order = "Ranked by the mean validation score over seeds ± standard deviation (seeds)"
    if ranking.min_score is not None:
        order = f"The smallest first, of those with at least {100 * ranking.min_score:g} on validation"
        order += " (mean ± standard deviation over seeds)"
    notes = [f"{order}; test scores chose nothing.", *(f"Note: {note}." for note in ranking.notes)]
    first = ranking.candidates[0]
    return "\n".join([table, "", *notes, f"Use {first.model}, the best seed on validation: {first.folder}"])
