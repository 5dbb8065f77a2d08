"""Rows of text: in memory, in split files, and by their names in a workspace."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.data.tasks import Task
from common.errors import UserError
from common.kinds.base import Kind
from common.kinds.registry import KINDS, LABELS
from common.reading import UTF_8, unreadable
from common.store.artifact import Artifact, find, read_manifest
from common.store.files import read_json, whole_file
from common.store.workspace import Workspace

ROW_GROUP_ROWS = 4096
"""Rows per row group of a split file: the unit in which long work reads and saves."""
_KIND = b"kind"
"""Key of the metadata of a column of labels."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows of text with labels, in file order.

    sentence1: n strings; sentence2: n strings or None for single sentences; labels: of n rows, in the form of their
    kind, such as int64 [n], -1 if unknown (see the classes of common.kinds);
    source_rows: int64 [n], the row in the source file (for augmented rows, in train).
    """

    sentence1: list[str]
    sentence2: list[str] | None
    labels: np.ndarray
    source_rows: np.ndarray
    kind: Kind = LABELS

    @classmethod
    def of_texts(cls, rows: Sequence[Sequence[str]], kind: Kind = LABELS) -> "Split":
        """Return rows without labels, for a model to answer. rows: one text each, or both of a pair; not empty."""
        first, *second = map(list, zip(*rows, strict=True))
        return cls(first, second[0] if second else None, np.full(len(first), -1), np.arange(len(first)), kind)

    def __len__(self) -> int:
        return len(self.sentence1)

    def take(self, rows: np.ndarray) -> "Split":
        """Return the given rows, in the given order."""
        return Split(
            [self.sentence1[i] for i in rows],
            None if self.sentence2 is None else [self.sentence2[i] for i in rows],
            self.labels[rows],
            self.source_rows[rows],
            self.kind,
        )

    def sentences(self) -> list[list[str]]:
        """Return one list of sentences, or two for pairs."""
        return [self.sentence1] if self.sentence2 is None else [self.sentence1, self.sentence2]

    def texts(self) -> list[str]:
        """Return the sentences of all rows; for pairs, all first ones, then all second ones."""
        return self.sentence1 + (self.sentence2 or [])

    @property
    def labelled(self) -> np.ndarray:
        """Which rows have a label (with several labels a row, a list of them, even an empty one), bool [n]."""
        return self.kind.labelled(self.labels)

    def labelled_rows(self) -> "Split":
        """Return the rows that have a label."""
        return self.take(np.flatnonzero(self.labelled))

    def with_choices(self, task: Task, logits: np.ndarray, labelled: np.ndarray) -> "Split":
        """Return the rows with a teacher's choice for each row that is not labelled. labelled: bool [n]."""
        chosen = self.kind.choices(task, logits)[~labelled]
        return dataclasses.replace(self, labels=self.kind.fill(self.labels, labelled, chosen, self.sentence2))

    def fingerprint(self) -> str:
        """Return a fingerprint of texts and labels."""
        return _fingerprint([*self._quoted(), map(json.dumps, self.kind.column(self.labels).to_pylist())])

    @functools.cached_property
    def text_fingerprint(self) -> str:
        """Fingerprint of the texts alone."""
        return _fingerprint(self._quoted())

    def _quoted(self) -> list[Iterator[str]]:
        return [map(encode_basestring, column) for column in self.sentences()]


def concatenate(first: Split, second: Split) -> Split:
    """Return the rows of both, each with its own source row."""
    pair = None if first.sentence2 is None or second.sentence2 is None else first.sentence2 + second.sentence2
    return Split(
        first.sentence1 + second.sentence1,
        pair,
        first.kind.join([first.labels, second.labels]),
        np.concatenate([first.source_rows, second.source_rows]),
        first.kind,
    )


