"""Compare two models, families of models or experiments, seed by seed: is one better by more than chance?"""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import pydantic

from common.config import nearest
from common.data.split import task_file_of_data
from common.data.tasks import Task, load_task
from common.errors import UserError
from common.installed import typed
from common.kinds.registry import KINDS
from common.store.settings import QuerySettings
from common.training.models import ModelConfig
from compression.evaluation.evaluate import saved_rows
from compression.evaluation.models import readable_models
from compression.evaluation.predictions import Predictions, find_scores, read_predictions
from compression.evaluation.rows import Row
from compression.experiments.report.record import RECORD_FILE, RESULTS_FILE
from compression.experiments.report.results import grouped, name_without_seed, read_results, stage_label
from compression.experiments.significance import Interval, bootstrap, holm, mcnemar, paired_t

_Seed = int | str
_Pair = tuple[Predictions, Predictions]


class CompareSettings(QuerySettings):
    """Comparison."""

    task: str | None = None
    """Task, needed if several tasks have models of these names."""
    split: str | None = None
    """Compare on this test split only; unset means all test splits."""
    metric: str | None = None
    """Compare by this metric; unset means the task's first."""
    confidence: float = pydantic.Field(0.95, gt=0, lt=1)
    """Confidence of intervals."""


class Key(NamedTuple):
    """Fields that must be equal in two compared rows, like the seed. cell: (axis, label); stage: '' for families."""

    task: str
    split: str
    stage: str = ""
    cell: tuple[tuple[str, str], ...] = ()


_Rows = dict[Key, dict[_Seed, Row]]
"""Rows of one side of the comparison, by key and seed."""


@dataclasses.dataclass
class Effect:
    """One metric of A and B: means over seeds, the scores for each seed, and the interval of A - B or None.

    An overall effect whose lines have no common seed has only the means. p_holm: the interval's p-value, adjusted for
    the number of lines if there are several.
    """

    metric: str
    a: float
    b: float
    scores: tuple[tuple[float, float], ...]
    interval: Interval | None
    p_holm: float | None = None

    @property
    def mean(self) -> float:
        """Mean of A - B."""
        return self.a - self.b

    @property
    def p_value(self) -> float | None:
        """The interval's p-value."""
        return self.interval.p_value if self.interval else None


@dataclasses.dataclass
class PairTest:
    """McNemar's exact test of one pair of models. b: rows that only A gets right; c: rows that only B gets right.

    p_holm: the p-value, adjusted for the number of tests in all lines if there are several lines.
    """

    seed: _Seed
    b: int
    c: int
    p_value: float
    p_holm: float | None = None


