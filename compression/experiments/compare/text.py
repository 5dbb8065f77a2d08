"""What `experiment.py compare` prints: a table, what it rests on, and the verdict in one plain line."""

from __future__ import annotations

import textwrap

from common.tables import text_table
from compression.experiments.compare.comparison import Comparison, Effect, Line
from compression.experiments.report.models_table import DASH, TERMINAL_WIDTH, metric_heading


def comparison_text(comparison: Comparison) -> str:
    """The comparison for a terminal, 110 columns wide at most; the verdict is the last line. Scores are times 100."""
    parts = [f"A: {comparison.a}\nB: {comparison.b}"]
    if len(comparison.lines) == 1:
        parts += [_metrics(comparison, comparison.lines[0]), _seeds(comparison.lines[0])]
    else:
        parts.append(_lines(comparison))
    return "\n\n".join([*parts, "\n".join([*map(_filled, _notes(comparison)), verdict(comparison)])])


def verdict(comparison: Comparison) -> str:
    """Which side is better and by how much, in a sentence."""
    effect = comparison.verdict
    interval, points = effect.interval, 100 * effect.mean
    over = ", mean over all lines" if comparison.overall else ""
    if interval is None:
        why = "one seed alone shows no more than that" if effect.scores else "no seed is in all lines"
        return f"A − B: {points:+.1f} points{over}, without an interval: {why}"
    winner, loser = ("A", "B") if points > 0 else ("B", "A")
    low, high = sorted((100 * interval.low, 100 * interval.high), key=abs)
    rows = interval.method == "bootstrap over test rows"
    rests_on = "1 seed, over test rows" if rows else f"{len(effect.scores)} seeds"
    certain = f"{100 * comparison.confidence:g} % CI"
    if interval.low <= 0 <= interval.high:
        seen = f"A − B: {points:+.1f} points, {certain} {100 * interval.low:+.1f} to {100 * interval.high:+.1f}"
        return f"no difference that these {'test rows' if rows else 'seeds'} can show ({seen}, {rests_on}{over})"
    size = f"{winner} is better than {loser} by {abs(points):.1f} points"
    return f"{size} ({certain} {abs(low):.1f} to {abs(high):.1f}, {rests_on}{over})"


def _metrics(comparison: Comparison, line: Line) -> str:
    header = [f"{line.task}, {line.split}", "A", "B", "A − B", _certain(comparison), "p"]
    body = [[metric_heading(effect.metric), *_numbers(effect), _p(_p_value(effect))] for effect in line.effects]
    return text_table(header, body, [False] + [True] * 5, TERMINAL_WIDTH)


def _seeds(line: Line) -> str:
    """Every pair of models."""
    header = ["seed", "A", "B", "A − B", "only A right", "only B right", "McNemar's p"]
    tests = {test.seed: [str(test.b), str(test.c), _p(test.p_value)] for test in line.tests}
    pairs = zip(line.seeds, line.effects[0].scores, strict=True)
    body = [[str(seed), *_scores(a, b), *tests.get(seed, [DASH] * 3)] for seed, (a, b) in pairs]
    return text_table(header, body, [False] + [True] * 6, TERMINAL_WIDTH)


def _lines(comparison: Comparison) -> str:
    alpha = 1 - comparison.confidence
    header = ["", "metric", "A", "B", "A − B", _certain(comparison), "seeds", "p", f"McNemar p < {alpha:.2g}"]
    body = []
    for line in comparison.lines:
        main = line.effects[0]
        sure = sum((test.p_holm or 0) < alpha for test in line.tests)
        counted = f"{sure} of {len(line.tests)}" if line.tests else DASH
        label = _label(line, comparison)
        body.append([label, main.metric, *_numbers(main), str(len(line.seeds)), _p(main.p_holm), counted])
    if overall := comparison.overall:
        seeds = str(len(overall.scores)) if overall.scores else DASH
        body.append(["all", overall.metric, *_numbers(overall), seeds, _p(_p_value(overall)), ""])
    return text_table(header, body, [False, False] + [True] * 7, TERMINAL_WIDTH)


def _label(line: Line, comparison: Comparison) -> str:
    """What tells a line from the others; what is the same in all of them is left out."""
    others = [other.names for other in comparison.lines]
    return ", ".join(text for name, text in line.names.items() if {other.get(name) for other in others} != {text})


def _numbers(effect: Effect) -> list[str]:
    interval = effect.interval
    return [
        *_scores(effect.a, effect.b),
        f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}" if interval else DASH,
    ]


def _scores(a: float, b: float) -> list[str]:
    return [f"{100 * a:.2f}", f"{100 * b:.2f}", f"{100 * (a - b):+.2f}"]


def _p_value(effect: Effect) -> float | None:
    return effect.interval.p_value if effect.interval else None


def _p(value: float | None) -> str:
    return DASH if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def _certain(comparison: Comparison) -> str:
    return f"{100 * comparison.confidence:g} % CI"


def _filled(text: str) -> str:
    return textwrap.fill(text, TERMINAL_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _notes(comparison: Comparison) -> list[str]:
    """What the numbers are, then what was left out."""
    methods = {e.interval.method for line in comparison.lines for e in line.effects if e.interval}
    said = []
    if "paired t over seeds" in methods:
        said.append("Intervals and p of several seeds: Student's t of the differences of seeds.")
    if "bootstrap over test rows" in methods:
        said.append("Intervals of one seed: 10,000 resamples of the test rows, the same for A and B.")
    if any(line.tests for line in comparison.lines):
        said.append("McNemar's test is exact, of the rows that one model alone has right.")
    if len(comparison.lines) > 1:
        said.append("p-values of lines are adjusted for their number (Holm); intervals are not.")
    return [*said, *(f"Note: {note}." for note in comparison.notes)]
