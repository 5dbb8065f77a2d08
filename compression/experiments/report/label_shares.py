"""Distributions of labels as tables, the thesis's beside ours where it is quoted (its table B.1)."""

from __future__ import annotations

import dataclasses

from compression.experiments.report.record import ExperimentRecord, LabelShares
from compression.experiments.report.reference import quoted_shares
from compression.experiments.report.tables import DASH

_AUGMENTED = {"train": False, "augmented": True}
"""Kinds of rows that table B.1 has, and whether they are its augmented ones."""


@dataclasses.dataclass(frozen=True)
class ShareTable:
    """A task's table: a line for each kind of rows, its cells as text in the order of the header."""

    task: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def share_tables(record: ExperimentRecord) -> list[ShareTable]:
    """A table for each task whose labels were counted, in percent."""
    tasks: dict[str, list[LabelShares]] = {}
    for counted in record.labels:
        tasks.setdefault(counted.task, []).append(counted)
    return [_table(record, task, counted) for task, counted in tasks.items()]


def quoted_beside(record: ExperimentRecord, task: str, rows: str) -> dict[str, float]:
    """The thesis's shares of these rows' labels, where it has them and is quoted on this very task."""
    if record.quote is None or record.quote.task not in (None, task) or rows not in _AUGMENTED:
        return {}
    return quoted_shares(task, _AUGMENTED[rows])


def _table(record: ExperimentRecord, task: str, counted: list[LabelShares]) -> ShareTable:
    labels = list(dict.fromkeys(label for shares in counted for label in shares.shares))
    quoted = {shares.rows: quoted_beside(record, task, shares.rows) for shares in counted}
    beside = [label for label in labels if any(label in known for known in quoted.values())]
    header = ("Rows", "Count", *(f"{label}, %" for label in labels))
    header += tuple(f"{label}, %, thesis (quoted)" for label in beside)
    lines = [
        (
            shares.rows,
            f"{shares.count:,}",
            *(_percent(shares.shares.get(label), 2) for label in labels),
            *(_percent(quoted[shares.rows].get(label), 1) for label in beside),
        )
        for shares in counted
    ]
    return ShareTable(task, header, tuple(lines))


def _percent(share: float | None, digits: int) -> str:
    return DASH if share is None else f"{100 * share:.{digits}f}"
