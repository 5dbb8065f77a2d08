"""Leftovers of killed commands are removed by the next command; files of a running process stay."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
from own_task import own_task
from processes import run_script
from test_store import Write, entries, text_of

from common.store import temporary
from common.store.files import fingerprint, whole_file, whole_folder
from common.store.locks import waiting
from common.store.processes import Process
from common.store.step import Context
from common.store.store import Store

WRITE = """
import sys, time
from pathlib import Path
from common.store.files import whole_file, whole_folder

root = Path(sys.argv[1])
with whole_file(root / "data/t/bpe/x.model") as file, whole_folder(root / "data/t/tokens/0123456789abcdef") as folder:
    file.write_text("half")
    (folder / "ids0.npy").write_text("half")
    print("half", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "workspace"


@pytest.fixture
def writer(root):
    """A process that writes a file and a folder for a long time."""
    command = [sys.executable, "-c", WRITE, str(root)]
    pipe = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tiny.ROOT, env=tiny.environment(), **pipe) as process:
        assert process.stdout.readline() == "half\n"
        yield process
        process.kill()


def files(root):
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")


def kill(process):
    process.kill()
    process.wait()


def from_elsewhere(path, days):
    """A temporary file of another machine, so many days old."""
    name = temporary.temporary(path)
    name = name.with_name(name.name.replace(Process.current().machine, "0badcafe"))
    name.write_text("half")
    then = time.time() - days * 86_400
    os.utime(name, (then, then))
    return name


def test_leftovers_of_the_dead_go_and_files_of_the_living_stay(root, writer):
    Store(root).remove_leftovers()
    assert len(files(root)) == 2
    kill(writer)
    Store(root).remove_leftovers()
    assert files(root) == []


def test_the_next_command_removes_them(root, writer, tmp_path):
    kill(writer)
    assert len(files(root)) == 2
    assert run_script("experiment.py", "list", "--workspace", root) == 0
    assert files(root) == []


def test_a_stopped_process_is_alive(root, writer):
    writer.send_signal(signal.SIGSTOP)
    Store(root).remove_leftovers()
    assert len(files(root)) == 2


def test_a_number_that_another_process_has_by_now_is_not_that_of_the_writer(root, writer):
    (path,) = (root / "data/t/bpe").iterdir()
    kill(writer)
    path.rename(path.with_name(path.name.replace(f"-{writer.pid}-", f"-{os.getpid()}-")))
    Store(root).remove_leftovers()
    assert files(root) == []


def test_files_of_another_machine_stay_for_days(root):
    folder = root / "data/t/bpe"
    folder.mkdir(parents=True)
    young, old = from_elsewhere(folder / "young", 29), from_elsewhere(folder / "old", 31)
    Store(root).remove_leftovers()
    assert young.exists()
    assert not old.exists()


def test_writing_a_file_outside_of_workspaces_removes_leftovers_of_the_same_file(root, writer):
    kill(writer)
    for path, other in ((root / "data/t/bpe/x.model", "y.model"), (root / "data/t/tokens/0123456789abcdef", "y")):
        for name, left in ((other, 1), (path.name, 0)):
            with (whole_folder if path.suffix == "" else whole_file)(path.with_name(name)) as partial:
                partial.mkdir(exist_ok=True) if path.suffix == "" else partial.write_text("")
            assert len(list(path.parent.glob(".*.partial"))) == left


def test_users_files_with_such_an_ending_stay(root):
    (root / "data").mkdir(parents=True)
    for name in ("my.partial", ".my.partial", ".my.0badcafe.partial", "x.bin.partial"):
        (root / "data" / name).write_text("mine")
    Store(root).remove_leftovers()
    assert len(files(root)) == 4


