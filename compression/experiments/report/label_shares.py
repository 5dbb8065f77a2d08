"""Distributions of labels as tables, the thesis's next to ours where it is quoted (its table B.1)."""

from __future__ import annotations

from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.reference import quoted_shares
from compression.experiments.report.table import Head, Line, Table, number_entry, text_entry

_AUGMENTED = {"train": False, "augmented": True}
"""Kinds of rows that table B.1 has, and whether they are its augmented ones."""


def share_tables(record: ExperimentRecord) -> list[Table]:
    """Return a table for each task whose labels were counted, in percent."""
    return [_table(record, task) for task in dict.fromkeys(shares.task for shares in record.labels)]


def quoted_next_to(record: ExperimentRecord, task: str, rows: str) -> dict[str, float]:
    """Return the thesis's shares of these rows' labels, where it has them and is quoted on this very task."""
    if record.quote is None or record.quote.task not in (None, task) or rows not in _AUGMENTED:
        return {}
    return quoted_shares(task, _AUGMENTED[rows])


def _table(record: ExperimentRecord, task: str) -> Table:
    counted = [shares for shares in record.labels if shares.task == task]
    labels = list(dict.fromkeys(label for shares in counted for label in shares.shares))
    quoted = {shares.rows: quoted_next_to(record, task, shares.rows) for shares in counted}
    shown = [label for label in labels if any(label in known for known in quoted.values())]
    heads = [Head(("Rows",), numeric=False), Head(("Count",)), *(Head((f"{label}, %",)) for label in labels)]
    heads += [Head((f"{label}, %, thesis (quoted)",), quoted=True) for label in shown]
    lines = []
    for shares in counted:
        ours = [number_entry(shares.shares.get(label), ".2%") for label in labels]
        theirs = [number_entry(quoted[shares.rows].get(label), ".1%") for label in shown]
        lines.append(Line([text_entry(shares.rows), number_entry(shares.count), *ours, *theirs]))
    return Table(f"{task}, labels", heads, lines)
