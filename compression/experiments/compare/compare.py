"""Compare two models, families of models or experiments, seed by seed: is one better by more than chance?"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from common.config import nearest
from common.data.tasks import ENTITY_METRICS
from common.errors import UserError
from compression.evaluation.predictions import Predictions, find_scores, read_predictions
from compression.experiments.compare.comparison import CompareSettings, Comparison, Effect, Interval, Line, PairTest
from compression.experiments.compare.pairing import BySeed, Key, paired_rows
from compression.experiments.compare.significance import bootstrap, holm, mcnemar, paired_t

Row = dict[str, Any]
_Pair = tuple[Predictions, Predictions]


def compare(settings: CompareSettings, a: str, b: str) -> Comparison:
    """Compare two models, two families (a model's name without its seed) or two experiments.

    Differences are paired by seed: with two seeds or more a t interval of their mean, with one a bootstrap over the
    test rows; of classes also McNemar's exact test for each pair. With several lines p-values are adjusted too (Holm).
    Raises UserError for unknown names, a common seed that is missing, or scores of different data.
    """
    pairs, notes = paired_rows(settings, a, b)
    lines = [_line(settings, key, by_seed, notes) for key, by_seed in pairs.items()]
    overall = None
    if len(lines) > 1:
        lines, overall = _adjusted(lines), _overall(settings, lines)
    return Comparison(a, b, settings.confidence, tuple(lines), overall, tuple(dict.fromkeys(notes)))


def _line(settings: CompareSettings, key: Key, by_seed: BySeed, notes: list[str]) -> Line:
    pairs = list(by_seed.values())
    common = [name for name in pairs[0][0]["metrics"] if all(name in row["metrics"] for pair in pairs for row in pair)]
    if not common or (settings.metric and settings.metric not in common):
        asked = f"{settings.metric!r}{nearest(settings.metric, common)}" if settings.metric else "to compare by"
        raise UserError(f"{key.task}, {key.split}: no metric {asked} (both have: {', '.join(common) or 'none'})")
    of_words = any(name in ENTITY_METRICS[:3] for name in common)
    if of_words:
        notes.append(f"no McNemar test or bootstrap for {key.task}: they are of rows, and its answers of words")
    predictions = [None if of_words else _predictions(settings, pair, notes) for pair in pairs]
    effects = []
    for name in sorted(common, key=lambda name: name != settings.metric):
        scores = [(a["metrics"][name], b["metrics"][name]) for a, b in pairs]
        effects.append(_effect(name, scores, settings.confidence, predictions[0]))
    tests = tuple(
        PairTest(seed, *mcnemar(*both))
        for seed, both in zip(by_seed, predictions, strict=True)
        if both and not both[0].regression and both[0].labelled.any()
    )
    first = predictions[0]
    if not tests and first is not None:
        why = "a regression" if first[0].regression else "without labels"
        notes.append(f"no McNemar test for {key.task}: it is of right and wrong classes, and {key.task} is {why}")
    return Line(key.task, key.split, key.stage, dict(key.cell), tuple(by_seed), tuple(effects), tests)


def _effect(name: str, scores: Sequence[tuple[float, float]], confidence: float, pair: _Pair | None) -> Effect:
    """The effect of scores by seed; of a single seed from the predictions of its pair, where they are there."""
    differences = [a - b for a, b in scores]
    interval: Interval | None = None
    if len(differences) > 1:
        interval = paired_t(differences, confidence)
    elif pair is not None:
        interval = bootstrap(name, *pair, confidence, differences[0])
    a, b = map(statistics.fmean, zip(*scores, strict=True))
    return Effect(name, a, b, tuple(scores), interval)


def _predictions(settings: CompareSettings, pair: tuple[Row, Row], notes: list[str]) -> _Pair | None:
    """The predictions of both models, or None where one of them is gone: its scores can still be compared."""
    found = []
    for row in pair:
        scores = find_scores(settings.workspace, row)
        if scores is None:
            notes.append(f"{row['model']} is gone, and with it its predictions: its pair has scores alone")
            return None
        found.append(read_predictions(scores, row))
    return found[0], found[1]


def _adjusted(lines: list[Line]) -> list[Line]:
    """The lines with p-values adjusted for their number."""
    known = [line.effects[0].interval for line in lines]
    seeds = iter(holm([one.p_value for one in known if one and one.p_value is not None]))
    tests = iter(holm([test.p_value for line in lines for test in line.tests]))

    def effects(line: Line) -> Iterator[Effect]:
        main, *others = line.effects
        has_p = main.interval and main.interval.p_value is not None
        yield from (dataclasses.replace(main, p_holm=next(seeds)) if has_p else main, *others)

    return [
        dataclasses.replace(
            line,
            effects=tuple(effects(line)),
            tests=tuple(dataclasses.replace(test, p_holm=next(tests)) for test in line.tests),
        )
        for line in lines
    ]


def _overall(settings: CompareSettings, lines: list[Line]) -> Effect:
    """Means over all lines of their main metric, for each seed that all lines have; an interval where there are two."""
    mains = [line.effects[0] for line in lines]
    name = mains[0].metric if len({effect.metric for effect in mains}) == 1 else "mean of metrics"
    by_seed = [dict(zip(line.seeds, line.effects[0].scores, strict=True)) for line in lines]
    scores = [
        (statistics.fmean(found[seed][0] for found in by_seed), statistics.fmean(found[seed][1] for found in by_seed))
        for seed in by_seed[0]
        if all(seed in found for found in by_seed)
    ]
    if not scores:
        a, b = (statistics.fmean(values) for values in ([e.a for e in mains], [e.b for e in mains]))
        return Effect(name, a, b, (), None)
    return _effect(name, scores, settings.confidence, None)
