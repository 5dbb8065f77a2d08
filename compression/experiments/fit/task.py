"""The task made from a user's file: its YAML file and rows, written for the ordinary stages.

This module imports no heavy library, so that errors in the user's file are reported at once.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from common.data.overlap import FEW_WORDS, whole_rows
from common.data.readers.label_cells import Row, labels_of
from common.data.tasks import Task, load_task
from common.data.text import near_key
from common.kinds.iob import as_iob
from common.kinds.registry import ANSWERS, LABELS, MULTILABEL, TAGS
from common.seeds import derive
from common.store.files import whole_file, write_json, write_text
from compression.evaluation.label_scores import METRICS_OF_LABELS
from compression.experiments.fit.contents.by_word import as_squad, some_unanswerable
from compression.experiments.fit.contents.detect import FEWEST_ROWS, FileContents

TASK_FILE = "task.yaml"
_KEPT_OF_LABEL = 20
"""Minimum number of rows that each label keeps when rows are drawn."""
MOST_VALIDATION, MOST_TEST = 1000, 2000
"""Maximum number of rows held out: more cost the teacher time and change a score little."""
_MANY_PARTS = 0.2
"""Only whole texts are held out if more than this share of rows are parts of longer ones."""
_MOST_WORDS = 2_000_000
"""Larger files are not searched for parts."""


def number_to_hold_out(rows: int, most: int) -> int:
    """Return how many rows to hold out: a tenth, up to a fifth for a small file, at most `most`."""
    return min(most, max(rows // 10, min(100, rows // 5)))


def draw(values: Sequence[Row], most: int, seed: int) -> list[Row]:
    """Return at most `most` rows, in order, with some of each label. values: as in FileContents."""
    if len(values) <= most:
        return list(values)
    order = np.random.default_rng(derive("fit rows", seed)).permutation(len(values)).tolist()
    seen: Counter[str] = Counter()
    first, others = [], []
    for index in order:
        labels = labels_of(values[index]) or ("",)
        seen.update(labels)
        (first if min(seen[label] for label in labels) <= _KEPT_OF_LABEL else others).append(index)
    return [values[index] for index in sorted([*first, *others][:most])]


def whole_texts(contents: FileContents) -> int | None:
    """Return how many labelled rows are whole texts if many rows are parts of longer ones, else None.

    Students that memorise a text's parts score well on the text (SST-2's train has phrases of the same sentences).
    """
    values = contents.values
    if contents.pair or contents.kind == TAGS.name or sum(row[0].count(" ") + 1 for row in values) > _MOST_WORDS:
        return None
    keys = [near_key(row[0]) for row in values]
    long, whole = sum(len(key.split()) >= FEW_WORDS for key in keys), whole_rows(keys)
    labelled = sum(values[row][-1] is not None for row in whole)
    return labelled if long - len(whole) > _MANY_PARTS * long and labelled >= FEWEST_ROWS else None


def write_task(
    folder: Path, name: str, contents: FileContents, whole: int | None = None, symmetric: bool = False
) -> Task:
    """Write a task's rows and YAML file into a folder. Returns the task.

    whole: the number of whole texts, if only these are held out. Holding out a tenth of them removes a tenth of all
    rows from train, including their parts. symmetric: whether the texts of a pair have no order.
    """
    labelled = sum(row[-1] is not None for row in contents.values) if whole is None else whole
    sentences = {} if whole is None else {"whole_sentences": True}
    columns = {f"sentence{number}": column for number, column in enumerate(contents.texts, 1)}
    suffix = {TAGS.name: ".conll", ANSWERS.name: ".json"}.get(contents.kind, ".parquet")
    splits = {"all": contents.values, **dict(zip(("unlabelled", "other"), contents.others or (), strict=False))}
    if contents.test is not None:
        splits["test"] = contents.test
    files = {split: f"{'rows' if split == 'all' else split}{suffix}" for split in splits}
    for split, rows in splits.items():
        _write_rows(folder / files[split], contents, rows)
    task = {
        "name": name,
        "kind": contents.kind,
        "range": list(contents.range or ()),
        "labels": list(contents.labels),
        "metrics": list(METRICS_OF_LABELS) if contents.kind == LABELS.name else None,
        "unanswerable": contents.kind == ANSWERS.name and some_unanswerable(contents.values),
        "columns": {**columns, "label": contents.label} if suffix == ".parquet" else None,
        "source": {"files": files},
        "validation": {"rows": number_to_hold_out(labelled, MOST_VALIDATION), **sentences},
        "symmetric": symmetric,
        "test": None if "test" in splits else {"rows": number_to_hold_out(labelled, MOST_TEST), **sentences},
    }
    text = yaml.safe_dump({key: value for key, value in task.items() if value}, allow_unicode=True, sort_keys=False)
    write_text(folder / TASK_FILE, text)
    return load_task(str(folder / TASK_FILE))


def _write_rows(path: Path, contents: FileContents, rows: Sequence[Row]) -> None:
    """Write rows in the form that tasks of their kind read."""
    if contents.kind == TAGS.name:
        write_text(path, "".join(as_iob(text.split(" "), tags) for text, tags in rows))
        return
    if contents.kind == ANSWERS.name:
        write_json(path, as_squad(rows))
        return
    label = pa.list_(pa.string()) if contents.kind == MULTILABEL.name else pa.string()
    schema = pa.schema([*((name, pa.string()) for name in contents.texts), (contents.label, label)])
    columns = [pa.array(*column) for column in zip(zip(*rows, strict=True), schema.types, strict=True)]
    with whole_file(path) as partial:
        pq.write_table(pa.table(columns, schema=schema), partial, compression="zstd")
