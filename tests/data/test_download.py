"""Downloads from a real local server, resumed and checked."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tiny
from processes import wait_until
from urllib3.util import Retry

from common.data import download
from common.data.download import fetch
from common.data.prepare import prepare
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files; `half.zip` always breaks off, and with `ranges` on, files of `served` in parts, cut on demand."""

    ranges, cuts, asked, answers = False, [], [], {}

    def do_GET(self):
        Handler.asked.append(self.headers.get("Range"))
        if self.path == "/half.zip":
            # Half of what was promised, then the connection closes.
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 500)
        elif self.path in Handler.answers:
            for pause, part in Handler.answers[self.path](self):
                time.sleep(pause)
                self.wfile.write(part)
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
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[start : Handler.cuts.pop(0) if Handler.cuts else None])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """(address, folder served)."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("urllib3.util.Retry", lambda **given: Retry(**{**given, "backoff_factor": 0}))
    Handler.ranges, Handler.cuts, Handler.asked, Handler.answers = False, [], [], {}
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


def names(folder):
    """Names of the files in a folder, but for locks."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".lock")


def test_a_file_with_the_right_checksum_is_kept_and_another_one_is_fetched_again(server, tmp_path):
    address, folder = server
    (folder / "x.zip").write_bytes(b"content")
    downloads = tmp_path / "downloads"
    with pytest.raises(UserError, match="checksum differs"):
        fetch(f"{address}/x.zip", "0" * 64, downloads)
    assert names(downloads) == []
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
    assert names(tmp_path) == ["big.bin"]


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
    path.unlink()
    (server[1] / "big.bin").write_bytes(content[::-1])
    with pytest.raises(UserError, match=r"not the file that was downloaded before .*remove .*big\.bin\.sha256"):
        fetch(address, None, tmp_path)
    (tmp_path / "big.bin.sha256").unlink()
    assert fetch(address, None, tmp_path).read_bytes() == content[::-1]


@pytest.mark.parametrize("published", [True, False])
def test_a_file_that_is_damaged_later_is_downloaded_again(big, tmp_path, published, capsys):
    address, content = big
    sha256 = sha256_of(content) if published else None
    path = fetch(address, sha256, tmp_path)
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        capsys.readouterr()
        assert fetch(address, sha256, tmp_path).read_bytes() == content
        assert "big.bin: damaged, or not the expected file; downloading it again" in capsys.readouterr().err


def test_a_file_from_before_it_was_recorded_is_not_trusted(big, tmp_path):
    address, content = big
    (tmp_path / "big.bin").write_bytes(content[:1000])
    assert fetch(address, None, tmp_path).read_bytes() == content


