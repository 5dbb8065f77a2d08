"""The one reader of text files, and the split files every later stage reads."""

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import UserError
from common.tasks import Task
from common.text import normalise
from common.workspace import Workspace, fingerprint, whole_file

# IMDB-length reviews pass; csv's own limit of 128 KiB a field does not let some through.
csv.field_size_limit(16 * 1024 * 1024)


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows of text with labels, in file order.

    sentence1: n strings; sentence2: n strings or None for single sentences;
    labels: int64 [n], -1 where unknown; source_rows: int64 [n], the row of the source file (augmented rows: of train).
    """

    sentence1: list[str]
    sentence2: list[str] | None
    labels: np.ndarray
    source_rows: np.ndarray

    def __len__(self) -> int:
        return len(self.sentence1)

    def take(self, rows: np.ndarray) -> "Split":
        """The given rows, in the given order."""
        return Split(
            [self.sentence1[i] for i in rows],
            None if self.sentence2 is None else [self.sentence2[i] for i in rows],
            self.labels[rows],
            self.source_rows[rows],
        )

    def sentences(self) -> list[list[str]]:
        """One list of sentences, or two for pairs."""
        return [self.sentence1] if self.sentence2 is None else [self.sentence1, self.sentence2]

    def fingerprint(self) -> str:
        """Fingerprint of texts and labels: equal exactly when both are."""
        return fingerprint([self.sentence1, self.sentence2, self.labels.tolist()])

    def text_fingerprint(self) -> str:
        """Fingerprint of the texts alone."""
        return fingerprint([self.sentence1, self.sentence2])


def read_source(path: Path, task: Task) -> Split:
    """Read one TSV or CSV file of a task.

    Every row is kept in its place, empty sentences too. Raises UserError with path and line for a missing file, a
    missing column, a row with too few or too many columns, wrong encoding or an unknown label.
    """
    label_index = {value: i for i, value in enumerate(task.label_values)}
    texts: dict[str, list[str]] = {"sentence1": [], "sentence2": []}
    labels, rows = [], []
    reader = _rows(path)
    _, header = next(reader, (1, []))
    places = _column_places(path, header, [*task.columns.values(), *task.source.where])
    wanted = [(places[column], value) for column, value in task.source.where.items()]
    for number, (line, cells) in enumerate(reader):
        if len(cells) != len(header):
            raise UserError(f"{path} line {line}: expected {len(header)} columns, found {len(cells)}")
        if any(cells[place] != value for place, value in wanted):
            continue
        label = cells[places[task.columns["label"]]].strip()
        if label not in label_index:
            raise UserError(f"{path} line {line}: unknown label {label!r}; expected {', '.join(label_index)}")
        labels.append(label_index[label])
        rows.append(number)
        for name, sentences in texts.items():
            if name in task.columns:
                sentences.append(normalise(cells[places[task.columns[name]]]))
    if not labels:
        raise UserError(f"{path}: no rows of data")
    pair = texts["sentence2"] if task.pair else None
    return Split(texts["sentence1"], pair, np.array(labels, np.int64), np.array(rows, np.int64))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) for each row; GLUE's TSV has no quoting, CSV has."""
    try:
        # utf-8-sig drops a byte-order mark; only \n ends a TSV line, since GLUE's text holds other line separators.
        with path.open(encoding="utf-8-sig", newline="" if path.suffix == ".csv" else "\n") as file:
            if path.suffix == ".csv":
                reader = csv.reader(file, strict=True)
                yield from ((reader.line_num, cells) for cells in reader if cells)
            else:
                yield from (
                    (line, text.rstrip("\r\n").split("\t")) for line, text in enumerate(file, 1) if text.strip("\r\n")
                )
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} line {_line_of_bad_byte(path)}: not UTF-8 text ({error.reason})") from error
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num}: malformed CSV ({error})") from error


def _line_of_bad_byte(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 0


def _column_places(path: Path, header: list[str], columns: list[str]) -> dict[str, int]:
    missing = [column for column in columns if column not in header]
    if missing:
        raise UserError(f"{path} line 1: no column {missing[0]!r}; found {', '.join(header) or 'an empty file'}")
    return {column: header.index(column) for column in columns}


def write_split(path: Path, split: Split, metadata: dict[str, str]) -> None:
    """Write a split as Parquet with `metadata` (strings) in its footer, whole or not at all."""
    columns = {"sentence1": pa.array(split.sentence1, pa.string())}
    if split.sentence2 is not None:
        columns["sentence2"] = pa.array(split.sentence2, pa.string())
    columns["label"] = pa.array(split.labels, pa.int32())
    columns["source_row"] = pa.array(split.source_rows, pa.int64())
    with whole_file(path) as partial:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), partial, compression="zstd")


def read_split(path: Path, missing: str) -> Split:
    """Read a split file; `missing` is the hint given when it is not there. Raises UserError."""
    table = read_table(path, missing)
    try:
        pair = table["sentence2"].to_pylist() if "sentence2" in table.column_names else None
        return Split(
            table["sentence1"].to_pylist(),
            pair,
            table["label"].to_numpy().astype(np.int64),
            table["source_row"].to_numpy(),
        )
    except KeyError as error:
        raise UserError(f"{path}: not a split file: {error}") from error


def read_table(path: Path, missing: str) -> pa.Table:
    """Read a Parquet file. Raises UserError when it is missing (with the hint) or damaged."""
    try:
        return pq.read_table(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {missing}") from None
    except pa.ArrowInvalid as error:
        raise UserError(f"{path}: damaged or no Parquet file ({error})") from error


def read_metadata(path: Path) -> dict[str, str]:
    """A Parquet file's own metadata, empty where the file is missing or damaged."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (FileNotFoundError, pa.ArrowInvalid):
        return {}
    return {key.decode(): value.decode() for key, value in metadata.items() if key != b"ARROW:schema"}


def load_split(paths: Workspace, task: Task, split: str) -> Split:
    """A prepared split of a task. Raises UserError that names the command to run when it is missing."""
    return read_split(paths.split(task.name, split), f"run: python preprocess.py --task {task.name}")
