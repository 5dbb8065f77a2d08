"""Long work over a split file, part by part: in constant memory, resumable, and spread over workers.

A part is a Parquet row group of the source. The result is written to a shard of its own, whole or not at all;
when all shards are there they are joined. Parts know nothing of each other, so that the same bytes come out however
many workers there are and however often the work was stopped.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from common.data.split import ROW_GROUP_ROWS, Split, read_metadata, read_row_group
from common.errors import UserError
from common.launch.dispatch import JobFunction, JobT
from common.launch.launcher import Launcher
from common.progress import Advance, counter, nothing, say
from common.store.files import whole_file

PartFunction = Callable[[Split, int, Advance], pa.Table]
"""Rows of a part, number of its first row, callback for progress -> the rows of its shard."""


class Work(Protocol):
    """What is done to every part. It travels to workers: a frozen dataclass of names and settings, never of models."""

    def open(self) -> PartFunction:
        """Load what the work needs, once in a process."""
        ...


@dataclasses.dataclass(frozen=True)
class Part:
    """One part's work, as a worker gets it."""

    work: Work
    source: Path
    number: int
    first_row: int
    rows: int
    shard: Path


def map_parts(source: Path, target: Path, work: Work, launcher: Launcher, label: str, shards: Path) -> None:
    """Write `target`: `work` done to every part of `source`, joined in order.

    shards: folder for finished parts, which belongs to this work alone: shards of a stopped attempt are used.
    """
    parts = [
        Part(work, source, number, first, rows, shards / f"{number:05d}.parquet")
        for number, (first, rows) in enumerate(parts_of(source))
    ]
    run_missing(run_part, parts, [not read_metadata(part.shard) for part in parts], launcher, label)
    _join([part.shard for part in parts], target)


def parts_of(source: Path) -> list[tuple[int, int]]:
    """First row and number of rows of each part of a split file. Raises UserError when there is none."""
    metadata = pq.read_metadata(source)
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if not sum(rows):
        raise UserError(f"{source}: no rows in it")
    return list(zip(itertools.accumulate(rows, initial=0), rows, strict=False))


def run_missing(
    function: JobFunction[JobT], parts: Sequence[JobT], missing: Sequence[bool], launcher: Launcher, label: str
) -> None:
    """Do the missing parts under a progress bar that counts the others as done."""
    total, waiting = sum(part.rows for part in parts), list(itertools.compress(parts, missing))
    done = total - sum(part.rows for part in waiting)
    if done:
        say(f"{label}: {done:,} of {total:,} rows are there from before")
    try:
        with counter(label, total, done) as advance:
            launcher.run(function, waiting, advance)
    finally:
        opened.cache_clear()


def run_part(part: Part, advance: Advance = nothing) -> None:
    """Do one part's work and write its shard."""
    table = opened(part.work)(read_row_group(part.source, part.number), part.first_row, advance)
    with whole_file(part.shard) as partial:
        pq.write_table(table.replace_schema_metadata({"part": str(part.number)}), partial, compression="zstd")


@functools.lru_cache(maxsize=1)
def opened(work: Any) -> Any:
    """Return `work.open()`, called once in a process for all parts of the same work."""
    return work.open()


def _join(shards: list[Path], target: Path) -> None:
    schema = pq.read_schema(shards[0]).with_metadata({})
    with whole_file(target) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for table in _regrouped(pq.read_table(shard) for shard in shards):
            writer.write_table(table.replace_schema_metadata({}).combine_chunks())


def _regrouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of ROW_GROUP_ROWS, the last one shorter: shards may hold any number of rows."""
    pending: pa.Table | None = None
    for table in tables:
        pending = table if pending is None else pa.concat_tables([pending, table])
        while pending.num_rows >= ROW_GROUP_ROWS:
            yield pending.slice(0, ROW_GROUP_ROWS)
            pending = pending.slice(ROW_GROUP_ROWS)
    if pending is not None and pending.num_rows:
        yield pending