def answer(content, status=200, pause=0.0, parts=1, **headers):
    """What the server answers: its headers, then the content in some parts."""

    def send(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        for i in range(parts):
            yield pause, content[len(content) * i // parts : len(content) * (i + 1) // parts]

    return send


def zip_bytes(**files):
    with io.BytesIO() as stream:
        with zipfile.ZipFile(stream, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(name, text)
        return stream.getvalue()


ZIP, GZIP, TEXT = zip_bytes(a="some text", b="some more"), gzip.compress(b"some text" * 100), b"some text"
DAMAGED_ZIP = ZIP.replace(b"some more", b"some moor")
HUB = {"X_Linked_Etag": f'"{sha256_of(TEXT)}"', "X_Linked_Size": "9"}
WRONG = {
    "damaged.zip": (
        answer(DAMAGED_ZIP, Content_Length=str(len(ZIP))),
        "damaged or truncated archive .*b: bad checksum",
    ),
    "cut.zip": (answer(ZIP[:-30]), "damaged or truncated archive"),
    "damaged.tar.gz": (answer(GZIP[:-8] + b"12345678"), "damaged or truncated archive"),
    "cut.tar.gz": (answer(GZIP[:-9]), "damaged or truncated archive"),
    "unknown.bin": (answer(TEXT), "neither its size nor its checksum"),
    "hub.bin": (answer(b"some tex!", **HUB), "its checksum is not that of the server"),
    "etag.bin": (answer(b"some tex!", Content_Length="9", ETag=f'"{sha256_of(TEXT)}"'), "not that of the server"),
    "short.bin": (answer(b"some", **HUB), "4 bytes of 9"),
}


@pytest.mark.parametrize("name", WRONG)
def test_without_a_published_checksum_only_a_checked_file_is_recorded(server, tmp_path, name):
    Handler.answers[f"/{name}"], message = WRONG[name]
    with pytest.raises(UserError, match=f"{name}: the download is not the expected file .*{message}.*; try again"):
        fetch(f"{server[0]}/{name}", None, tmp_path / "downloads")
    assert names(tmp_path / "downloads") == []


def test_the_checksum_of_a_hub_is_that_of_its_redirect(server, tmp_path):
    address, _ = server
    Handler.answers["/hub.bin"] = answer(b"", 302, Location="/cdn.bin", Content_Length="0", **HUB)
    Handler.answers["/cdn.bin"] = answer(b"some tex!")
    with pytest.raises(UserError, match="its checksum is not that of the server"):
        fetch(f"{address}/hub.bin", None, tmp_path)
    Handler.answers["/cdn.bin"] = answer(TEXT)
    assert fetch(f"{address}/hub.bin", None, tmp_path).read_bytes() == TEXT
    assert names(tmp_path) == ["hub.bin", "hub.bin.sha256"]


def test_a_part_that_was_not_asked_for_is_not_used(server, tmp_path):
    address, content = server[0], bytes(range(250))
    whole = {"Content_Length": "250", "ETag": '"1"'}

    def parts(handler):
        if handler.headers.get("Range") is None:
            return answer(content, **whole)(handler)
        return answer(content[50:], 206, Content_Length="200", Content_Range="bytes 50-249/250")(handler)

    Handler.answers["/x.bin"] = parts
    (tmp_path / "x.bin.partial").write_bytes(content[:100])
    (tmp_path / "x.bin.partial.etag").write_text('"1"')
    assert fetch(f"{address}/x.bin", None, tmp_path).read_bytes() == content
    assert Handler.asked == ["bytes=100-", None]


FETCH = """
import sys
from pathlib import Path
from common.cli import run_script
from common.data.download import fetch

run_script(lambda: print(fetch(sys.argv[1], None, Path(sys.argv[2]))))
"""


@pytest.fixture
def fetching(tmp_path):
    """Start a process that downloads an address."""
    processes = []

    def start(address):
        command = [sys.executable, "-c", FETCH, address, str(tmp_path / "downloads")]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, cwd=tiny.ROOT, env=tiny.environment(), **pipes))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_of_two_downloads_at_once_the_second_one_waits_and_uses_the_file(server, tmp_path, fetching):
    content, partial = np.random.default_rng(2).bytes(2_000_000), tmp_path / "downloads" / "slow.bin.partial"
    Handler.answers["/slow.bin"] = answer(content, pause=0.1, parts=60, Content_Length=str(len(content)))
    first = fetching(f"{server[0]}/slow.bin")
    wait_until(partial.exists, 60)
    second = fetching(f"{server[0]}/slow.bin")
    for process in (first, second):
        printed, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors
        assert printed == f"{tmp_path / 'downloads' / 'slow.bin'}\n"
    assert "another command is using slow.bin; waiting for it\n" in errors
    assert len(Handler.asked) == 1
    assert (tmp_path / "downloads" / "slow.bin").read_bytes() == content


@pytest.mark.slow
def test_a_killed_download_is_in_nobodys_way_and_is_resumed(server, tmp_path, fetching):
    content, partial = bytes(2_000_000), tmp_path / "downloads" / "slow.bin.partial"
    slow = {"pause": 0.1, "parts": 600, "ETag": '"1"', "Content_Length": str(len(content))}
    Handler.answers["/slow.bin"] = answer(content, **slow)
    process = fetching(f"{server[0]}/slow.bin")
    wait_until(partial.exists, 60)
    process.kill()
    process.wait()
    done = partial.stat().st_size
    rest = {"Content_Length": str(len(content) - done), "Content_Range": f"bytes {done}-1999999/2000000"}
    Handler.answers["/slow.bin"] = answer(content[done:], 206 if done else 200, **rest)
    assert fetch(f"{server[0]}/slow.bin", None, tmp_path / "downloads").read_bytes() == content


@pytest.mark.slow
def test_a_download_from_a_server_that_says_nothing_more_can_be_stopped(server, tmp_path, fetching):
    Handler.answers["/slow.bin"] = answer(bytes(1000), pause=30, parts=4, Content_Length="1000")
    process = fetching(f"{server[0]}/slow.bin")
    wait_until((tmp_path / "downloads" / "slow.bin.partial").exists, 60)
    process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    _, errors = process.communicate(timeout=25)
    assert time.monotonic() - started < 5
    assert process.returncode == 130, errors


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


@pytest.mark.parametrize("task", ["squad", "squad-2"])
def test_files_without_an_archive_are_downloaded_one_by_one(server, tmp_path, glue, task):
    address, folder = server
    task, paths = load_task(task), Workspace(tmp_path / "a")
    assert task.source.url == "https://rajpurkar.github.io/SQuAD-explorer/dataset/{file}"
    shutil.copytree(glue / task.source.folder, folder, dirs_exist_ok=True)
    source = task.source.model_copy(update={"url": f"{address}/{{file}}"})
    expected = prepare(Workspace(tmp_path / "b"), task, glue, seed=1)
    for _ in range(2):
        splits = prepare(paths, task.model_copy(update={"source": source}), None, seed=1)
        assert {name: split.fingerprint() for name, split in splits.items()} == {
            name: split.fingerprint() for name, split in expected.items()
        }
        (paths.downloads() / source.folder / source.files["train"]).write_text("damaged")


def test_from_the_official_address_to_splits(server, tmp_path, glue):
    address, folder = server
    sha = sha256_of(zipped_glue(folder, glue).read_bytes())
    task = load_task("sst-2")
    source = task.source.model_copy(update={"url": f"{address}/SST-2.zip", "sha256": sha})
    splits = prepare(Workspace(tmp_path / "a"), task.model_copy(update={"source": source}), None, seed=1)
    assert len(splits["test"]) == len(tiny.sentences(240)) - 180
