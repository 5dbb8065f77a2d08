"""The table of a task by size: the smallest number of bytes that a model fits, and how good it is.

Teachers, then classes of size with our students, other libraries' models and the thesis's, each marked.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import pydantic

from common.config import nearest
from common.errors import UserError
from common.tables import human_bytes
from compression.experiments.report.models_table import metric_heading, score_entry, warning
from compression.experiments.report.pivot_columns import averaged
from compression.experiments.report.reference import QUOTED_TEACHER, QuotedPoint, quoted_points
from compression.experiments.report.seed_groups import SeedGroup, SplitResults
from compression.experiments.report.table import Entry, Head, Line, Table, markdown_table, number_entry, text_entry

LIMITS = (12_000, 32_000, 100_000, 400_000)
"""Classes of size, in bytes, each up to and including its number."""
Targets = Mapping[str, Mapping[str, Annotated[float, pydantic.Field(gt=0, le=1)]]]
"""Class, as '12 KB' -> metric -> the least mean over seeds that is wanted, from 0 to 1."""
_Row = tuple[int, list[Entry]]
"""Index of the class, and the entries that follow it: name, size, parameters, scores, target."""


def size_table(
    results: SplitResults, targets: Targets | None = None, quotes: Sequence[str] = (), limits: Sequence[int] = LIMITS
) -> str:
    """Return the table in Markdown. quotes: models of the thesis's table 7.5, under its teacher's row.

    A group is in the smallest class that all its seeds fit, by the packed file. Raises UserError for a target of an
    unknown class or metric, and an unknown model of the thesis.
    """
    targets, metrics = targets or {}, results.metrics
    classes = ["teachers", *map(human_bytes, limits), "larger"]
    _check_known("targets: no class", targets, classes[1:-1])
    _check_known("targets: no metric", (metric for wanted in targets.values() for metric in wanted), metrics)
    points = {point.name: point for point in quoted_points(results.task)}
    _check_known(f"quotes: on {results.task} the thesis's table 7.5 has no model", quotes, points)
    rows: list[_Row] = [_group_row(group, metrics, limits, classes, targets) for group in results.groups]
    named = dict.fromkeys([QUOTED_TEACHER, *quotes]) if quotes else ()
    rows += [_quoted_row(points[name], metrics, limits) for name in named]
    filled = {classes[index] for index, entries in rows if entries[-1].text}
    nothing = [text_entry(None)] * (3 + len(metrics))
    rows += [(classes.index(n), [*nothing, Entry(_wanted(targets[n]))]) for n in targets if n not in filled]
    rows.sort(key=lambda row: row[0])
    lines = []
    for (index, entries), above in zip(rows, [-1, *(index for index, _ in rows)], strict=False):
        shown = entries if targets else entries[:-1]
        lines.append(Line([Entry(classes[index] if index != above else ""), *shown]))
    names = [averaged(metric_heading(name), results.split.split(" and ")) for name in metrics]
    heads = [Head((name,), numeric=False) for name in ("Size class", "Model")]
    heads += [Head((name,)) for name in ("Packed file", "Parameters", *names)]
    heads += [Head(("Target",), numeric=False)] if targets else []
    text = markdown_table(Table(results.task, heads, lines))
    return text + warning(any(group.selected_on_test for group in results.groups))


def _check_known(error: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise UserError(f"{error} {name!r}{nearest(name, known)} (there are: {', '.join(known)})")


def _group_row(
    group: SeedGroup, metrics: Sequence[str], limits: Sequence[int], classes: Sequence[str], targets: Targets
) -> _Row:
    scores = {name: group.metric(name) for name in metrics}
    entries = [number_entry(group.size("parameters")), *map(score_entry, scores.values())]
    if group.is_teacher:
        return 0, [Entry(group.label), _weights(group.size("bytes_model")), *entries, Entry("")]
    size, packed = group.size("bytes_packed"), [row.get("bytes_packed") for row in group.rows]
    if size is None or None in packed:
        raise UserError(f"{group.name}: a row has no bytes_packed, and the table is by the packed file")
    index = 1 + bisect.bisect_left(limits, max(packed))
    wanted = {} if group.is_peer else targets.get(classes[index], {})
    means = {name: score.mean for name, score in scores.items() if score}
    return index, [Entry(group.label), Entry(human_bytes(size)), *entries, Entry(_wanted(wanted, means))]


def _quoted_row(point: QuotedPoint, metrics: Sequence[str], limits: Sequence[int]) -> _Row:
    """A row of the thesis's. Its sizes are of weights alone, gzipped where pruned or quantized."""
    index = 0 if point.name == QUOTED_TEACHER else 1 + bisect.bisect_left(limits, point.size_bytes)
    scores = [number_entry(point.metrics.get(name), ".2f", 0.01) for name in metrics]
    name, parameters = Entry(f"{point.name} (quoted)"), number_entry(point.parameters)
    return index, [name, _weights(point.size_bytes), parameters, *scores, Entry("")]


def _weights(size: float | None) -> Entry:
    return text_entry(None if size is None else f"{human_bytes(size)}, weights")


def _wanted(targets: Mapping[str, float], means: Mapping[str, float] | None = None) -> str:
    """'≥ 81.00: reached', or by how much it is missed; of several metrics, each by its name."""
    texts = []
    for metric, wanted in targets.items():
        text = f"{metric} ≥ {100 * wanted:.2f}" if len(targets) > 1 else f"≥ {100 * wanted:.2f}"
        if means is not None and metric in means:
            short = wanted - means[metric]
            text += ": reached" if short <= 0 else f": missed by {100 * short:.2f}"
        texts.append(text)
    return "; ".join(texts)
