"""The report on a task's files and splits: row counts, label balance, lengths, repetitions, leaks.

`make_report` returns data (report.json), `as_text` formats it.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from common.data.ragged import known
from common.data.split import Split
from common.data.tasks import Task
from common.tables import text_table

PERCENTILES = (5, 50, 95, 99)
SHOWN_LABELS = 20


def make_report(
    task: Task, read: dict[str, Split], splits: dict[str, Split], dropped: dict[str, int]
) -> dict[str, Any]:
    """Return the report on files as they were `read`, and on the splits.

    dropped: number of rows that left train, by reason: `repeated`, or the name of the split they overlapped.
    """
    texts = {name: _folded(splits[name]) for name in task.splits}
    # A file that is a split without changes is described once.
    files = {name: split for name, split in read.items() if splits.get(name) is not split}
    return {
        "task": task.name,
        "tokens": task.tokens,
        "read": {name: describe(task, split, _folded(split)) for name, split in files.items()},
        "splits": {name: describe(task, splits[name], texts[name]) for name in task.splits},
        "dropped": dropped,
        "overlaps": _overlaps(texts),
    }


def describe(task: Task, split: Split, texts: list[tuple[str, ...]]) -> dict[str, Any]:
    """Return counts of one split. texts: its rows without case.

    repeated: rows whose text an earlier row has; contradictory: texts with more than one label.
    """
    sentences = [text for column in split.sentences() for text in column]
    labelled = split.labelled
    return {
        "rows": len(split),
        "unlabelled": int((~labelled).sum()),
        "empty": sum(not text for text in sentences),
        "repeated": len(texts) - len(set(texts)),
        "contradictory": _contradictory(texts, [value.tobytes() for value in split.labels], labelled),
        "words": _percentiles(text.count(" ") + 1 if text else 0 for text in sentences),
        "characters": _percentiles(map(len, sentences)),
        "labels": _balance(task, split.labels[known(split.labels)]),
    }


def _folded(split: Split) -> list[tuple[str, ...]]:
    """Return the rows' texts without case."""
    return list(zip(*([text.casefold() for text in column] for column in split.sentences()), strict=True))


def _contradictory(texts: list[tuple[str, ...]], labels: list[bytes], labelled: np.ndarray) -> int:
    first: dict[tuple[str, ...], bytes] = {}
    contradicted = set()
    for row in np.flatnonzero(labelled).tolist():
        if first.setdefault(texts[row], labels[row]) != labels[row]:
            contradicted.add(texts[row])
    return len(contradicted)


def _percentiles(lengths: Iterable[int]) -> dict[str, int]:
    values = np.fromiter(lengths, np.int64)
    found = np.percentile(values, PERCENTILES, method="inverted_cdf")
    return {str(p): int(value) for p, value in zip(PERCENTILES, found, strict=True)} | {"max": int(values.max())}


def _balance(task: Task, labels: np.ndarray) -> dict[str, Any]:
    """Return rows (for tokens, words) and share of every class, or lowest, mean and highest score of known labels."""
    if task.regression:
        parts = {"lowest": np.min, "mean": np.mean, "highest": np.max}
        return {name: round(float(part(labels)), 4) for name, part in parts.items()} if len(labels) else {}
    counts = np.bincount(labels, minlength=len(task.labels)).tolist()
    shares = [round(count / max(len(labels), 1), 4) for count in counts]
    return {label: {"rows": n, "share": share} for label, n, share in zip(task.labels, counts, shares, strict=True)}


def _overlaps(texts: dict[str, list[tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Return the number of rows of a split whose text a split held out from it has too."""
    found = []
    for name, of in itertools.combinations(texts, 2):
        if name in ("train", "validation"):
            held_out = set(texts[of])
            found.append({"split": name, "of": of, "rows": sum(text in held_out for text in texts[name])})
    return found


def as_text(report: dict[str, Any]) -> str:
    """Return the report as aligned lines."""
    lines = [f"{report['task']}: files and splits", "", *_counts_table(report)]
    if any(part["rows"] > part["unlabelled"] for part in report["splits"].values()):
        lines += ["", *_labels_table(report["splits"], "words by label" if report.get("tokens") else "label")]
    lines.append("")
    dropped = {name: rows for name, rows in report["dropped"].items() if rows}
    reasons = [f"{n:,} repeated" if name == "repeated" else f"{n:,} overlapping {name}" for name, n in dropped.items()]
    lines.append(f"rows that left train: {', '.join(reasons) or 'none'}")
    left = [f"{entry['rows']:,} of {entry['split']} in {entry['of']}" for entry in report["overlaps"] if entry["rows"]]
    lines.append(f"rows still in two splits: {', '.join(left) or 'none'}")
    return "\n".join(lines)


def _counts_table(report: dict[str, Any]) -> list[str]:
    counts = ("rows", "unlabelled", "empty", "repeated", "contradictory")
    lengths = ("words", "characters")
    scale = "/".join([*map(str, PERCENTILES), "max"])
    header = ["", *counts, *(f"{name} {scale}" for name in lengths)]
    rows = []
    parts = [(f"read: {name}", part) for name, part in report["read"].items()] + list(report["splits"].items())
    for name, part in parts:
        spread = ["/".join(f"{value:,}" for value in part[length].values()) for length in lengths]
        rows.append([name, *(f"{part[count]:,}" for count in counts), *spread])
    return [text_table(header, rows, [False] + [True] * (len(header) - 1))]


def _labels_table(splits: dict[str, Any], heading: str) -> list[str]:
    names = max((list(part["labels"]) for part in splits.values()), key=len)
    rows = [
        [name, *(_label_cell(part["labels"].get(name)) for part in splits.values())] for name in names[:SHOWN_LABELS]
    ]
    more = [f"... and {len(names) - SHOWN_LABELS} labels more"] if len(names) > SHOWN_LABELS else []
    return [text_table([heading, *splits], rows, [False] + [True] * len(splits)), *more]


def _label_cell(value: Any) -> str:
    return f"{value['rows']:,} ({100 * value['share']:.1f} %)" if isinstance(value, dict) else str(value)
