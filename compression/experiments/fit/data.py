"""The task of a fit: its YAML file and rows, written to the experiment's folder for the ordinary stages."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from common.data.overlap import FEW_WORDS, whole_rows
from common.data.tasks import Task, load_task
from common.data.text import near_key
from common.errors import UserError
from common.seeds import derive
from common.store.files import whole_file, write_text
from compression.experiments.fit.detect import (
    FEWEST_ROWS,
    FileContents,
    Row,
    is_number,
    labels_of,
    with_plain_numbers,
    without_labels,
)

TASK_FILE = "task.yaml"
_KEPT_OF_LABEL = 20
"""Minimum number of rows that each label keeps when rows are drawn."""
MOST_VALIDATION, MOST_TEST = 1000, 2000
"""Maximum number of rows held out: more cost the teacher time and change a score little."""
_MEASURED_ROWS = 1000
_MANY_PARTS = 0.2
"""Only whole texts are held out if more than this share of rows are parts of longer ones."""
_MOST_WORDS = 2_000_000
"""Larger files are not searched for parts."""


def held_out_rows(rows: int, most: int) -> int:
    """Return how many rows to hold out: a tenth, up to a fifth for a small file, at most `most`."""
    return min(most, max(rows // 10, min(100, rows // 5)))


def draw(values: Sequence[Row], most: int, seed: int) -> list[Row]:
    """Return at most about `most` rows, in order, with some of each label. values: as in FileContents."""
    if len(values) <= most:
        return list(values)
    order = np.random.default_rng(derive("fit rows", seed)).permutation(len(values)).tolist()
    seen: dict[str, int] = defaultdict(int)
    first, others = [], []
    for index in order:
        labels = labels_of(values[index]) or ("",)
        for label in labels:
            seen[label] += 1
        (first if min(seen[label] for label in labels) <= _KEPT_OF_LABEL else others).append(index)
    chosen = first[:most] + others[: max(0, most - len(first))]
    return [values[index] for index in sorted(chosen)]


def whole_texts(found: FileContents) -> int | None:
    """Return how many labelled rows are whole texts if many rows are parts of longer ones, else None.

    Students that memorise a text's parts score well on the text (SST-2's train has phrases of the same sentences).
    """
    values = found.values
    if found.pair or sum(row[0].count(" ") + 1 for row in values) > _MOST_WORDS:
        return None
    keys = [near_key(row[0]) for row in values]
    long, whole = sum(len(key.split()) >= FEW_WORDS for key in keys), whole_rows(keys)
    labelled = sum(values[row][-1] is not None for row in whole)
    return labelled if long - len(whole) > _MANY_PARTS * long and labelled >= FEWEST_ROWS else None


def some_rows(values: Sequence[Row], seed: int) -> list[Row]:
    """Return random rows for measuring the speed of this machine."""
    order = np.random.default_rng(derive("fit speeds", seed)).permutation(len(values))
    return [values[index] for index in order[:_MEASURED_ROWS].tolist()]


def write_task(
    folder: Path,
    name: str,
    found: FileContents,
    test: Sequence[Row] | None = None,
    whole: int | None = None,
    symmetric: bool = False,
) -> Task:
    """Write a task's rows and YAML file into a folder. Returns the task.

    test: rows of the user's test file; whole: the number of whole texts, if only these are held out. Holding out a
    tenth of them removes a tenth of all rows from train, including their parts. symmetric: whether the texts of a pair
    have no order.
    """
    columns = {f"sentence{number}": column for number, column in enumerate(found.texts, 1)} | {"label": found.label}
    labelled = sum(row[-1] is not None for row in found.values) if whole is None else whole
    sentences = {} if whole is None else {"whole_sentences": True}
    files = {"all": "rows.parquet"}
    _write_rows(folder / "rows.parquet", found, found.values)
    held_out: dict[str, object] = {"validation": {"rows": held_out_rows(labelled, MOST_VALIDATION), **sentences}}
    if test is None:
        held_out["test"] = {"rows": held_out_rows(labelled, MOST_TEST), **sentences}
    else:
        files["test"] = "test.parquet"
        _write_rows(folder / "test.parquet", found, test)
    if found.range is not None:
        kind: dict[str, object] = {"kind": "numbers", "range": list(found.range)}
    elif found.multilabel:
        kind = {"kind": "multilabel", "labels": list(found.labels)}
    else:
        kind = {"labels": list(found.labels), "metrics": ["accuracy", "f1_macro"]}
    about = {"name": name, **kind, "columns": columns, "source": {"files": files}, **held_out}
    about |= {"symmetric": True} if symmetric else {}
    write_text(folder / TASK_FILE, yaml.safe_dump(about, allow_unicode=True, sort_keys=False))
    return load_task(str(folder / TASK_FILE))


def with_test(rows: Sequence[Row], found: FileContents, path: Path) -> tuple[FileContents, list[Row]]:
    """Return `found` with its range widened to the numbers of a test file, and the test file's usable rows.

    Raises UserError for a label that the training file does not have, and for a label that is not a number where the
    training file has numbers.
    """
    if found.range is not None:
        rows = with_plain_numbers(rows, found.decimal_mark)
    usable = without_labels([row for row in rows if all(row[:-1]) and row[-1] is not None], found.left_out)
    if not usable:
        raise UserError(f"{path}: no row has texts and a label")
    for row in usable:
        for label in labels_of(row) if found.labels else ():
            if label not in found.labels:
                raise UserError(f"{path}: label {label[:80]!r} is not one of {', '.join(found.labels)[:300]}")
    if found.range is None:
        return found, usable
    if strange := next((row[-1] for row in usable if not is_number(row[-1])), None):
        raise UserError(f"{path}: column {found.label!r}: {strange[:80]!r} is not a number")
    numbers = [float(row[-1]) for row in usable]
    low, high = found.range
    return dataclasses.replace(found, range=(min(low, *numbers), max(high, *numbers))), usable


def _write_rows(path: Path, found: FileContents, rows: Sequence[Row]) -> None:
    kinds = {name: pa.string() for name in found.texts}
    kinds[found.label] = pa.list_(pa.string()) if found.multilabel else pa.string()
    columns = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    arrays = {name: pa.array(column, kind) for (name, kind), column in columns}
    with whole_file(path) as partial:
        pq.write_table(pa.table(arrays), partial, compression="zstd")
