"""A teacher's logits over rows of a task as one small file, from which students can be trained without the teacher.

The file is Parquet with a column of 16-bit floats for each output, in row order, and without texts. Its metadata has a
fingerprint of each part's texts, which identifies the rows. Logits of answers, one for each word of a context, are
rounded and have a lower limit: this takes 40 % of the bytes, and probabilities differ by a KL divergence of 0.001.
"""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pydantic
from safetensors import SafetensorError, safe_open

from common.config import Settings, build
from common.data.split import Split, file_name, load_split, read_metadata
from common.data.tasks import Task
from common.errors import UserError
from common.reading import unreadable
from common.store.files import whole_file
from common.store.workspace import Workspace
from common.teachers.logits import as_table, from_table, load_logits
from common.training.models import find_model, is_apart, members_of, read_config, weights_file

_KEY = "featherweight.logits"
"""Key of the file's description, JSON, in the metadata of Parquet."""


class Part(Settings):
    """A part of the file: consecutive rows of logits over a split or over augmented rows."""

    rows: str
    """Name of the rows: train, validation, a test split, or augmented ones."""
    count: int = pydantic.Field(gt=0)
    fingerprint: str
    """Fingerprint of the texts."""


class About(Settings):
    """Description of a file of logits: its task, teacher and parts."""

    task: str
    labels: tuple[str, ...]
    teacher: str
    trained_on: tuple[str, ...]
    """Every task whose rows the teacher has seen."""
    sizes: dict[str, int] = {}
    """The teacher's `parameters` and `bytes_model`, if they are known."""
    parts: tuple[Part, ...]


def write_logits(paths: Workspace, task: Task, teacher: str, names: list[str], path: Path) -> None:
    """Write a teacher's logits over the named rows to a file, whole or not at all.

    Raises UserError if they are missing or out of date, or too large for 16 bits.
    """
    parts, logits = [], []
    for name in map(file_name, names):
        split = load_split(paths, task, name)
        logits.append(load_logits(paths, task, teacher, name))
        parts.append(Part(rows=name, count=len(split), fingerprint=split.text_fingerprint))
    with np.errstate(over="ignore"):
        values = task.kind.join_logits(list(map(task.kind.compact_logits, logits))).astype(np.float16)
    if np.isinf(values).any():
        raise UserError(f"{teacher}: a logit is too large for a 16-bit float")
    folder, config = find_model(paths, task, teacher)
    description = About(
        task=task.name,
        labels=task.labels,
        teacher=teacher,
        trained_on=config.trained_on,
        sizes=_sizes(folder),
        parts=tuple(parts),
    )
    table = as_table(task.kind, values).replace_schema_metadata({_KEY: description.model_dump_json()})
    with whole_file(path) as partial:
        pq.write_table(table, partial, compression="zstd", use_dictionary=False, use_byte_stream_split=True)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the number of a teacher's weights and the bytes of its weights file, summed over an ensemble's members.

    They are empty for a teacher with adapters in a separate file, which is no model without its encoder, and for
    imported logits whose file has none.
    """
    if members := members_of(folder):
        sizes = list(map(_sizes, members))
        return {name: sum(of[name] for of in sizes) for name in sizes[0]} if all(sizes) else {}
    config = read_config(folder)
    if config.imported:
        return config.sizes
    if is_apart(folder):
        return {}
    file = weights_file(folder)
    return {"parameters": _count_weights(file), "bytes_model": file.stat().st_size}


def _count_weights(file: Path) -> int:
    """Return the number of floats in a weights file. Raises UserError if it is damaged."""
    try:
        with safe_open(file, framework="numpy") as tensors:
            slices = [tensors.get_slice(name) for name in tensors.keys()]  # noqa: SIM118 - not a mapping
            return sum(math.prod(part.get_shape()) for part in slices if "F" in part.get_dtype())
    except SafetensorError as error:
        raise UserError(f"{file}: damaged or truncated weights ({error})") from error


def is_logits_file(path: Path) -> bool:
    """Return whether a file is one that `write_logits` wrote."""
    return path.suffix.lower() == ".parquet" and _KEY in read_metadata(path)


def read_logits(path: Path, task: Task, rows: Split, name: str) -> np.ndarray:
    """Return a file's logits over some rows, float32 [n, outputs], for tokens [n, words, outputs].

    name: the rows' name in messages. Raises UserError if the file is damaged or has logits for other labels or other
    rows.
    """
    description = read_description(path)
    if description.labels != task.labels:
        theirs, expected = (", ".join(labels) or "none" for labels in (description.labels, task.labels))
        raise UserError(f"{path}: logits of the labels {theirs}; {task.name} has {expected}")
    first, total = 0, sum(part.count for part in description.parts)
    for part in description.parts:
        if part.fingerprint == rows.text_fingerprint:
            return _values(path, task, rows, slice(first, first + part.count), total)
        first += part.count
    held = ", ".join(f"{part.rows} ({part.count:,})" for part in description.parts)
    raise UserError(
        f"{path}: has logits for the rows {held} of {description.task}, but not for the present "
        f"{len(rows):,} rows of {name}; were they prepared from other files, or with another --seed?"
    )


def read_description(path: Path) -> About:
    """Return the description in a file of logits. Raises UserError if it is damaged."""
    try:
        return build(About, json.loads(read_metadata(path)[_KEY]))
    except (ValueError, RecursionError, UserError) as error:
        raise UserError(f"{path}: its description of the logits is damaged ({error})") from error


def _values(path: Path, task: Task, rows: Split, where: slice, count: int) -> np.ndarray:
    """Return the logits of one part, checked to be finite for each row or word. count: rows of all parts."""
    words = task.kind.word_counts(rows.sentence1, rows.sentence2)
    kind = pa.float16() if words is None else pa.list_(pa.float16())
    try:
        table = pq.read_table(path)
        expected = [(f"logit_{i}", kind) for i in range(task.outputs)]
        if [(field.name, field.type) for field in table.schema] != expected or table.num_rows != count:
            raise UserError(f"expected {count:,} rows of {task.outputs} columns of type {kind}")
        part = table.slice(where.start, where.stop - where.start)
        if part.num_rows != len(rows):
            raise UserError(f"{part.num_rows:,} rows of logits for {len(rows):,} texts")
        if words is not None and any(
            (pc.list_value_length(column).to_numpy() != words).any() for column in part.columns
        ):
            raise UserError("the numbers of words differ from those of the texts")
        logits = from_table(task.kind, part).astype(np.float32)
        numbers = task.outputs * int(len(rows) if words is None else words.sum())
        if np.isfinite(logits).sum() != numbers:  # after a row's last word they are NaN
            raise UserError("a logit is not a number")
    except (pa.ArrowException, OSError, ValueError, UserError) as error:
        raise unreadable(path, error, f"logits of {task.name}") from error
    return logits
