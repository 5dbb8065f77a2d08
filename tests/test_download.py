"""Downloads from a real local server, and the user's own zips: checked, whole or not at all, unpacked safely."""

import functools
import hashlib
import http.server
import threading
import zipfile

import pytest
import tiny

from common.download import fetch, unpack_member
from common.errors import UserError
from common.prepare import prepare
from common.tasks import load_task
from common.workspace import Workspace


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/half.zip":
            super().do_GET()
            return
        # Half of what was promised, then the connection closes.
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 500)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """(address, folder served)."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", folder
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def zip_of(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_with_the_right_checksum_is_kept_and_not_fetched_again(server, tmp_path):
    address, folder = server
    sha = zip_of(folder / "x.zip", {"X/train.tsv": "text"})
    path = fetch(f"{address}/x.zip", sha, tmp_path / "downloads")
    assert path.read_bytes() == (folder / "x.zip").read_bytes()
    (folder / "x.zip").unlink()
    assert fetch(f"{address}/x.zip", sha, tmp_path / "downloads") == path


def test_a_wrong_checksum_is_refused_and_nothing_is_left(server, tmp_path):
    address, folder = server
    zip_of(folder / "x.zip", {"X/train.tsv": "text"})
    with pytest.raises(UserError, match="checksum differs"):
        fetch(f"{address}/x.zip", "0" * 64, tmp_path / "downloads")
    assert not [p for p in (tmp_path / "downloads").rglob("*") if p.is_file()]


def test_a_damaged_earlier_download_is_fetched_again(server, tmp_path):
    address, folder = server
    sha = zip_of(folder / "x.zip", {"X/train.tsv": "text"})
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "x.zip").write_bytes(b"half")
    assert fetch(f"{address}/x.zip", sha, tmp_path / "downloads").read_bytes() == (folder / "x.zip").read_bytes()


@pytest.mark.parametrize("name", ["half.zip", "none.zip"])
def test_half_a_download_is_no_download(server, tmp_path, name):
    address, _ = server
    with pytest.raises(UserError, match=f"{name}.*--data-dir|checksum differs"):
        fetch(f"{address}/{name}", hashlib.sha256(b"x" * 1000).hexdigest(), tmp_path / "downloads")
    assert not [p for p in (tmp_path / "downloads").rglob("*") if p.is_file()]


def test_a_server_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(UserError, match="cannot be downloaded"):
        fetch("http://127.0.0.1:9/x.zip", "0" * 64, tmp_path)


def test_one_member_is_unpacked_and_no_other(tmp_path):
    zip_of(tmp_path / "x.zip", {"X/train.tsv": "text", "../../evil": "no", "/abs": "no"})
    unpack_member(tmp_path / "x.zip", "X/train.tsv", tmp_path / "out" / "deep" / "train.tsv")
    assert (tmp_path / "out" / "deep" / "train.tsv").read_text() == "text"
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["train.tsv", "x.zip"]


def test_a_zip_without_the_member(tmp_path):
    zip_of(tmp_path / "x.zip", {"X/dev.tsv": "text"})
    with pytest.raises(UserError, match=r"x\.zip: holds no X/train\.tsv"):
        unpack_member(tmp_path / "x.zip", "X/train.tsv", tmp_path / "train.tsv")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_zip(tmp_path, share):
    zip_of(tmp_path / "x.zip", {"X/train.tsv": "".join(map(str, range(5000)))})
    whole = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UserError, match=r"x\.zip: damaged or truncated"):
        unpack_member(tmp_path / "x.zip", "X/train.tsv", tmp_path / "train.tsv")
    assert not (tmp_path / "train.tsv").exists()


@pytest.mark.parametrize("place", [60, 300, 1000])
def test_flipped_bytes_inside_a_zip(tmp_path, place):
    zip_of(tmp_path / "x.zip", {"X/train.tsv": "".join(map(str, range(5000)))})
    damaged = bytearray((tmp_path / "x.zip").read_bytes())
    damaged[place : place + 40] = bytes(byte ^ 0xFF for byte in damaged[place : place + 40])
    (tmp_path / "x.zip").write_bytes(damaged)
    (tmp_path / "train.tsv").write_text("old")
    with pytest.raises(UserError, match=r"x\.zip: damaged or truncated"):
        unpack_member(tmp_path / "x.zip", "X/train.tsv", tmp_path / "train.tsv")
    assert (tmp_path / "train.tsv").read_text() == "old"


def zipped_glue(folder, source, name="SST-2", file="SST-2.zip"):
    folder.mkdir()
    members = {f"{name}/{path.name}": path.read_bytes() for path in (source / name).iterdir()}
    return zip_of(folder / file, members)


@pytest.mark.parametrize(("task", "name", "file"), [("sst-2", "SST-2", "SST-2.zip"), ("qqp", "QQP", "QQP-clean.zip")])
def test_data_dir_takes_zips_as_well_as_folders(tmp_path, glue, task, name, file):
    zipped_glue(tmp_path / "zips", glue, name, file)
    from_zip = prepare(Workspace(tmp_path / "a"), load_task(task), tmp_path / "zips", seed=1)
    from_folder = prepare(Workspace(tmp_path / "b"), load_task(task), glue, seed=1)
    inside_folder = prepare(Workspace(tmp_path / "c"), load_task(task), glue / name, seed=1)
    for split in from_folder:
        assert from_zip[split].fingerprint() == from_folder[split].fingerprint() == inside_folder[split].fingerprint()


def test_data_dir_without_the_tasks_zip_says_what_it_looked_for(tmp_path, glue):
    zipped_glue(tmp_path / "zips", glue)
    with pytest.raises(UserError, match=r"neither a folder QQP nor QQP"):
        prepare(Workspace(tmp_path / "a"), load_task("qqp"), tmp_path / "zips", seed=1)


def test_data_dir_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        prepare(Workspace(tmp_path / "a"), load_task("qqp"), tmp_path / "none", seed=1)


def test_data_dir_without_files_names_the_missing_one(tmp_path):
    with pytest.raises(UserError, match=r"train\.tsv: no such file"):
        prepare(Workspace(tmp_path / "a"), load_task("sst-2"), tmp_path, seed=1)


def test_from_the_official_address_to_splits(server, tmp_path, glue):
    address, folder = server
    sha = zipped_glue(tmp_path / "zips", glue)
    (tmp_path / "zips" / "SST-2.zip").rename(folder / "SST-2.zip")
    task = load_task("sst-2")
    source = task.source.model_copy(update={"url": f"{address}/SST-2.zip", "sha256": sha})
    splits = prepare(Workspace(tmp_path / "a"), task.model_copy(update={"source": source}), None, seed=1)
    assert len(splits["test"]) == len(tiny.sentences(240)) - 180
