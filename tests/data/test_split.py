"""Split files: they come back as they were written, and a missing or damaged one is named."""

import errno

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.data.split import Split, load_split, read_metadata, read_split, write_split
from common.data.tasks import load_task
from common.data.text import near_key, normalise, split_words
from common.errors import UserError
from common.store.workspace import Workspace


def example(pair=False):
    return Split(["a", "", "c"], ["x", "y", ""] if pair else None, np.array([0, -1, 1]), np.array([0, 1, 7]))


@pytest.mark.parametrize("pair", [False, True])
def test_a_split_comes_back_as_it_was_written(tmp_path, pair):
    path, split = tmp_path / "s.parquet", example(pair)
    write_split(path, split, {"task": "t"})
    back = read_split(path)
    assert (back.sentence1, back.sentence2) == (split.sentence1, split.sentence2)
    assert (back.labels == split.labels).all()
    assert (back.source_rows == split.source_rows).all()
    assert back.fingerprint() == split.fingerprint()
    assert read_metadata(path) == {"task": "t"}


def test_the_fingerprint_sees_text_order_and_labels():
    split = example()
    assert split.fingerprint() != split.take(np.array([1, 0, 2])).fingerprint()
    other = Split(split.sentence1, None, np.array([1, -1, 1]), split.source_rows)
    assert other.fingerprint() != split.fingerprint()
    assert other.text_fingerprint == split.text_fingerprint
    assert example(pair=True).text_fingerprint != split.text_fingerprint


def test_a_missing_file_is_named_alone_where_no_command_makes_it(tmp_path):
    with pytest.raises(UserError, match=r"s\.parquet: no such file$"):
        read_split(tmp_path / "s.parquet")


def test_a_missing_split_names_the_command(tmp_path):
    with pytest.raises(UserError, match=r"run: python preprocess\.py --task sst-2"):
        load_split(Workspace(tmp_path), load_task("sst-2"), "train")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match="not a split file"):
        read_split(tmp_path / "other.parquet", "hint")


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_a_damaged_split_file_is_named(tmp_path, share):
    path = tmp_path / "train.parquet"
    write_split(path, example(), {})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UserError, match=r"train\.parquet: damaged, or not a Parquet file"):
        read_split(path)


def test_a_damaged_footer_is_reported_like_other_damage(tmp_path):
    path = tmp_path / "train.parquet"
    write_split(path, example(), {"key": "1"})
    whole = bytearray(path.read_bytes())
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    whole[footer : footer + 32] = bytes(32)
    path.write_bytes(whole)
    assert read_metadata(path) == {}
    with pytest.raises(UserError, match=r"train\.parquet: damaged, or not a Parquet file"):
        read_split(path)


def test_the_reason_why_a_file_cannot_be_read_is_given(tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, f"[Errno 13] Failed to open local file '{path}'")

    monkeypatch.setattr(pq, "read_table", refused)
    with pytest.raises(UserError, match=r"train\.parquet: cannot be read \(Permission denied\)$"):
        read_split(tmp_path / "train.parquet", "hint")


def test_words():
    assert split_words("It's  FUN!") == ["it's", "fun", "!"]
    assert near_key("It's FUN , really !") == near_key("it's fun, REALLY")
    assert normalise("\u2028 a\tb\x85c ") == "a b c"
