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


def _table(record: ExperimentRecord, task: str) -> Table:
    counted = [shares for shares in record.labels if shares.task == task]
    labels = list(dict.fromkeys(label for shares in counted for label in shares.shares))
    known = record.quote is not None and record.quote.task in (None, task)
    quoted = {rows: quoted_shares(task, augmented) if known else {} for rows, augmented in _AUGMENTED.items()}
    theirs = [quoted.get(shares.rows, {}) for shares in counted]
    shown = [label for label in labels if any(label in own for own in theirs)]
    heads = [Head(("Rows",), numeric=False), Head(("Count",)), *(Head((f"{label}, %",)) for label in labels)]
    heads += [Head((f"{label}, %, thesis (quoted)",), quoted=True) for label in shown]
    lines = []
    for shares, own in zip(counted, theirs, strict=True):
        entries = [number_entry(shares.shares.get(label), ".2%") for label in labels]
        entries += [number_entry(own.get(label), ".1%") for label in shown]
        lines.append(Line([text_entry(shares.rows), number_entry(shares.count), *entries]))
    return Table(f"{task}, labels", heads, lines)
