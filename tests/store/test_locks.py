"""Locks: one command at a time makes a model, and a killed one leaves nothing in the way."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import tiny

from common.errors import UserError
from common.stopping import graceful
from common.store.locks import only_one
from common.teachers.finetune import finetune
from compression.distillation.distill import distill
from compression.shrinking.chain import compress
from compression.tokenizers.bpe_files import find_files

HOLD = """
import sys
from pathlib import Path
from common.store.locks import only_one

with only_one(Path(sys.argv[1]), "x"):
    print("held", flush=True)
    sys.stdin.readline()
"""
REFUSED = "^another command is using {}; wait for it to finish, or stop it$"


@contextlib.contextmanager
def held(path):
    """Another process holds the lock; it is yielded, and lets go at a line on its stdin."""
    command = [sys.executable, "-c", HOLD, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tiny.ROOT, env=tiny.environment(), **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_one_is_refused_until_the_first_has_ended(tmp_path):
    path = tmp_path / "new" / "model"
    with held(path) as process:
        with pytest.raises(UserError, match=REFUSED.format("student s")), only_one(path, "student s"):
            pytest.fail("both hold it")
        with only_one(path.with_name("other"), "student t"):
            pass
        process.communicate("\n")
        with only_one(path, "student s"):
            pass
    assert not path.exists()


def test_a_killed_one_leaves_nothing_in_the_way(tmp_path):
    with held(tmp_path / "model") as process:
        process.kill()
        process.wait()
        with only_one(tmp_path / "model", "student s"):
            pass


def test_an_error_lets_go(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), only_one(tmp_path / "model", "student s"):
            raise ZeroDivisionError


def test_who_waits_says_so_once_and_goes_on_after_the_first(tmp_path, capsys):
    with held(tmp_path / "files") as process:
        release = threading.Timer(0.7, process.communicate, ["\n"])
        release.start()
        started = time.monotonic()
        with only_one(tmp_path / "files", "the files", wait=True):
            assert time.monotonic() - started > 0.5
        release.join()
    assert capsys.readouterr().err == "another command is using the files; waiting for it\n"


def test_who_waits_can_be_stopped(tmp_path):
    with held(tmp_path / "files") as process, graceful():
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
        release = threading.Timer(10, process.kill)
        release.start()
        with pytest.raises(KeyboardInterrupt), only_one(tmp_path / "files", "the files", wait=True):
            pytest.fail("it waited on")
        release.cancel()


@pytest.mark.slow
def test_a_model_is_built_by_one_command_at_a_time(workspace, encoder):
    models = workspace / "models" / "sst-2"
    given = tiny.small(student_arch="ffn", embedding_type="hash", model_name="s", epochs=1)
    settings = tiny.compress_settings(task="sst-2", workspace=workspace, **given)

    def refused(name, function, argument):
        before = sorted(path.name for path in models.iterdir() if path.name != f".{name}.lock")
        with (
            only_one(models / name, "x"),
            pytest.raises(UserError, match=REFUSED.format(name.replace("+", r"\+"))),
        ):
            function(argument)
        assert sorted(path.name for path in models.iterdir() if path.name != f".{name}.lock") == before

    refused("s", distill, settings)
    distill(settings)
    refused("s", distill, settings)  # the other one may be replacing it
    for action, name in (("prune", "s+p"), ("quantize", "s+q")):
        shrink = settings.model_copy(
            update={"compression_actions": (action,), "load_trained_model": "s", "model_name": None}
        )
        refused(name, compress, shrink)
        assert compress(shrink) == [models / name]
    teacher = tiny.finetune_settings(workspace, "sst-2", encoder, max_epochs=1, force=True)
    refused("tiny-bert", finetune, teacher)
    adopted = teacher.model_copy(update={"as_is": True, "arch": str(models / "tiny-bert"), "model_name": "t"})
    refused("t", finetune, adopted)
    assert finetune(adopted) == models / "t"


def test_byte_pairs_are_waited_for_and_not_made_twice(tmp_path, capsys):
    texts = [text for text, _ in tiny.sentences(60)]
    names = [path.name for path in find_files(60, 5, "train", texts, tmp_path / "elsewhere")]
    folder, found = tmp_path / "bpe", []
    folder.mkdir()
    thread = threading.Thread(target=lambda: found.extend(find_files(60, 5, "train", texts, folder)))
    with only_one(tmp_path / "bpe.vs60", "x"):
        thread.start()
        time.sleep(0.5)
        assert thread.is_alive()
        for name in names:
            (folder / name).write_text("made by the other one")
    thread.join(30)
    assert found == [folder / name for name in names]
    assert {path.read_text() for path in found} == {"made by the other one"}
    assert "another command is using byte pairs of 60 pieces; waiting for it" in capsys.readouterr().err
