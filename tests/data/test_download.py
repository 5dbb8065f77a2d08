"""Downloads from a real local server, resumed and checked."""

import contextlib
import functools
import hashlib
import http.server
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import tiny
from urllib3.util import Retry

from common.data import download
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
    monkeypatch.setattr("urllib3.util.Retry", lambda **given: Retry(**{**given, "backoff_factor": 0}))
    Handler.ranges, Handler.cuts, Handler.asked = False, [], []
    folder = tmp_path / "served"
    folder.mkdir()
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", folder
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def big(server):
    """(address, content) of a file of some megabytes."""
    address, folder = server
    content = np.random.default_rng(1).bytes(3_000_000)
    (folder / "big.bin").write_bytes(content)
    return f"{address}/big.bin", content


def sha256_of(content):
    return hashlib.sha256(content).hexdigest()


def test_a_file_with_the_right_checksum_is_kept_and_another_one_is_fetched_again(server, tmp_path):
    address, folder = server
    (folder / "x.zip").write_bytes(b"content")
    downloads = tmp_path / "downloads"
    with pytest.raises(UserError, match="checksum differs"):
        fetch(f"{address}/x.zip", "0" * 64, downloads)
    assert not [path for path in downloads.rglob("*") if path.is_file()]
    (downloads / "x.zip").write_bytes(b"half")
    assert fetch(f"{address}/x.zip", sha256_of(b"content"), downloads) == downloads / "x.zip"
    assert (downloads / "x.zip").read_bytes() == b"content"
    (folder / "x.zip").unlink()
    assert fetch(f"{address}/x.zip", sha256_of(b"content"), downloads) == downloads / "x.zip"


@pytest.mark.parametrize("address", ["{}/half.zip", "{}/none.zip", "http://127.0.0.1:9/x.zip"])
def test_an_incomplete_download_is_refused(server, tmp_path, address):
    address = address.format(server[0])
    with pytest.raises(UserError, match=f"{address}: cannot be downloaded.*--data-dir|checksum differs"):
        fetch(address, sha256_of(b"x" * 1000), tmp_path / "downloads")
    assert not list((tmp_path / "downloads").glob("*.zip"))


def test_a_cut_connection_is_resumed_from_the_last_byte(big, tmp_path):
    address, content = big
    Handler.ranges, Handler.cuts = True, [1_500_000, 2_500_000]
    assert fetch(address, sha256_of(content), tmp_path).read_bytes() == content
    assert Handler.asked[0] is None
    assert [int(asked[6:-1]) > 0 for asked in Handler.asked[1:]] == [True, True]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"big.bin"}


def test_a_stopped_download_resumes_with_the_next_command(big, tmp_path, monkeypatch):
    @contextlib.contextmanager
    def stopping_counter(*_, **__):
        def advance(done):
            raise KeyboardInterrupt

        yield advance

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


def zipped_glue(folder, source, name="SST-2", file="SST-2"):
    folder.mkdir(exist_ok=True)
    return Path(shutil.make_archive(str(folder / file), "zip", source, name))


@pytest.mark.parametrize(("task", "name", "file"), [("sst-2", "SST-2", "SST-2"), ("qqp", "QQP", "QQP-clean")])
def test_data_dir_takes_zips_as_well_as_folders(tmp_path, glue, task, name, file):
    zipped_glue(tmp_path / "zips", glue, name, file)
    from_zip, from_folder, from_inner_folder = (
        prepare(Workspace(tmp_path / str(i)), load_task(task), data_dir, seed=1)
        for i, data_dir in enumerate((tmp_path / "zips", glue, glue / name))
    )
    for name, split in from_zip.items():
        assert split.fingerprint() == from_folder[name].fingerprint() == from_inner_folder[name].fingerprint()


@pytest.mark.parametrize(
    ("task", "folder", "message"),
    [
        ("qqp", "zips", "neither a folder QQP nor QQP"),
        ("qqp", "none", "no such folder"),
        ("sst-2", "", r"train\.tsv: no such file"),
    ],
)
def test_data_dir_without_the_files_names_what_is_missing(tmp_path, glue, task, folder, message):
    zipped_glue(tmp_path / "zips", glue)
    with pytest.raises(UserError, match=message):
        prepare(Workspace(tmp_path / "a"), load_task(task), tmp_path / folder, seed=1)


def test_from_the_official_address_to_splits(server, tmp_path, glue):
    address, folder = server
    sha = sha256_of(zipped_glue(folder, glue).read_bytes())
    task = load_task("sst-2")
    source = task.source.model_copy(update={"url": f"{address}/SST-2.zip", "sha256": sha})
    splits = prepare(Workspace(tmp_path / "a"), task.model_copy(update={"source": source}), None, seed=1)
    assert len(splits["test"]) == len(tiny.sentences(240)) - 180
