"""The table of a task by size: each model's size class and score.

Teachers come first, then the size classes with our students, other libraries' models and the thesis's, each marked.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated

import pydantic

from common.config import nearest
from common.errors import UserError
from common.tables import human_bytes
from compression.experiments.report.columns import SELECTED_ON_TEST, columns_of, metric_column
from compression.experiments.report.pivot import averaged
from compression.experiments.report.reference import QUOTED_TEACHER, quoted_rows
from compression.experiments.report.results import SplitResults
from compression.experiments.report.table import Entry, Head, Line, Table, markdown_table, number_entry, text_entry

LIMITS = (12_000, 32_000, 100_000, 400_000)
"""Size classes: upper limits in bytes, inclusive."""
LARGER = "larger"
"""Class of models larger than all limits."""
Targets = Mapping[str, Mapping[str, Annotated[float, pydantic.Field(gt=0, le=1)]]]
"""Class, such as '12 KB' -> metric -> target: the minimum mean over seeds, from 0 to 1."""


def size_table(
    results: SplitResults, targets: Targets | None = None, quotes: Sequence[str] = (), limits: Sequence[int] = LIMITS
) -> str:
    """Return the table in Markdown. quotes: models of the thesis's table 7.5, below the row of its teacher.

    A group is in the smallest class that the packed files of all its seeds fit. There are columns for speeds if models
    were timed. Raises UserError for a target with an unknown class or metric, and for an unknown model of the thesis.
    """
    targets, metrics = targets or {}, results.metrics
    scored = list(map(metric_column, metrics))
    pairs = [(group, results.teacher_of(group)) for group in results.groups]
    timed = [column for column in columns_of("by_size") if any(column.value(*pair) for pair in pairs)]
    classes = ["teachers", *map(human_bytes, limits), LARGER]
    points = {row["model"]: row for row in quoted_rows(results.task)}
    _check_known("targets: no class", targets, classes[1:-1])
    _check_known("targets: no metric", (metric for of_class in targets.values() for metric in of_class), metrics)
    _check_known(f"quotes: on {results.task} the thesis's table 7.5 has no model", quotes, points)

    rows: list[tuple[str, list[Entry]]] = []  # size class, and the remaining entries of the line
    for group, teacher in pairs:
        scores = [group.metric(name) for name in metrics]
        if group.is_teacher:
            own_class, size, target = "teachers", _weights(group.mean("bytes_model")), ""
        else:
            packed = [row.get("bytes_packed") for row in group.rows]
            if None in packed:
                raise UserError(f"{group.name}: a row has no bytes_packed, and the table is by the packed file")
            own_class, size = size_class(max(packed), limits), human_bytes(group.mean("bytes_packed"))
            of_class = {} if group.is_peer else targets.get(own_class, {})
            target = _target(of_class, {name: score.mean for name, score in zip(metrics, scores, strict=True) if score})
        numbers = [number_entry(group.mean("parameters"))]
        numbers += [column.entry(group, teacher) for column in (*scored, *timed)]
        rows.append((own_class, [Entry(group.label), text_entry(size), *numbers, Entry(target)]))
    for name in dict.fromkeys([QUOTED_TEACHER, *quotes]) if quotes else ():
        point = points[name]  # the thesis's sizes count only weights, a student's gzipped
        own_class = "teachers" if name == QUOTED_TEACHER else size_class(point["bytes_model"], limits)
        scores = [number_entry(point["metrics"].get(metric), ".2f", 0.01) for metric in metrics]
        numbers = [text_entry(_weights(point["bytes_model"])), number_entry(point["parameters"]), *scores]
        numbers += [text_entry(None)] * len(timed)
        rows.append((own_class, [Entry(f"{name} (quoted)"), *numbers, Entry("")]))
    reached = {own_class for own_class, entries in rows if entries[-1].text}
    nothing = [text_entry(None)] * (3 + len(metrics) + len(timed))
    rows += [(name, [*nothing, Entry(_target(targets[name]))]) for name in targets if name not in reached]
    rows.sort(key=lambda row: classes.index(row[0]))
    firsts = ["", *(name for name, _ in rows)]
    lines = [
        Line([Entry(name if name != above else ""), *(entries if targets else entries[:-1])])
        for (name, entries), above in zip(rows, firsts, strict=False)
    ]
    names = [averaged(column.heading, results.split) for column in scored]
    names += [column.heading.replace("{than}", "") for column in timed]
    heads = [Head((name,), numeric=False) for name in ("Size class", "Model")]
    heads += [Head((name,)) for name in ("Packed file", "Parameters", *names)]
    heads += [Head(("Target",), numeric=False)] if targets else []
    text = markdown_table(Table(results.task, heads, lines))
    return text + warning(any(group.selected_on_test for group in results.groups))


def warning(selected_on_test: bool) -> str:
    """Return the note on models selected on test as a separate paragraph, or an empty string."""
    return f"\n\n{SELECTED_ON_TEST}" if selected_on_test else ""


def size_class(size: float, limits: Sequence[int] = LIMITS) -> str:
    """Return the smallest class that a file of this size fits, such as '12 KB'."""
    return [*map(human_bytes, limits), LARGER][bisect.bisect_left(limits, size)]


def _check_known(error: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{error} {name!r}{nearest(name, known)} (there are: {', '.join(known)})")


def _weights(size: float | None) -> str | None:
    return None if size is None else f"{human_bytes(size)}, weights"


def _target(targets: Mapping[str, float], means: Mapping[str, float] = {}) -> str:
    """Return '≥ 81.00: reached', or by how much the target is missed; for several metrics, each with its name."""
    texts = []
    for metric, goal in targets.items():
        text = f"{metric} ≥ {100 * goal:.2f}" if len(targets) > 1 else f"≥ {100 * goal:.2f}"
        if metric in means:
            short = goal - means[metric]
            text += ": reached" if short <= 0 else f": missed by {100 * short:.2f}"
        texts.append(text)
    return "; ".join(texts)