def rows_of_sources(augmented: Split, kept: np.ndarray) -> np.ndarray:
    """Return the indices of the augmented rows whose source row is in `kept`, int64 [m].

    Rows read from a file or from other tasks have no source row (-1) and are always included.
    """
    return np.flatnonzero(np.isin(augmented.source_rows, kept) | (augmented.source_rows < 0))


def _fingerprint(columns: Sequence[Iterable[str]]) -> str:
    """Return 16 hex digits of SHA-256 over rows as JSON arrays, one row in memory at a time."""
    digest = hashlib.sha256()
    for row in zip(*columns, strict=True):
        digest.update(f"[{', '.join(row)}]".encode())
    return digest.hexdigest()[:16]


def write_split(path: Path, split: Split, metadata: dict[str, str]) -> None:
    """Write a split as Parquet with `metadata` in its footer, whole or not at all."""
    with whole_file(path) as partial:
        table = split_table(split).replace_schema_metadata(metadata)
        pq.write_table(table, partial, compression="zstd", row_group_size=ROW_GROUP_ROWS)


def split_table(split: Split) -> pa.Table:
    """Return a split's columns: sentence1, sentence2 for pairs, label with the name of its kind, source_row."""
    columns = {"sentence1": pa.array(split.sentence1, pa.string())}
    if split.sentence2 is not None:
        columns["sentence2"] = pa.array(split.sentence2, pa.string())
    columns["label"] = split.kind.column(split.labels)
    columns["source_row"] = pa.array(split.source_rows, pa.int64())
    metadata = {"label": {_KIND: split.kind.name}}
    fields = [pa.field(name, column.type, metadata=metadata.get(name)) for name, column in columns.items()]
    return pa.table(columns, schema=pa.schema(fields))


def read_split(path: Path, missing: str = "") -> Split:
    """Return a split file's rows; `missing` is the hint if it does not exist. Raises UserError."""
    return _as_split(path, read_table(path, missing))


def read_row_group(path: Path, group: int) -> Split:
    """Return one row group of a split file, the rows from group * ROW_GROUP_ROWS."""
    return _as_split(path, pq.ParquetFile(path).read_row_group(group))


def read_row_groups(path: Path) -> Iterator[Split]:
    """Yield all row groups of a split file, one at a time in memory."""
    return (read_row_group(path, group) for group in range(pq.read_metadata(path).num_row_groups))


def count_rows(path: Path) -> int:
    """Return the number of rows of a Parquet file without reading them."""
    return pq.read_metadata(path).num_rows


def _as_split(path: Path, table: pa.Table) -> Split:
    try:
        pair = table["sentence2"].to_pylist() if "sentence2" in table.column_names else None
        kind = KINDS[_kind_name(table.schema)]
        labels = kind.from_column(table["label"])
        return Split(table["sentence1"].to_pylist(), pair, labels, table["source_row"].to_numpy(), kind)
    except KeyError as error:
        raise UserError(f"{path}: not a split file: {error}") from error


def read_labels(path: Path) -> np.ndarray:
    """Return the labels of a split file, without reading its texts."""
    return KINDS[_kind_name(pq.read_schema(path))].from_column(pq.read_table(path, columns=["label"])["label"])


def _kind_name(schema: pa.Schema) -> str:
    return (schema.field("label").metadata or {})[_KIND].decode()


def read_table(path: Path, missing: str = "") -> pa.Table:
    """Return a Parquet file's table. Raises UserError when it is missing (with the hint), unreadable or damaged."""
    try:
        return pq.read_table(path)
    except FileNotFoundError:
        hint = f"; {missing}" if missing else ""
        raise UserError(f"{path}: no such file{hint}") from None
    except (pa.ArrowException, OSError) as error:  # OSError also if the footer is damaged
        raise unreadable(path, error) from error


def read_metadata(path: Path) -> dict[str, str]:
    """Return a Parquet file's own metadata, empty if the file is missing or damaged."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return {}
    return {key.decode(): value.decode() for key, value in metadata.items() if key != b"ARROW:schema"}


def read_report(paths: Workspace, task: str) -> dict[str, Any]:
    """Return the report on a task's files, empty if nothing is prepared yet."""
    return read_json(paths.report(task)) if paths.report(task).exists() else {}


