"""Downloads from a real local server, resumed and checked; archives unpacked safely, whole or not at all."""

import contextlib
import functools
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tiny

from common.data import archives, download
from common.data.archives import unpack_member
from common.data.download import fetch
from common.data.prepare import prepare
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files; `half.zip` always breaks off, and with `ranges` on, files of `served` in parts, cut on demand."""

    ranges, cuts, asked = False, [], []

    def do_GET(self):
        Handler.asked.append(self.headers.get("Range"))
        if self.path == "/half.zip":
            # Half of what was promised, then the connection closes.
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 500)
        elif self.path == "/big.bin":
            self.send_part(Path(self.translate_path(self.path)).read_bytes())
        else:
            super().do_GET()

    def send_part(self, content):
        """A server with ETags, that resumes where it can, and cuts the connection where a test asks."""
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        start = 0
        if Handler.ranges and self.headers.get("If-Range") == tag:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : Handler.cuts.pop(0) if Handler.cuts else None])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """(address, folder served)."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    Handler.ranges, Handler.cuts, Handler.asked = False, [], []
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
def test_an_incomplete_download_is_refused(server, tmp_path, name):
    address, _ = server
    with pytest.raises(UserError, match=f"{name}.*--data-dir|checksum differs"):
        fetch(f"{address}/{name}", hashlib.sha256(b"x" * 1000).hexdigest(), tmp_path / "downloads")
    assert not (tmp_path / "downloads" / name).exists()


@pytest.fixture
def big(server):
    """(address, content) of a file of some megabytes."""
    address, folder = server
    content = np.random.default_rng(1).bytes(3_000_000)
    (folder / "big.bin").write_bytes(content)
    return f"{address}/big.bin", content


def sha256_of(content):
    return hashlib.sha256(content).hexdigest()


def test_a_cut_connection_is_taken_up_where_it_broke_off(big, tmp_path):
    address, content = big
    Handler.ranges, Handler.cuts = True, [1_500_000, 2_500_000]
    assert fetch(address, sha256_of(content), tmp_path).read_bytes() == content
    assert Handler.asked[0] is None
    assert [int(asked[6:-1]) > 0 for asked in Handler.asked[1:]] == [True, True]
    assert {p.name for p in tmp_path.iterdir() if p.is_file()} == {"big.bin"}


def test_a_stopped_download_resumes_with_the_next_command(big, tmp_path, monkeypatch):
    address, content = big
    Handler.ranges = True
    with monkeypatch.context() as patch:
        patch.setattr(download, "_CHUNK_BYTES", 1_000_000)
        patch.setattr(download, "counter", stopping_counter)
        with pytest.raises(KeyboardInterrupt):
            fetch(address, sha256_of(content), tmp_path)
    assert (tmp_path / "big.bin.partial").stat().st_size == 1_000_000
    assert not (tmp_path / "big.bin").exists()
    assert fetch(address, sha256_of(content), tmp_path).read_bytes() == content
    assert Handler.asked == [None, "bytes=1000000-"]


@contextlib.contextmanager
def stopping_counter(*_, **__):
    def advance(done):
        raise KeyboardInterrupt

    yield advance


def test_a_server_without_ranges_starts_again(big, tmp_path):
    address, content = big
    Handler.cuts = [1_500_000]
    assert fetch(address, sha256_of(content), tmp_path).read_bytes() == content


def test_a_file_that_changed_on_the_server_is_not_patched_together(big, tmp_path, server):
    address, content = big
    Handler.ranges, Handler.cuts = True, [1_500_000, 0]
    with pytest.raises(UserError, match="cannot be downloaded"):
        fetch(address, sha256_of(content), tmp_path)
    (server[1] / "big.bin").write_bytes(content[::-1])
    assert fetch(address, sha256_of(content[::-1]), tmp_path).read_bytes() == content[::-1]


def test_a_server_that_always_breaks_off_is_given_up(big, tmp_path):
    address, content = big
    Handler.cuts = [1_500_000] * 50
    with pytest.raises(UserError, match="cannot be downloaded"):
        fetch(address, sha256_of(content), tmp_path)
    assert len(Handler.asked) == 2


def test_without_a_published_checksum_that_of_the_first_download_counts(big, tmp_path, server):
    address, content = big
    path = fetch(address, None, tmp_path)
    assert (tmp_path / "big.bin.sha256").read_text().strip() == sha256_of(content)
    (server[1] / "big.bin").unlink()
    assert fetch(address, None, tmp_path) == path
    path.write_bytes(content[:-1])
    with pytest.raises(UserError, match="changed since it was downloaded"):
        fetch(address, None, tmp_path)
    path.unlink()
    (server[1] / "big.bin").write_bytes(content[::-1])
    with pytest.raises(UserError, match="checksum differs"):
        fetch(address, None, tmp_path)


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
def test_flipped_bytes_in_a_zip(tmp_path, place):
    zip_of(tmp_path / "x.zip", {"X/train.tsv": "".join(map(str, range(5000)))})
    damaged = bytearray((tmp_path / "x.zip").read_bytes())
    damaged[place : place + 40] = bytes(byte ^ 0xFF for byte in damaged[place : place + 40])
    (tmp_path / "x.zip").write_bytes(damaged)
    (tmp_path / "train.tsv").write_text("old")
    with pytest.raises(UserError, match=r"x\.zip: damaged or truncated"):
        unpack_member(tmp_path / "x.zip", "X/train.tsv", tmp_path / "train.tsv")
    assert (tmp_path / "train.tsv").read_text() == "old"


def tar_of(path, *members):
    """A tar.gz of (TarInfo, content) pairs."""
    with tarfile.open(path, "w:gz") as packed:
        for info, content in members:
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))


def entry(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_one_member_of_a_tar_is_unpacked_and_no_other(tmp_path):
    evil = [(entry("../../evil"), b"no"), (entry("/tmp/evil"), b"no")]
    tar_of(tmp_path / "x.tar.gz", *evil, (entry("roberta.base/model.pt"), b"weights"))
    unpack_member(tmp_path / "x.tar.gz", "roberta.base/model.pt", tmp_path / "out" / "model.pt")
    assert (tmp_path / "out" / "model.pt").read_bytes() == b"weights"
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["model.pt", "x.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_not_a_plain_file_is_refused(tmp_path, kind):
    tar_of(tmp_path / "x.tar.gz", (entry("m/model.pt", kind, "/etc/passwd"), b""))
    with pytest.raises(UserError, match="is not a plain file"):
        unpack_member(tmp_path / "x.tar.gz", "m/model.pt", tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()


def test_a_tar_without_the_member_too_large_or_damaged(tmp_path, monkeypatch):
    tar_of(tmp_path / "x.tar.gz", (entry("m/model.pt"), np.random.default_rng(1).bytes(50_000)))
    with pytest.raises(UserError, match=r"holds no m/dict\.txt"):
        unpack_member(tmp_path / "x.tar.gz", "m/dict.txt", tmp_path / "dict.txt")
    with monkeypatch.context() as patch:
        patch.setattr(archives, "MAX_MEMBER_BYTES", 1000)
        with pytest.raises(UserError, match="larger than 1000 bytes"):
            unpack_member(tmp_path / "x.tar.gz", "m/model.pt", tmp_path / "model.pt")
    whole = (tmp_path / "x.tar.gz").read_bytes()
    for damaged in (whole[:100], whole[: len(whole) // 2], b"no archive"):
        (tmp_path / "x.tar.gz").write_bytes(damaged)
        with pytest.raises(UserError, match="damaged or truncated"):
            unpack_member(tmp_path / "x.tar.gz", "m/model.pt", tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()


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
