"""Two models, families of models or experiments side by side, seed by seed: is one better by more than chance?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic

from common.config import nearest
from common.data.tasks import ENTITY_METRICS
from common.errors import UserError
from common.store.settings import QuerySettings
from compression.experiments.compare.comparison import Comparison, Effect, Line, PairTest

if TYPE_CHECKING:
    from compression.evaluation.predictions import Predictions
    from compression.experiments.compare.sides import BySeed, Key

Row = dict[str, Any]


class CompareSettings(QuerySettings):
    """Comparison."""

    task: str | None = None
    """Task of the models, needed when several tasks have models of these names."""
    split: str | None = None
    """Compare on this test split alone; unset: all of them."""
    metric: str | None = None
    """Compare by this metric; unset: the task's first."""
    confidence: float = pydantic.Field(0.95, gt=0, lt=1)
    """Confidence of intervals."""


def compare(settings: CompareSettings, a: str, b: str) -> Comparison:
    """Compare two models, two families (a model's name without its seed) or two experiments.

    Differences are paired by seed: with two seeds or more a t interval of their mean, with one a bootstrap over the
    test rows; of classes also McNemar's exact test for each pair. With several lines p-values are adjusted too (Holm).
    Raises UserError for unknown names, a common seed that is missing, or scores of different data.
    """
    from compression.experiments.compare.sides import paired_rows

    pairs, notes = paired_rows(settings, a, b)
    lines = _adjusted([_line(settings, key, by_seed, notes) for key, by_seed in pairs.items()])
    return Comparison(a, b, settings.confidence, tuple(lines), _overall(settings, lines), tuple(dict.fromkeys(notes)))


def _line(settings: CompareSettings, key: Key, by_seed: BySeed, notes: list[str]) -> Line:
    pairs = list(by_seed.values())
    common = [name for name in pairs[0][0]["metrics"] if all(name in row["metrics"] for pair in pairs for row in pair)]
    if not common or (settings.metric and settings.metric not in common):
        asked = f"{settings.metric!r}{nearest(settings.metric, common)}" if settings.metric else "to compare by"
        raise UserError(f"{key.task}, {key.split}: no metric {asked} (both have: {', '.join(common) or 'none'})")
    names = sorted(common, key=lambda name: name != settings.metric)
    if of_words := any(name in ENTITY_METRICS[:3] for name in common):
        notes.append(f"no McNemar test or bootstrap for {key.task}: they are of rows, and its answers of words")
    said = [None if of_words else _predictions(settings, pair, notes) for pair in pairs]
    effects = tuple(_effect(settings, name, pairs, said[0]) for name in names)
    tests = tuple(_test(seed, *both) for seed, both in zip(by_seed, said, strict=True) if both and _classes(*both))
    if not tests and said[0] is not None:
        why = "a regression" if said[0][0].regression else "without labels"
        notes.append(f"no McNemar test for {key.task}: it is of right and wrong classes, and {key.task} is {why}")
    return Line(key.task, key.split, key.stage, dict(key.cell), tuple(by_seed), effects, tests)


def _classes(a: Predictions, b: Predictions) -> bool:
    return not a.regression and bool(a.labelled.any())


def _test(seed: Any, a: Predictions, b: Predictions) -> PairTest:
    from compression.experiments.compare.significance import mcnemar

    return PairTest(seed, **dataclasses.asdict(mcnemar(a, b)))


def _effect(
    settings: CompareSettings, name: str, pairs: Sequence[tuple[Row, Row]], said: tuple[Predictions, Predictions] | None
) -> Effect:
    from compression.experiments.compare.significance import bootstrap, paired_t

    scores = [(a["metrics"][name], b["metrics"][name]) for a, b in pairs]
    differences = [a - b for a, b in scores]
    interval = None
    if len(differences) > 1:
        interval = paired_t(differences, settings.confidence)
    elif said is not None:
        interval = bootstrap(name, *said, settings.confidence, differences[0])
    return Effect(name, _mean([a for a, _ in scores]), _mean([b for _, b in scores]), tuple(scores), interval)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _predictions(
    settings: CompareSettings, pair: tuple[Row, Row], notes: list[str]
) -> tuple[Predictions, Predictions] | None:
    """What both models said, or None where one of them is gone: its scores can still be compared."""
    from compression.evaluation.predictions import read_predictions

    found = []
    for row in pair:
        folder = next((path for path in (Path(row["run"]), *_elsewhere(settings, row)) if path.is_dir()), None)
        if folder is None:
            notes.append(f"{row['model']} is gone, and with it what it said of every row: its pair has scores alone")
            return None
        found.append(read_predictions(folder, row))
    return found[0], found[1]


def _elsewhere(settings: CompareSettings, row: Row) -> list[Path]:
    """Where the model is if the workspace was moved."""
    return sorted((settings.workspace / "models").glob(f"*/{row['model']}"))


def _adjusted(lines: list[Line]) -> list[Line]:
    """With several lines, p-values adjusted for their number."""
    from compression.experiments.compare.significance import holm

    if len(lines) == 1:
        return lines
    known = [line.effects[0].interval for line in lines]
    seeds = iter(holm([one.p_value for one in known if one and one.p_value is not None]))
    tests = iter(holm([test.p_value for line in lines for test in line.tests]))
    result = []
    for line in lines:
        main, *others = line.effects
        if main.interval and main.interval.p_value is not None:
            main = dataclasses.replace(main, p_holm=next(seeds))
        adjusted = tuple(dataclasses.replace(test, p_holm=next(tests)) for test in line.tests)
        result.append(dataclasses.replace(line, effects=(main, *others), tests=adjusted))
    return result


def _overall(settings: CompareSettings, lines: list[Line]) -> Effect | None:
    """Means over all lines of their main metric, for each seed that all lines have; an interval where there are two."""
    from compression.experiments.compare.significance import paired_t

    if len(lines) == 1:
        return None
    mains = [line.effects[0] for line in lines]
    name = mains[0].metric if len({effect.metric for effect in mains}) == 1 else "mean of metrics"
    by_seed = [dict(zip(line.seeds, line.effects[0].scores, strict=True)) for line in lines]
    common = [[found[seed] for found in by_seed] for seed in by_seed[0] if all(seed in found for found in by_seed)]
    if not common:
        return Effect(name, _mean([effect.a for effect in mains]), _mean([effect.b for effect in mains]), (), None)
    scores = tuple((_mean([a for a, _ in of_seed]), _mean([b for _, b in of_seed])) for of_seed in common)
    interval = paired_t([a - b for a, b in scores], settings.confidence) if len(scores) > 1 else None
    return Effect(name, _mean([a for a, _ in scores]), _mean([b for _, b in scores]), scores, interval)