def task_file(paths: Workspace, task: Task) -> str:
    """Return the path of the user's own YAML file as the workspace records it; empty for a shipped task."""
    return paths.relative(task.file) if task.file else ""


def definition_of(task: Task) -> dict[str, Any]:
    """Return all that a task's splits depend on, except its files: their content is an input, their paths are not."""
    read = {"kind", "header", "where"}
    if task.source.encoding != UTF_8:
        read.add("encoding")
    source = task.source.model_dump(mode="json", include=read)
    others = {"file", "source", "overlaps", "augment_fraction", "equivalence", "symmetric"}
    others |= {field for kind in KINDS.values() for field in kind.fields} - set(task.kind.fields)
    return {**task.model_dump(mode="json", exclude=others), "source": source}


def task_file_of_data(paths: Workspace, task: str) -> str | None:
    """Return the YAML file that the workspace's data of this name were prepared from.

    Empty for a shipped task; None if there are no data.
    """
    folder = paths.splits(task)
    if not folder.exists():
        return None
    file = read_manifest(folder).facts["task_file"]
    return str(paths.root / file) if file else ""


def is_of_another(paths: Workspace, task: Task) -> bool:
    """Return whether the workspace's data of this name were prepared from another YAML file."""
    made_from = task_file_of_data(paths, task.name)
    if made_from:
        made_from = paths.relative(made_from)
    return made_from is not None and made_from != task_file(paths, task)


def find_splits(paths: Workspace, task: Task) -> Artifact:
    """Return a task's prepared splits.

    Raises UserError, with the command, if they are missing, or were prepared from another YAML file or definition.
    """
    made_from, command = task_file_of_data(paths, task.name), f"run: {task.prepare_command}"
    if is_of_another(paths, task):
        raise UserError(
            f"{task.argument}: the workspace's data of {task.name} were prepared from "
            f"{made_from or 'the shipped task'}; give one of them another name, or {command}"
        )
    splits = find(paths.splits(task.name), command)
    if read_manifest(splits.path).settings["definition"] != definition_of(task):
        raise UserError(f"{task.argument}: it has changed since the data of {task.name} were prepared; {command}")
    return splits


PROCESSED = "processed"
"""The thesis's name for the rows of train."""


def is_augmented(task: Task, name: str) -> bool:
    """Return whether a name of rows, as given to --generate-loss, means augmented rows."""
    return name != PROCESSED and name not in task.splits


def file_name(name: str) -> str:
    """Return the name of rows in the workspace, from their name as given to --generate-loss."""
    return "train" if name == PROCESSED else name


def rows_kind(task: Task, name: str) -> str:
    """Return the name of a split, or "augmented" for that of augmented rows."""
    return "augmented" if is_augmented(task, name) else file_name(name)


def find_rows(paths: Workspace, task: Task, name: str) -> Artifact:
    """Return the artifact that holds a split or augmented rows, at the rows' file.

    Raises UserError, with the command, if they are missing, or were augmented from other splits than the current ones.
    """
    splits = find_splits(paths, task)
    if not is_augmented(task, name):
        return splits.at(f"{file_name(name)}.parquet")
    method = "tinybert" if name == "tinybert" else f"METHOD --augmented {name}"
    command = f"run: {task.prepare_command} --augment {method}"
    rows = find(paths.augmented(task.name, name), command)
    if read_manifest(rows.path).inputs["splits"] != splits.key:
        raise UserError(f"{rows.path}: the splits changed after these rows were augmented; {command}")
    return rows


def load_split(paths: Workspace, task: Task, name: str) -> Split:
    """Return the rows of a split, or augmented ones. Raises UserError, with the command, as `find_rows` does."""
    return read_split(find_rows(paths, task, name).path, f"run: {task.prepare_command}")
