"""Steps that write rows other than TinyBERT's variants: edited rows, new pairs, rows of a file or of other tasks."""

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from common.data.overlap import near_keys, touching
from common.data.readers.records import kind_of
from common.data.readers.tables import TABLES, column_names, read_source, text_columns
from common.data.split import Split, count_rows, find_splits, read_row_groups, read_split, split_table
from common.data.tasks import Task
from common.errors import UserError
from common.launch.shards import map_parts, write_row_groups
from common.progress import say
from common.stopping import at_once
from common.store.artifact import Artifact
from common.store.step import Context, Inputs, Step
from common.store.workspace import Workspace
from common.teachers.guided import split_file
from compression.augmentation.edits import edited_rows
from compression.augmentation.fresh import Fresh, held_out_files, held_out_keys
from compression.augmentation.pairs import open_pairs

AUGMENTED_FILE = "rows.parquet"


class NewRows(Step):
    """Base class of steps that write rows other than TinyBERT's variants. File: rows.parquet."""

    task: Task = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the splits."""
        return {"splits": find_splits(paths, self.task)}

    def _write(
        self, out: Path, inputs: Inputs, train: Split, candidates: Iterable[Split], message: str
    ) -> dict[str, Any]:
        """Write the fresh candidates, and print their number before a message. Raises UserError if there are none."""
        fresh = Fresh(near_keys(train), held_out_keys(held_out_files(inputs["splits"], self.task)))
        target, schema = out / AUGMENTED_FILE, split_table(train.take(np.arange(0))).schema
        write_row_groups(target, schema, (split_table(rows.take(fresh.choose(rows))) for rows in candidates))
        if not count_rows(target):
            raise UserError(
                f"{self.task.name}: no new rows: each one contains a text of a held-out row, or is already in train"
            )
        say(f"{count_rows(target):,} {message}")
        return {"task": self.task.name}

    def _write_texts(self, out: Path, inputs: Inputs, rows: Split, origin: str) -> dict[str, Any]:
        """Write the fresh rows, without labels; single texts must not be part of a held-out text."""
        train = read_split(split_file(inputs, "train"))
        labels, sources = train.kind.unknown_labels(len(rows), train.labels.shape[1:]), np.full(len(rows), -1)
        rows = dataclasses.replace(rows, labels=labels, source_rows=sources, kind=train.kind)
        leaking, keys = np.zeros(len(rows), bool), near_keys(rows)
        for file in held_out_files(inputs["splits"], self.task):
            leaking[touching(keys, near_keys(read_split(file)))] = True
        message = f"new rows from {len(rows):,} {origin}"
        return self._write(out, inputs, train, [rows.take(np.flatnonzero(~leaking))], message)


class NewPairs(NewRows):
    """New pairs of texts of train."""

    method: str
    partners: int
    equivalence: str | None
    """The task's label of equal meaning, for method closure."""
    seed: int | None
    """None for method neighbours, which is deterministic."""
    launcher: Any = pydantic.Field(exclude=True)

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Find candidates for every row of train, and write the fresh ones."""
        task, source, pairs = self.task, split_file(inputs, "train"), context.work / "candidates.parquet"
        label = task.labels.index(self.equivalence) if self.equivalence else None
        held_out = held_out_files(inputs["splits"], task)
        work = functools.partial(open_pairs, self.method, self.partners, self.seed or 0, label, source, held_out)
        map_parts(source, pairs, work, self.launcher, context.name, context.work)
        with at_once():
            message = f"new pairs from {count_rows(source):,} rows"
            return self._write(out, inputs, read_split(source), read_row_groups(pairs), message)


class EditedRows(NewRows):
    """Rows of train with randomly edited words, without labels."""

    variants: int
    least_words: int
    seed: int

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the fresh edited rows."""
        with at_once():
            train = read_split(split_file(inputs, "train"))
            edited = edited_rows(train, self.variants, self.least_words, self.seed)
            return self._write(out, inputs, train, edited, f"edited rows from {len(train):,}")


class RowsOfFile(NewRows):
    """Rows of the user's file, without labels."""

    file: Path = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the splits and the file."""
        return {**super().inputs(paths), "file": Artifact.of_file(self.file)}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the fresh rows; single texts must not be part of a held-out text."""
        task, file = self.task, inputs["file"]
        # The file has a header line and all its rows are used, even if the task's files differ in this.
        read = {"source": task.source.model_copy(update={"header": (), "where": {}})}
        kind = kind_of(file)
        if kind in TABLES:
            read["columns"] = text_columns(file, column_names(file, kind), task)
        with at_once():
            rows = read_source(file, task.model_copy(update=read), labelled=False)
            return self._write_texts(out, inputs, rows, f"in {file}") | {"file": file.name}


class TextsOfTasks(NewRows):
    """Texts of other tasks' train rows, without labels. A task of single texts reads both texts of a pair."""

    tasks: tuple[str, ...]
    """Names of the tasks; their splits are inputs."""
    others: tuple[Task, ...] = pydantic.Field(exclude=True)

    def inputs(self, paths: Workspace) -> dict[str, Artifact]:
        """Return the splits of all tasks."""
        return super().inputs(paths) | {f"splits of {other.name}": find_splits(paths, other) for other in self.others}

    def run(self, inputs: Inputs, out: Path, context: Context) -> dict[str, Any]:
        """Write the fresh rows; single texts must not be part of a held-out text."""
        first: list[str] = []
        second: list[str] | None = [] if self.task.pair else None
        for other in self.others:
            columns = read_split(inputs[f"splits of {other.name}"] / "train.parquet").sentences()
            if second is not None:
                second += columns.pop()
            first += [text for column in columns for text in column]
        with at_once():
            rows = Split(first, second, np.empty(0), np.empty(0))
            return self._write_texts(out, inputs, rows, f"of {', '.join(self.tasks)}")
