"""The task of a fit: its YAML file and its rows, in the experiment's folder, for the ordinary stages."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from common.data.tasks import Task, load_task
from common.errors import UserError
from common.seeds import derive
from common.store.files import whole_file, write_text
from compression.experiments.fit.detect import Found

TASK_FILE = "task.yaml"
_KEPT_OF_LABEL = 20
"""Rows that each label keeps at least when rows are drawn."""
MOST_VALIDATION, MOST_TEST = 1000, 2000
"""Rows held out at most: more take the teacher's time and change a score little."""


def held_out_rows(rows: int, most: int) -> int:
    """Return how many rows to hold out: a tenth, of a small file up to a fifth, at most `most`."""
    return min(most, max(rows // 10, min(100, rows // 5)))


def draw(values: Sequence[tuple[str, ...]], most: int, seed: int) -> list[tuple[str, ...]]:
    """Return at most about `most` rows, in order; of each label some are kept. values: as Found has them."""
    if len(values) <= most:
        return list(values)
    order = np.random.default_rng(derive("fit rows", seed)).permutation(len(values)).tolist()
    seen: dict[str, int] = defaultdict(int)
    first, others = [], []
    for index in order:
        label = values[index][-1]
        seen[label] += 1
        (first if seen[label] <= _KEPT_OF_LABEL else others).append(index)
    chosen = first[:most] + others[: max(0, most - len(first))]
    return [values[index] for index in sorted(chosen)]


def write_task(folder: Path, name: str, found: Found, test: Sequence[tuple[str, ...]] | None) -> Task:
    """Write rows and YAML of a task into a folder. Returns the task. test: rows of a test file of the user's own."""
    columns = {f"sentence{number}": column for number, column in enumerate(found.texts, 1)} | {"label": found.label}
    labelled = sum(bool(row[-1]) for row in found.values)
    files = {"all": "rows.parquet"}
    _write_rows(folder / "rows.parquet", found, found.values)
    held_out: dict[str, object] = {"validation": {"rows": held_out_rows(labelled, MOST_VALIDATION)}}
    if test is None:
        held_out["test"] = {"rows": held_out_rows(labelled, MOST_TEST)}
    else:
        files["test"] = "test.parquet"
        _write_rows(folder / "test.parquet", found, test)
    kind: dict[str, object] = {"labels": list(found.labels), "metrics": ["accuracy", "f1_macro"]}
    if found.range is not None:
        kind = {"range": list(found.range)}
    about = {"name": name, **kind, "columns": columns, "source": {"files": files}, **held_out}
    write_text(folder / TASK_FILE, yaml.safe_dump(about, allow_unicode=True, sort_keys=False))
    return load_task(str((folder / TASK_FILE).absolute()))


def with_test(rows: Sequence[tuple[str, ...]], found: Found, path: Path) -> tuple[Found, list[tuple[str, ...]]]:
    """Return what was found, its range widened to the numbers of a test file, and that file's usable rows.

    Raises UserError for a label that the other file does not have.
    """
    usable = [row for row in rows if all(row)]
    if not usable:
        raise UserError(f"{path}: no row has texts and a label")
    for row in usable:
        if found.labels and row[-1] not in found.labels:
            raise UserError(f"{path}: label {row[-1][:80]!r} is not one of {', '.join(found.labels)[:300]}")
    if found.range is None:
        return found, usable
    try:
        numbers = [float(row[-1]) for row in usable]
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    low, high = found.range
    return dataclasses.replace(found, range=(min(low, *numbers), max(high, *numbers))), usable


def _write_rows(path: Path, found: Found, rows: Sequence[tuple[str, ...]]) -> None:
    names = [*found.texts, found.label]
    columns = zip(*rows, strict=True)
    arrays = {name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)}
    with whole_file(path) as partial:
        pq.write_table(pa.table(arrays), partial, compression="zstd")
