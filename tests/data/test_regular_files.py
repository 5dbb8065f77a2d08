"""Only regular files are data: what never ends is refused at once, and a stop ends the reading of a large file."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tiny
from own_task import NAMES, write_yaml
from processes import run_script, wait_until

from common.data.prepare import prepare
from common.data.readers.tables import read_source
from common.data.tasks import load_task
from common.errors import UserError
from common.stopping import graceful
from common.store.workspace import Workspace
from compression.augmentation.glove import glove_fingerprint, load_glove
from compression.distillation.corpus import corpus_files
from compression.evaluation.packed import load_packed
from compression.tokenizers.bpe import BpeTokenizer


@pytest.fixture(params=["device", "pipe", "socket", "folder", "cycle"])
def endless(request, tmp_path):
    """Returns (a path of this name that is not a regular file's, the message)."""

    def make(name):
        path = tmp_path / name
        path.unlink(missing_ok=True)
        if request.param == "device":
            path.symlink_to("/dev/zero")
        elif request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "socket":
            with socket.socket(socket.AF_UNIX) as here:
                here.bind(os.path.relpath(path))  # a path of at most 107 bytes
        elif request.param == "cycle":
            path.symlink_to(path)
        else:
            path.mkdir()
        return path, f"{name}: " + ("cannot be read" if request.param == "cycle" else f"a {request.param}, not a file")

    return make


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl", "r.parquet", "r.txt"])
def test_a_tasks_file(tmp_path, endless, name):
    path, message = endless(name)
    task = load_task(write_yaml(tmp_path, {"all": name}))
    with pytest.raises(UserError, match=message):
        prepare(Workspace(tmp_path / "w"), task, None, seed=1)
    with pytest.raises(UserError, match=message):
        read_source(path, task)


def test_a_settings_file(endless, tmp_path, capsys):
    path, message = endless("t.yaml")
    place = ["--workspace", tmp_path / "w"]
    for words in (["--task", path], ["--task", "sst-2", "--config", path]):
        assert run_script("preprocess.py", *place, *words) == 2
        assert message in capsys.readouterr().err


def test_other_files(endless):
    for name, read in {
        "glove.txt": glove_fingerprint,
        "glove": load_glove,
        "corpus.txt": lambda path: corpus_files([str(path)], None),
        "m.fwt": load_packed,
        "bpe.model": lambda path: BpeTokenizer(path, 8),
    }.items():
        path, message = endless(name)
        if name == "corpus.txt" and "cannot be read" in message:
            message = "no such file"
        with pytest.raises(UserError, match=message):
            read(path)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "txt"])
def test_a_file_without_newlines_is_refused_after_some_megabytes(tmp_path, suffix):
    path = tmp_path / f"r.{suffix}"
    with path.open("wb") as file:
        file.truncate(1 << 36)  # sparse
    with pytest.raises(UserError, match="line 1: longer than 16,777,216 bytes; is this a text file"):
        read_source(path, load_task(write_yaml(tmp_path, {"all": path.name}, columns=None)))
    with pytest.raises(UserError, match="longer than 16,777,216 bytes"):
        load_glove(path)


def test_a_settings_file_of_gigabytes_is_refused(tmp_path):
    path = tmp_path / "t.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 36)
    with pytest.raises(UserError, match=r"t\.yaml: not readable as YAML: more than 1,048,576 bytes"):
        load_task(str(path))


def large_task(folder, rows):
    lines = "".join(f"the text of number {i} has {i * i} words,{NAMES[i % 2]}\n" for i in range(rows))
    (folder / "r.csv").write_text(f"review,verdict\n{lines}")
    return write_yaml(folder, {"all": "r.csv"})


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.2, 2, 5])
def test_a_stop_ends_the_preparation_of_a_large_file(tmp_path, seconds):
    task = load_task(large_task(tmp_path, 400_000))
    with graceful():
        started = time.monotonic()
        threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGTERM]).start()
        with pytest.raises(KeyboardInterrupt):
            prepare(Workspace(tmp_path / "w"), task, None, seed=1)
        assert time.monotonic() - started < seconds + 3
    assert not [path for path in (tmp_path / "w").rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.slow
def test_a_stop_ends_a_command_that_reads_a_file_of_gigabytes(tmp_path):
    task = large_task(tmp_path, 10)
    with (tmp_path / "r.csv").open("r+b") as file:
        file.truncate(1 << 40)  # sparse: hashing it takes an hour
    words = ["preprocess.py", "--task", task, "--workspace", tmp_path / "w"]
    command = [sys.executable, *map(str, words)]
    process = subprocess.Popen(command, cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.PIPE)
    read = Path(f"/proc/{process.pid}/io")
    wait_until(lambda: int(read.read_text().split()[1]) > 1 << 30)  # after PyTorch it is the file
    process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - started < 5
    assert process.returncode == 130
    assert b"Traceback" not in errors
