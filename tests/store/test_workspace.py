"""Files are whole or not there: a failure while writing leaves the old file, and nothing is taken for finished."""

import contextlib
import resource

import numpy as np
import pytest
import torch

from common.data.split import Split, read_split, write_split
from common.errors import UserError
from common.store.files import (
    file_fingerprint,
    fingerprint,
    read_json,
    whole_file,
    whole_folder,
    write_json,
    write_text,
)
from common.store.workspace import Workspace, default_root
from common.training.checkpoint import load_tensors, save_tensors


@contextlib.contextmanager
def full_disk(limit=4096):
    """The system itself refuses to write more than `limit` bytes to a file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fail_within(context, write, error):
    with context as partial:
        write(partial)
        raise error


def rows(n):
    # Random words do not compress below the limit.
    words = [" ".join(map(str, line)) for line in np.random.default_rng(n).integers(0, 10**9, (n, 8))]
    return Split(words, None, np.zeros(n, np.int64), np.arange(n))


WRITERS = {
    "text": lambda path, n: write_text(path, "x" * n * 100),
    "json": lambda path, n: write_json(path, {"x": "x" * n * 100}),
    "split": lambda path, n: write_split(path, rows(n), {}),
    "tensors": lambda path, n: save_tensors(path, {"x": torch.zeros(n, 100)}, {}),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_leaves_the_old_file_whole(tmp_path, kind):
    path = tmp_path / "folder" / "file"
    WRITERS[kind](path, 1)
    old = path.read_bytes()
    with full_disk(), pytest.raises((OSError, UserError)):
        WRITERS[kind](path, 2000)
    assert path.read_bytes() == old
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_an_exception_while_writing_leaves_the_old_file_whole(tmp_path, error):
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(error):
        fail_within(whole_file(path), lambda partial: partial.write_text("half of the n"), error)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_no_file_appears_before_it_is_whole(tmp_path):
    path = tmp_path / "file"
    with whole_file(path) as partial:
        partial.write_text("new")
        assert not path.exists()
        assert partial.parent == path.parent  # the same file system, so that the move is atomic
    assert path.read_text() == "new"


def test_a_folder_is_replaced_whole(tmp_path):
    folder = tmp_path / "model"
    with whole_folder(folder) as partial:
        (partial / "a").write_text("1")
    with pytest.raises(RuntimeError):
        fail_within(whole_folder(folder), lambda partial: (partial / "b").write_text("2"), RuntimeError)
    assert [p.name for p in folder.iterdir()] == ["a"]
    with whole_folder(folder) as partial:
        (partial / "c").write_text("3")
    assert [p.name for p in folder.iterdir()] == ["c"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "../up"])
def test_a_model_name_is_one_word(tmp_path, name):
    with pytest.raises(UserError, match="is not a name for a model"):
        Workspace(tmp_path).model("sst-2", name)


def test_the_environment_names_the_workspace(monkeypatch):
    monkeypatch.setenv("FEATHERWEIGHT_HOME", "/somewhere/else")
    assert str(default_root()) == "/somewhere/else"
    monkeypatch.delenv("FEATHERWEIGHT_HOME")
    assert str(default_root()) == "workspace"


def test_a_workspace_creates_nothing_until_something_is_written(tmp_path):
    paths = Workspace(tmp_path / "w")
    paths.split("t", "train"), paths.model("t", "m"), paths.logits("t", "m", "train"), paths.experiment("e")
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("text", [b"{", b"", b"\xff\xfe"])
def test_malformed_json_is_named(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(UserError, match=r"x\.json: not valid JSON"):
        read_json(tmp_path / "x.json")


def test_fingerprints():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])
    assert len(fingerprint("x")) == 16


def test_a_files_fingerprint_is_of_its_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert file_fingerprint(tmp_path / "a") == file_fingerprint(tmp_path / "b")
    (tmp_path / "b").write_bytes(b"2")
    assert file_fingerprint(tmp_path / "a") != file_fingerprint(tmp_path / "b")


def test_tensors_and_metadata_come_back(tmp_path):
    tensors = {"a": torch.arange(6).view(2, 3).T, "b": torch.tensor(1.5), "c": torch.zeros(0)}
    save_tensors(tmp_path / "x", tensors, {"n": 1, "nested": {"f": 0.1}})
    back, metadata = load_tensors(tmp_path / "x")
    assert metadata == {"n": 1, "nested": {"f": 0.1}}
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("cut", [0, 4, 30, -1])
def test_truncated_tensors_are_named(tmp_path, cut):
    save_tensors(tmp_path / "x", {"a": torch.zeros(100)}, {})
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:cut])
    with pytest.raises(UserError, match="x: damaged or truncated"):
        load_tensors(tmp_path / "x")


def test_read_split_of_another_kind_of_table_is_refused(prepared):
    with pytest.raises(UserError, match="not a split file"):
        read_split(prepared / "data/sst-2/logits/tiny-bert/train.parquet")
