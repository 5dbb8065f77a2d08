"""A comparison of models or experiments as text: tables, notes on how their numbers are computed, and a verdict."""

from collections.abc import Iterator, Sequence

from common.tables import text_table
from compression.experiments.compare import Comparison, Effect
from compression.experiments.report import filled
from compression.experiments.report.columns import TERMINAL_WIDTH, metric_heading
from compression.experiments.report.results import DASH
from compression.experiments.significance import BOOTSTRAP, PAIRED_T


def comparison_text(comparison: Comparison) -> str:
    """Return the comparison as text, at most 110 columns wide, with the verdict last. Scores are multiplied by 100."""
    tables = [_lines_table(comparison)] if len(comparison.lines) > 1 else _line_tables(comparison)
    last = f"{filled(_notes(comparison))}\n{verdict(comparison)}"
    return "\n\n".join([f"A: {comparison.a}\nB: {comparison.b}", *tables, last])


def verdict(comparison: Comparison) -> str:
    """Return a sentence that states which one is better and by how much."""
    effect = comparison.verdict
    interval, points = effect.interval, 100 * effect.mean
    over = ", mean over all lines" if comparison.overall else ""
    if interval is None:
        why = "a single seed has none" if effect.scores else "no seed is in all lines"
        return f"A − B: {points:+.1f} points{over}, without an interval: {why}"
    winner, loser = ("A", "B") if points > 0 else ("B", "A")
    rows = interval.method == BOOTSTRAP
    source = ("1 seed, over test rows" if rows else f"{len(effect.scores)} seeds") + over
    low, high = 100 * interval.low, 100 * interval.high
    if low <= 0 <= high:
        seen = f"A − B: {points:+.1f} points, {_certain(comparison)} {low:+.1f} to {high:+.1f}, {source}"
        return f"no significant difference over these {'test rows' if rows else 'seeds'} ({seen})"
    least, most = sorted((abs(low), abs(high)))
    size = f"{winner} is better than {loser} by {abs(points):.1f} points"
    return f"{size} ({_certain(comparison)} {least:.1f} to {most:.1f}, {source})"


def _table(header: Sequence[str], body: Sequence[Sequence[str]], names: int = 1) -> str:
    return text_table(header, body, [i >= names for i in range(len(header))], TERMINAL_WIDTH)


def _line_tables(comparison: Comparison) -> list[str]:
    """Return a table of the metrics of the only line, and one with a line for each pair of models."""
    (line,) = comparison.lines
    header = [f"{line.task}, {line.split}", "A", "B", "A − B", _certain(comparison), "p"]
    metrics = [[metric_heading(effect.metric), *_numbers(effect), _p(effect.p_value)] for effect in line.effects]
    tests = {test.seed: [str(test.b), str(test.c), _p(test.p_value)] for test in line.tests}
    pairs = zip(line.seeds, line.effects[0].scores, strict=True)
    seeds = [[str(seed), *_scores(a, b), *tests.get(seed, [DASH] * 3)] for seed, (a, b) in pairs]
    names = ["seed", "A", "B", "A − B", "only A right", "only B right", "McNemar's p"]
    return [_table(header, metrics), _table(names, seeds)]


def _lines_table(comparison: Comparison) -> str:
    """Return a table of several lines."""
    alpha = 1 - comparison.confidence
    header = ["", "metric", "A", "B", "A − B", _certain(comparison), "seeds", "p", f"McNemar p < {alpha:.2g}"]
    fields = [{**o.cell, "stage": o.stage, "task": o.task, "split": o.split} for o in comparison.lines]
    body = []
    for line, of_line in zip(comparison.lines, fields, strict=True):
        main, tests = line.effects[0], line.tests
        counted = f"{sum((test.p_holm or 0) < alpha for test in tests)} of {len(tests)}" if tests else DASH
        # A line's name holds only the fields that differ between lines.
        differing = [text for name, text in of_line.items() if any(other.get(name) != text for other in fields)]
        seeds = str(len(line.seeds))
        body.append([", ".join(differing), main.metric, *_numbers(main), seeds, _p(main.p_holm), counted])
    if overall := comparison.overall:
        seeds = str(len(overall.scores) or DASH)
        body.append(["all", overall.metric, *_numbers(overall), seeds, _p(overall.p_value), ""])
    return _table(header, body, names=2)


def _numbers(effect: Effect) -> list[str]:
    interval = effect.interval
    shown = f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}" if interval else DASH
    return [*_scores(effect.a, effect.b), shown]


def _scores(a: float, b: float) -> list[str]:
    return [f"{100 * a:.2f}", f"{100 * b:.2f}", f"{100 * (a - b):+.2f}"]


def _p(value: float | None) -> str:
    if value is None:
        return DASH
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _certain(comparison: Comparison) -> str:
    return f"{100 * comparison.confidence:g} % CI"


def _notes(comparison: Comparison) -> Iterator[str]:
    """Yield how the numbers are computed, then the rows that are left out."""
    methods = {e.interval.method for line in comparison.lines for e in line.effects if e.interval}
    if PAIRED_T in methods:
        yield "Intervals and p over several seeds: Student's t of the differences for each seed."
    if BOOTSTRAP in methods:
        yield "Intervals of one seed: 10,000 resamples of the test rows, the same for A and B."
    if any(line.tests for line in comparison.lines):
        yield "McNemar's test is exact; it counts the rows that only one of the models has right."
    if len(comparison.lines) > 1:
        yield "p-values of several lines are adjusted by Holm's method; intervals are not."
    yield from (f"Note: {note}." for note in comparison.notes)