@dataclasses.dataclass(frozen=True)
class Line:
    """A and B on one task and split; for experiments, also one stage and cell. effects: the main metric comes first."""

    task: str
    split: str
    stage: str
    cell: dict[str, str]
    seeds: tuple[_Seed, ...]
    effects: tuple[Effect, ...]
    tests: tuple[PairTest, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Comparison of A and B. overall: mean over all lines by seed; None for a single line. notes: omitted rows."""

    a: str
    b: str
    confidence: float
    lines: tuple[Line, ...]
    overall: Effect | None
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Effect:
        """Effect that the verdict is based on: the overall one, or that of the only line."""
        return self.overall or self.lines[0].effects[0]


def compare(settings: CompareSettings, a: str, b: str) -> Comparison:
    """Compare two models, two families (a model's name without its seed) or two experiments.

    Differences are paired by seed. Two or more seeds give a t interval of the mean difference, a single seed a
    bootstrap interval over the test rows. Classification also has McNemar's exact test for each pair of models. With
    several lines, p-values are also adjusted by Holm's method. If both names are experiments, these are compared; other
    names are models or families of models.
    Raises UserError for unknown names, if there is no common seed, or if the scores are on different data.
    """
    experiments = [name for name in (a, b) if (settings.paths.experiment(name) / RECORD_FILE).exists()]
    if len(experiments) == 2:
        sides = [_experiment(settings, name) for name in experiments]
        # Rows without a cell are keyed by family if there are several families.
        by_name = any(len({_key(row, True) for row in rows}) > len({_key(row) for row in rows}) for rows in sides)
        keyed = [grouped(rows, lambda row: _key(row, by_name)) for rows in sides]
    else:
        hint = f"; {experiments[0]} is an experiment: compare it with another one" if experiments else ""
        sides = _models(settings, a, b, hint)
        keyed = [grouped(rows, lambda row: Key(row["task"], row["split"])) for rows in sides]
    by_seed = [{key: {row["seed"]: row for row in rows} for key, rows in side.items()} for side in keyed]
    pairs, notes = _paired(a, b, *by_seed)
    lines = [_line(settings, key, of_key, notes) for key, of_key in pairs.items()]
    overall = None
    if len(lines) > 1:
        _adjust(lines)
        overall = _overall(settings, lines)
    return Comparison(a, b, settings.confidence, tuple(lines), overall, tuple(dict.fromkeys(notes)))


def _experiment(settings: CompareSettings, name: str) -> list[Row]:
    """Return the rows of an experiment's students."""
    task = load_task(settings.task).name if settings.task else None
    rows = read_results(settings.paths.experiment(name) / RESULTS_FILE)
    rows = [row for row in rows if row["stage"] != "teacher" and task in (None, row["task"])]
    rows = [row for row in rows if settings.split in (None, row["split"])]
    if not rows:
        asked = " ".join(filter(None, [settings.task, settings.split]))
        raise UserError(f"experiment {name} has no scores of students{f' on {asked}' if asked else ''}")
    return rows


def _key(row: Row, by_name: bool = False) -> Key:
    """Return a row's key. by_name: a row without a cell is of its family."""
    cell = row.get("cell") or ({"model": name_without_seed(row["model"], row["seed"])} if by_name else {})
    stage = "packed" if row["stage"] == "packed" else stage_label(row)
    return Key(row["task"], row["split"], stage, tuple(sorted(cell.items())))


def _models(settings: CompareSettings, a: str, b: str, hint: str) -> list[list[Row]]:
    """Return the rows of models and families. Two single models are compared even if their seeds differ."""
    task, members = _members(settings, a, b, hint)
    if settings.split not in (None, *task.test_splits):
        raise UserError(f"{task.name} has no test split {settings.split!r} (it has: {', '.join(task.test_splits)})")
    sides: list[list[Row]] = [[], []]
    for side, configs in zip(sides, members, strict=True):
        for config in configs:
            rows = saved_rows(settings.paths, task, settings.paths.model(task.models_task, config.name), config)
            if not rows:
                command = f"{typed('evaluate')} --task {task.argument} --model-name {config.name}"
                raise UserError(f"{config.name} has no scores of the current model on the current data; run: {command}")
            side += [row for row in rows if settings.split in (None, row["split"])]
    named = [config for configs in members for config in configs]
    if [config.name for config in named] == [a, b] and named[0].seed != named[1].seed:
        sides = [[{**row, "seed": f"{named[0].seed} / {named[1].seed}"} for row in side] for side in sides]
    return sides


def _members(settings: CompareSettings, a: str, b: str, hint: str) -> tuple[Task, list[list[ModelConfig]]]:
    """Return the task that has both names, and the models of each: the model of that name, or the family's members."""
    asked = load_task(settings.task) if settings.task else None
    models = settings.paths.root / "models"
    known: dict[str, dict[str, list[ModelConfig]]] = {}
    for folder in [models / asked.models_task] if asked else sorted(models.glob("[!.]*")):
        configs = readable_models(folder)
        families = grouped(configs, lambda one: name_without_seed(one.name, one.seed))
        known[folder.name] = families | {one.name: [one] for one in configs}
    tasks = {name: [task for task, named in known.items() if name in named] for name in (a, b)}
    for name in (a, b):
        if not tasks[name]:
            names, where = {one for named in known.values() for one in named}, settings.task or "any task"
            raise UserError(f"no model and no family of models {name!r} in {where}{nearest(name, names)}{hint}")
    both = [task for task in tasks[a] if task in tasks[b]]
    if not both:
        where = "; ".join(f"{name} is of {', '.join(of_name)}" for name, of_name in tasks.items())
        raise UserError(f"models of different tasks cannot be compared: {where}")
    if len(both) > 1:
        raise UserError(f"{a} and {b} are in several tasks: give --task ({', '.join(both)})")
    # A user's own task is identified by the file that its data were prepared from.
    task = asked or load_task(task_file_of_data(settings.paths, both[0]) or both[0])
    return task, [known[both[0]][name] for name in (a, b)]


def _paired(a: str, b: str, first: _Rows, second: _Rows) -> tuple[dict[Key, dict[_Seed, tuple[Row, Row]]], list[str]]:
    """Return key -> seed -> rows of A and B, and notes on rows that are left out."""
    pairs, notes = {}, []
    for key, rows_of_a in first.items():
        rows_of_b = second.get(key, {})
        common = {seed: (row, rows_of_b[seed]) for seed, row in rows_of_a.items() if seed in rows_of_b}
        if not common:
            continue
        pairs[key] = common
        for name, rows in ((a, rows_of_a), (b, rows_of_b)):
            if alone := [str(seed) for seed in rows if seed not in common]:
                notes.append(f"only {name} has seed {', '.join(alone)}: left out")
    if not pairs:
        seeds = [sorted({str(seed) for rows in side.values() for seed in rows}) for side in (first, second)]
        known, others = (", ".join(numbers) or "none" for numbers in seeds)
        seen = f"(seeds: {a} has {known} and {b} has {others})"
        raise UserError(f"{a} and {b} have no row of the same task, split and seed to compare {seen}")
    for name, keys in ((a, first), (b, second)):
        if others := [" ".join([*dict(k.cell).values(), k.stage, k.task, k.split]) for k in keys if k not in pairs]:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            notes.append(f"only {name} has {', '.join(others[:3])}{more} with a common seed: left out")
    for left, right in (pair for by_seed in pairs.values() for pair in by_seed.values()):
        if left["data"] != right["data"]:
            models = f"{left['model']} and {right['model']}"
            raise UserError(
                f"{models} were scored on other data of {left['task']}, {left['split']}: evaluate both again"
            )
    return pairs, notes


def _line(settings: CompareSettings, key: Key, by_seed: dict[_Seed, tuple[Row, Row]], notes: list[str]) -> Line:
    pairs = list(by_seed.values())
    common = [name for name in pairs[0][0]["metrics"] if all(name in row["metrics"] for pair in pairs for row in pair)]
    if not common or (settings.metric and settings.metric not in common):
        asked = f"{settings.metric!r}{nearest(settings.metric, common)}" if settings.metric else "to compare by"
        raise UserError(f"{key.task}, {key.split}: no metric {asked} (both have: {', '.join(common) or 'none'})")
    of_words = any(kind.by_word and {*kind.default_metrics} & {*common} for kind in KINDS.values())
    if of_words:
        notes.append(f"no McNemar test or bootstrap for {key.task}: its rows do not have one label each")
    predictions = [None if of_words else _predictions(settings, pair, notes) for pair in pairs]
    first = predictions[0]
    effects = [
        _effect(name, [(a["metrics"][name], b["metrics"][name]) for a, b in pairs], settings.confidence, first)
        for name in sorted(common, key=lambda name: name != settings.metric)
    ]
    tests = tuple(
        PairTest(seed, *mcnemar(*both))
        for seed, both in zip(by_seed, predictions, strict=True)
        if both and both[0].kind.has_classes and both[0].labelled.any()
    )
    if tests and first is not None and first[0].kind.independent:
        notes.append(f"a row of {key.task} is right if it has exactly the right labels")
    if not tests and first is not None:
        why = "without labels" if first[0].kind.has_classes else "a regression"
        notes.append(f"no McNemar test for {key.task}: it compares right and wrong classes, but {key.task} is {why}")
    return Line(key.task, key.split, key.stage, dict(key.cell), tuple(by_seed), tuple(effects), tests)


def _predictions(settings: CompareSettings, pair: tuple[Row, Row], notes: list[str]) -> _Pair | None:
    """Return both models' predictions, or None if one model no longer exists; its scores can still be compared."""
    scores = [find_scores(settings.workspace, row) for row in pair]
    if None in scores:
        gone = pair[scores.index(None)]["model"]
        notes.append(f"the predictions of {gone} no longer exist: only scores of its pair are compared")
        return None
    return read_predictions(scores[0], pair[0]), read_predictions(scores[1], pair[1])


def _effect(name: str, scores: Sequence[tuple[float, float]], confidence: float, pair: _Pair | None) -> Effect:
    """Return the effect of the scores by seed; for a single seed, of the pair's predictions if they are available."""
    differences = [a - b for a, b in scores]
    if len(differences) > 1:
        interval = paired_t(differences, confidence)
    else:
        interval = bootstrap(name, *pair, confidence, differences[0]) if pair else None
    return Effect(name, *_means(scores), tuple(scores), interval)


def _adjust(lines: list[Line]) -> None:
    """Set the adjusted p-values of the main metrics, and separately those of McNemar's tests."""
    mains = [line.effects[0] for line in lines if line.effects[0].p_value is not None]
    for tests in (mains, [test for line in lines for test in line.tests]):
        for test, adjusted in zip(tests, holm([test.p_value for test in tests]), strict=True):
            test.p_holm = adjusted


def _overall(settings: CompareSettings, lines: list[Line]) -> Effect:
    """Return the effect of the mean main metric over all lines, for the seeds that all lines have.

    With a single common seed it has no interval, and without one only the means.
    """
    mains = [line.effects[0] for line in lines]
    name = mains[0].metric if len({effect.metric for effect in mains}) == 1 else "mean of metrics"
    by_seed = [dict(zip(line.seeds, line.effects[0].scores, strict=True)) for line in lines]
    in_all = [seed for seed in by_seed[0] if all(seed in of_line for of_line in by_seed)]
    if not in_all:
        return Effect(name, *_means([(effect.a, effect.b) for effect in mains]), (), None)
    return _effect(name, [_means([of_line[seed] for of_line in by_seed]) for seed in in_all], settings.confidence, None)


def _means(scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.fmean(a for a, _ in scores), statistics.fmean(b for _, b in scores)