def test_a_folder_that_was_set_aside_gets_its_name_back(root, monkeypatch):
    folder = root / "results"
    folder.mkdir(parents=True)
    (folder / "old").write_text("old")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("common.store.files.shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt), whole_folder(folder):
            patch.setattr("pathlib.Path.rename", _only_once(killed))
    (aside,) = root.glob(".*.old")
    assert not folder.exists()
    dead = aside.rename(aside.with_name(aside.name.replace(f"-{os.getpid()}-", "-4194999-")))
    Store(root).remove_leftovers()
    assert (folder / "old").read_text() == "old"
    assert not dead.exists()


def _only_once(then):
    """`Path.rename`, which works once."""
    calls, usual = [], Path.rename

    def rename(self, target):
        calls.append(target)
        if len(calls) > 1:
            then()
        return usual(self, target)

    return rename


def test_folders_that_nothing_points_to_go(root):
    store = Store(root)
    artifact = store.make(Write(text="a"), Context())
    key, before = artifact.key, entries(store)
    for name in (f"{key}.0badcafe", "0123456789abcdef.0badcafe"):
        (root / "store" / name).mkdir()
    store.remove_leftovers()
    assert entries(store) == before
    assert text_of(store.get(key)) == "a"


def test_state_of_a_build_goes_once_it_is_published_and_stays_for_one_that_is_not(root):
    store = Store(root)
    with pytest.raises(RuntimeError):
        store.make(Write(text="b", trouble="killed"), Context())
    work = {f"{Write(text='b').key({})}.work"}
    assert entries(store) == work
    key = store.make(Write(text="a"), Context()).key
    before = entries(store)
    left = root / "store" / f"{key}.work"
    left.mkdir()
    os.utime(left, (0, 0))
    store.remove_leftovers()
    assert entries(store) == before
    assert work <= before
    with pytest.raises(RuntimeError):
        store.make(Write(text="a", trouble="killed"), Context(force=True))
    store.remove_leftovers()
    assert entries(store) == before | {left.name}  # the build with --force goes on from it


def test_a_search_in_a_large_workspace_takes_a_moment_and_gets_everywhere_in_the_end(root):
    names = [fingerprint(number) for number in range(300)]
    for name in names:
        (root / "runs" / name).mkdir(parents=True)
        dead = temporary.temporary(root / "run.json").name.replace(f"-{os.getpid()}-", "-4194999-")
        (root / "runs" / name / dead).write_text("half")
    temporary.remove_leftovers(root, seconds=0)
    assert len(files(root)) == 299
    started = time.monotonic()
    while files(root):
        temporary.remove_leftovers(root, seconds=0.001)
        assert time.monotonic() - started < 60


@pytest.mark.slow
def test_a_kill_while_byte_pairs_are_trained_leaves_nothing(root, tmp_path):
    code = """
import sys
from pathlib import Path
from compression.tokenizers.bpe_files import find_files
texts = [" ".join(f"w{(i * 7919 + j) % 30011}x" for j in range(20)) for i in range(20000)]
find_files(5000, 5, "train", texts, Path(sys.argv[1]))
"""
    folder = root / "data/t/bpe"
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, cwd=tiny.ROOT, env=tiny.environment(), stderr=subprocess.PIPE, text=True) as process:
        assert "training a byte-pair vocabulary" in process.stderr.readline()
        kill(process)
    assert not list(folder.glob("*"))
    # A kill while the trained file is written leaves a part of it.
    folder.mkdir(exist_ok=True, parents=True)
    dead = temporary.temporary(folder / "a.model").name.replace(f"-{os.getpid()}-", "-4194999-")
    (folder / dead).write_text("half")
    task = own_task(
        tmp_path / "task", [(f"some text number {i}", ("thumbs up", "thumbs down")[i % 2]) for i in range(40)]
    )
    done = tiny.run_command("preprocess.py", "--task", task.file, "--workspace", root)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())


def test_a_search_does_not_wait_for_a_build(root):
    store = Store(root)
    key = store.make(Write(text="a"), Context()).key
    left = root / "store" / f"{key}.0badcafe"
    left.mkdir()
    hold = f"""
import sys
from pathlib import Path
from common.store.locks import only_one
with only_one(Path({str(root / "store" / key)!r}), "a build"):
    print("held", flush=True)
    sys.stdin.readline()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hold], cwd=tiny.ROOT, env=tiny.environment(), **pipes) as process:
        assert process.stdout.readline() == "held\n"
        with waiting():  # as in a worker of a sweep
            store.remove_leftovers()
        assert left.exists()
        process.communicate("\n")
    store.remove_leftovers()
    assert not left.exists()
