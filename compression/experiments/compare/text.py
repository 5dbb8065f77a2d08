"""A comparison for a terminal: a table, notes, and the verdict in one plain line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.tables import text_table
from compression.experiments.compare.comparison import Comparison, Effect, Line
from compression.experiments.report import filled
from compression.experiments.report.models_table import TERMINAL_WIDTH, metric_heading
from compression.experiments.report.seed_groups import DASH


def comparison_text(comparison: Comparison) -> str:
    """Return the comparison, 110 columns wide at most; the verdict is the last line. Scores are times 100."""
    first = comparison.lines[0]
    tables = [_metrics(comparison, first), _seeds(first)] if len(comparison.lines) == 1 else [_lines(comparison)]
    last = f"{filled(_notes(comparison))}\n{verdict(comparison)}"
    return "\n\n".join([f"A: {comparison.a}\nB: {comparison.b}", *tables, last])


def verdict(comparison: Comparison) -> str:
    """Return which one is better and by how much, in a sentence."""
    effect = comparison.verdict
    interval, points = effect.interval, 100 * effect.mean
    over = ", mean over all lines" if comparison.overall else ""
    if interval is None:
        why = "one seed alone shows no more than that" if effect.scores else "no seed is in all lines"
        return f"A − B: {points:+.1f} points{over}, without an interval: {why}"
    winner, loser = ("A", "B") if points > 0 else ("B", "A")
    rows = interval.method == "bootstrap over test rows"
    source = ("1 seed, over test rows" if rows else f"{len(effect.scores)} seeds") + over
    low, high = 100 * interval.low, 100 * interval.high
    if low <= 0 <= high:
        seen = f"A − B: {points:+.1f} points, {_certain(comparison)} {low:+.1f} to {high:+.1f}, {source}"
        return f"no difference that these {'test rows' if rows else 'seeds'} can show ({seen})"
    least, most = sorted((abs(low), abs(high)))
    size = f"{winner} is better than {loser} by {abs(points):.1f} points"
    return f"{size} ({_certain(comparison)} {least:.1f} to {most:.1f}, {source})"


def _table(header: Sequence[str], body: Sequence[Sequence[str]], names: int = 1) -> str:
    """A table whose first columns are names and the others numbers."""
    return text_table(header, body, [i >= names for i in range(len(header))], TERMINAL_WIDTH)


def _metrics(comparison: Comparison, line: Line) -> str:
    header = [f"{line.task}, {line.split}", "A", "B", "A − B", _certain(comparison), "p"]
    return _table(header, [[metric_heading(e.metric), *_numbers(e), _p(_p_value(e))] for e in line.effects])


def _seeds(line: Line) -> str:
    """Every pair of models."""
    tests = {test.seed: [str(test.b), str(test.c), _p(test.p_value)] for test in line.tests}
    pairs = zip(line.seeds, line.effects[0].scores, strict=True)
    body = [[str(seed), *_scores(a, b), *tests.get(seed, [DASH] * 3)] for seed, (a, b) in pairs]
    return _table(["seed", "A", "B", "A − B", "only A right", "only B right", "McNemar's p"], body)


def _lines(comparison: Comparison) -> str:
    alpha = 1 - comparison.confidence
    header = ["", "metric", "A", "B", "A − B", _certain(comparison), "seeds", "p", f"McNemar p < {alpha:.2g}"]
    body = []
    for line in comparison.lines:
        main = line.effects[0]
        sure = sum((test.p_holm or 0) < alpha for test in line.tests)
        counted = f"{sure} of {len(line.tests)}" if line.tests else DASH
        # What is the same in all lines is left out of a line's name.
        differing = [x for name, x in line.names.items() if {o.names.get(name) for o in comparison.lines} != {x}]
        seeds = str(len(line.seeds))
        body.append([", ".join(differing), main.metric, *_numbers(main), seeds, _p(main.p_holm), counted])
    if overall := comparison.overall:
        seeds = str(len(overall.scores)) if overall.scores else DASH
        body.append(["all", overall.metric, *_numbers(overall), seeds, _p(_p_value(overall)), ""])
    return _table(header, body, names=2)


def _numbers(effect: Effect) -> list[str]:
    interval = effect.interval
    shown = f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}" if interval else DASH
    return [*_scores(effect.a, effect.b), shown]


def _scores(a: float, b: float) -> list[str]:
    return [f"{100 * a:.2f}", f"{100 * b:.2f}", f"{100 * (a - b):+.2f}"]


def _p_value(effect: Effect) -> float | None:
    return effect.interval.p_value if effect.interval else None


def _p(value: float | None) -> str:
    return DASH if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def _certain(comparison: Comparison) -> str:
    return f"{100 * comparison.confidence:g} % CI"


def _notes(comparison: Comparison) -> Iterator[str]:
    """How the numbers are computed, then what was left out."""
    methods = {e.interval.method for line in comparison.lines for e in line.effects if e.interval}
    if "paired t over seeds" in methods:
        yield "Intervals and p of several seeds: Student's t of the differences of seeds."
    if "bootstrap over test rows" in methods:
        yield "Intervals of one seed: 10,000 resamples of the test rows, the same for A and B."
    if any(line.tests for line in comparison.lines):
        yield "McNemar's test is exact, of the rows that one model alone has right."
    if len(comparison.lines) > 1:
        yield "p-values of lines are adjusted for their number (Holm); intervals are not."
    yield from (f"Note: {note}." for note in comparison.notes)
