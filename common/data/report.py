"""The report on a task's files and splits: row counts, label balance, lengths, repetitions, leaks.

`make_report` returns data (report.json), `as_text` formats it.
"""

import itertools
from typing import Any

import numpy as np

from common.data.overlap import Keys, contradictions, duplicates, in_either_order, text_keys
from common.data.split import Split
from common.data.tasks import JOINED_BY, Task
from common.kinds.spans import texts_of, within_words
from common.tables import text_table

PERCENTILES = (5, 50, 95, 99)
SHOWN_LABELS = 20
SHOWN_CHARACTERS = 80
COUNTS = ("rows", "unlabelled", "empty", "repeated", "contradictory")
LENGTHS = ("words", "characters")


def make_report(
    task: Task,
    read: dict[str, Split],
    splits: dict[str, Split],
    dropped: dict[str, int],
    left_out: dict[str, int],
) -> dict[str, Any]:
    """Return the report on the files, as they were `read`, and on the splits.

    dropped: number of rows removed from train, by reason: `repeated`, or the name of the split that they overlap;
    left_out: number of rows of each label that is left out.
    """
    keys = {name: text_keys(splits[name]) for name in task.splits if name in splits}
    compared = {name: in_either_order(zip(*columns, strict=True)) for name, columns in keys.items()}
    overlaps = []
    for name, of in itertools.combinations(compared, 2):
        if name in ("train", "validation"):
            held_out = set(compared[of])
            overlaps.append({"split": name, "of": of, "rows": sum(text in held_out for text in compared[name])})
    return {
        "task": task.name,
        "labels": task.kind.labels_heading,
        # A file that became a split unchanged is described only once.
        "read": {
            name: _describe(task, file, text_keys(file)) for name, file in read.items() if splits.get(name) is not file
        },
        "splits": {name: _describe(task, splits[name], of_split) for name, of_split in keys.items()},
        "dropped": dropped,
        "left_out": left_out,
        "overlaps": overlaps,
    }


def _describe(task: Task, split: Split, keys: Keys) -> dict[str, Any]:
    """Return counts of one split, and one of its contradictions. keys: its `text_keys`.

    repeated: rows whose text and label an earlier row has; contradictory: texts with more than one label (or list of
    labels).
    """
    sentences = split.texts()
    different = contradictions(split, keys)
    return {
        "rows": len(split),
        "unlabelled": int((~split.labelled).sum()),
        "empty": sum(not text for text in sentences),
        "repeated": len(duplicates(split, keys)),
        "contradictory": len(different),
        "contradiction": [_row_text(task, split, row) for row in different[0]] if different else [],
        "within_words": within_words(split.labels, split.sentence2 or []) if task.kind.always_pairs else 0,
        "words": _percentiles([text.count(" ") + 1 if text else 0 for text in sentences]),
        "characters": _percentiles(list(map(len, sentences))),
        "labels": task.kind.balance(split.labels, task),
        **task.kind.labels_of_a_row(split.labels),
    }


def _row_text(task: Task, split: Split, row: int) -> str:
    """Return the texts and the label of a row, with invisible characters escaped."""
    labels = split.labels[row : row + 1]
    counts = task.kind.balance(labels, task)
    if split.sentence2 and task.kind.always_pairs:
        (label,) = texts_of(labels, [split.sentence2[row]])
    elif "mean" in counts:
        label = counts["mean"]
    else:
        label = JOINED_BY.join(name for name, count in counts.items() if count["rows"])
    texts = []
    for column in split.sentences():
        text = column[row]
        texts.append(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")
    return f"{', '.join(map(repr, texts))} -> {label!r}"


def _percentiles(lengths: list[int]) -> dict[str, int]:
    values = np.percentile(lengths, PERCENTILES, method="inverted_cdf")
    return {str(p): int(value) for p, value in zip(PERCENTILES, values, strict=True)} | {"max": max(lengths)}


def as_text(report: dict[str, Any]) -> str:
    """Return the report as aligned lines."""
    splits = report["splits"]
    scale = "/".join([*map(str, PERCENTILES), "max"])
    rows = []
    parts = {f"read: {name}": part for name, part in report["read"].items()} | splits
    for name, part in parts.items():
        spread = ["/".join(f"{value:,}" for value in part[length].values()) for length in LENGTHS]
        rows.append([name, *(f"{part[count]:,}" for count in COUNTS), *spread])
    header = ["", *COUNTS, *(f"{name} {scale}" for name in LENGTHS)]
    lines = [f"{report['task']}: files and splits", "", text_table(header, rows)]
    if any(part["rows"] > part["unlabelled"] for part in splits.values()):
        names = max((list(part["labels"]) for part in splits.values()), key=len)
        rows = [[name, *(_label_cell(part["labels"].get(name)) for part in splits.values())] for name in names]
        rows = rows[:SHOWN_LABELS]
        if all("none" in part for part in splits.values()):
            rows.append(["none of these", *(f"{part['none']:,}" for part in splits.values())])
            rows.append(["labels a row, mean", *(f"{part['labels_a_row']:.2f}" for part in splits.values())])
        lines += ["", text_table([report["labels"], *splits], rows)]
        if len(names) > SHOWN_LABELS:
            lines.append(f"... and {len(names) - SHOWN_LABELS} labels more")
    contradiction = next((part["contradiction"] for part in parts.values() if part["contradiction"]), None)
    if contradiction:
        lines += ["", "contradictory, for example:", *(f"  {row}" for row in contradiction)]
    for name, part in splits.items():
        if part["within_words"]:
            inside = f"{part['within_words']:,} answers of {part['rows']:,} begin or end within a word"
            lines += ["", f"{name}: {inside}; models answer with whole words"]
    reasons = [
        f"{rows:,} repeated" if name == "repeated" else f"{rows:,} overlapping {name}"
        for name, rows in report["dropped"].items()
        if rows
    ]
    left = [f"{entry['rows']:,} of {entry['split']} in {entry['of']}" for entry in report["overlaps"] if entry["rows"]]
    lines += ["", f"rows that left train: {', '.join(reasons) or 'none'}"]
    if report["left_out"]:
        shown = ", ".join(f"{label!r} ({rows:,} rows)" for label, rows in report["left_out"].items())
        lines.append(f"labels left out, because train keeps no row besides validation and test: {shown}")
    return "\n".join([*lines, f"rows still in two splits: {', '.join(left) or 'none'}"])


def _label_cell(value: Any) -> str:
    return f"{value['rows']:,} ({100 * value['share']:.1f} %)" if isinstance(value, dict) else str(value)
