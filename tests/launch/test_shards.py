"""Long work in parts: the same bytes with any workers, after a stop, and after the death of a worker."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
from shard_work import Shout

import common.data.split
import common.launch.dispatch
import common.launch.shards
from common.data.split import Split, read_split, write_split
from common.errors import UserError
from common.launch.launcher import Launcher
from common.launch.shards import map_parts

ROWS, PART = 57, 10


@pytest.fixture(autouse=True)
def source(tmp_path, monkeypatch):
    monkeypatch.setattr(common.data.split, "ROW_GROUP_ROWS", PART)
    monkeypatch.setattr(common.launch.shards, "ROW_GROUP_ROWS", PART)
    monkeypatch.setenv("PYTHONPATH", str(tiny.SUPPORT))
    (tmp_path / "trace").mkdir()
    rows = Split([f"row {i}" for i in range(ROWS)], None, np.arange(ROWS) % 2, np.arange(ROWS))
    write_split(tmp_path / "source.parquet", rows, {})
    return tmp_path / "source.parquet"


def mapped(source, launcher=None, target="target", **work):
    """Bytes of the target, and the work that wrote it."""
    trace = source.parent / "trace"
    for path in trace.glob("[op]*"):
        path.unlink()
    shout = Shout(trace, **work)
    path = source.parent / f"{target}.parquet"
    map_parts(source, path, shout.open, launcher or Launcher(), "shouting", source.parent / f"{target}.work")
    return path.read_bytes(), shout


def test_every_part_is_done_once_and_joined_in_order(source):
    _, work = mapped(source)
    assert work.parts_done() == list(range(0, ROWS, PART))
    assert len(list(work.trace.glob("opened-*"))) == 1
    rows = read_split(source.parent / "target.parquet")
    assert rows.source_rows.tolist() == [i for i in range(ROWS) for _ in range(i % 3)]
    assert rows.sentence1 == [f"ROW {i}!" for i in rows.source_rows]


def test_the_result_is_in_parts_again_whatever_shards_held(source):
    mapped(source)
    metadata = pq.read_metadata(source.parent / "target.parquet")
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert rows == [PART] * (ROWS // PART) + [ROWS % PART]


@pytest.mark.slow
def test_other_workers_write_the_same_bytes_and_one_that_dies_costs_only_its_part(source):
    expected, _ = mapped(source)
    result, work = mapped(source, Launcher("processes", 3), target="other", trouble="killed")
    assert (work.trace / "died").exists()
    assert result == expected
    assert work.parts_done() == sorted([*range(0, ROWS, PART), 20])
    assert 2 <= len(list(work.trace.glob("opened-*"))) <= 4


def test_a_stopped_run_resumes(source):
    expected, _ = mapped(source, target="expected")
    with pytest.raises(KeyboardInterrupt):
        mapped(source, trouble="interrupted")
    assert not (source.parent / "target.parquet").exists()
    result, work = mapped(source)
    assert work.parts_done() == [20, 30, 40, 50]
    assert result == expected
    again, work = mapped(source)  # all shards exist
    assert (again, work.parts_done()) == (expected, [])


def test_a_half_written_shard_is_written_again(source):
    expected, _ = mapped(source, target="expected")
    with pytest.raises(KeyboardInterrupt):
        mapped(source, trouble="interrupted")
    shard = source.parent / "target.work" / "00000.parquet"
    shard.write_bytes(shard.read_bytes()[:50])
    result, work = mapped(source)
    assert work.parts_done() == [0, 20, 30, 40, 50]
    assert result == expected


def test_the_same_work_for_another_result_is_opened_again(source):
    _, first = mapped(source)
    _, second = mapped(source, target="second")
    assert first == second
    assert len(list(second.trace.glob("opened-*"))) == 1


def test_no_rows_are_named(source):
    write_split(source, Split([], None, np.zeros(0, np.int64), np.zeros(0, np.int64)), {})
    with pytest.raises(UserError, match=r"source\.parquet: no rows"):
        mapped(source)
