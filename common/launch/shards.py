"""Long work over a split file, one row group at a time: in constant memory, resumable, and spread over workers.

The result of each Parquet row group of the source (a part) is written to a shard, whole or not at all; when all shards
exist they are joined. Parts do not depend on each other, so the bytes do not depend on the number of workers and stops.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from common.data.split import ROW_GROUP_ROWS, Split, read_metadata, read_row_group
from common.errors import UserError
from common.launch.launcher import Launcher
from common.progress import Advance, counter, say
from common.store.files import whole_file

PartFunction = Callable[[Split, int, Advance], pa.Table]
"""Rows of a part, number of its first row, callback for progress -> the rows of its shard."""
Work = Callable[[], PartFunction]
"""The work on every part: loads the models and other data that it needs. It is pickled for workers, without these."""
_opened: dict[Path, PartFunction] = {}
"""Folder of shards -> its work, loaded once per process."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One part and its work, as a worker gets it."""

    work: Work
    source: Path
    number: int
    first_row: int
    rows: int
    shard: Path


def map_parts(source: Path, target: Path, work: Work, launcher: Launcher, label: str, shards: Path) -> None:
    """Write the results of `work` on every part of `source`, in order, to `target`.

    shards: folder for finished parts, used by this work alone: shards of a stopped attempt are reused.
    """
    parts = [
        Part(work, source, number, first, rows, shards / f"{number:05d}.parquet")
        for number, (first, rows) in enumerate(parts_of(source))
    ]
    missing = [part for part in parts if not read_metadata(part.shard)]
    total = sum(part.rows for part in parts)
    done = total - sum(part.rows for part in missing)
    if done:
        say(f"{label}: {done:,} of {total:,} rows are already done")
    try:
        with counter(label, total, done) as advance:
            launcher.run(run_part, missing, advance)
    finally:
        _opened.clear()
    write_row_groups(target, pq.read_schema(parts[0].shard), (pq.read_table(part.shard) for part in parts))


def parts_of(source: Path) -> list[tuple[int, int]]:
    """Return the first row and number of rows of each part of a split file. Raises UserError if it has no rows."""
    metadata = pq.read_metadata(source)
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if not sum(rows):
        raise UserError(f"{source}: no rows")
    return list(zip(itertools.accumulate(rows, initial=0), rows, strict=False))


def run_part(part: Part, advance: Advance) -> None:
    """Run the work on one part and write its shard."""
    folder = part.shard.parent
    if folder not in _opened:
        _opened.clear()
        _opened[folder] = part.work()
    table = _opened[folder](read_row_group(part.source, part.number), part.first_row, advance)
    with whole_file(part.shard) as partial:
        pq.write_table(table.replace_schema_metadata({"part": str(part.number)}), partial, compression="zstd")


def write_row_groups(target: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    """Write the rows of all tables in row groups of ROW_GROUP_ROWS, whole or not at all."""
    with (
        whole_file(target) as partial,
        pq.ParquetWriter(partial, schema.with_metadata({}), compression="zstd") as writer,
    ):
        for table in _regrouped(tables):
            writer.write_table(table.replace_schema_metadata({}).combine_chunks())


def _regrouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in tables of ROW_GROUP_ROWS, the last one shorter: shards may have any number of rows."""
    pending: pa.Table | None = None
    for table in tables:
        pending = table if pending is None else pa.concat_tables([pending, table])
        while pending.num_rows >= ROW_GROUP_ROWS:
            yield pending.slice(0, ROW_GROUP_ROWS)
            pending = pending.slice(ROW_GROUP_ROWS)
    if pending is not None and pending.num_rows:
        yield pending
