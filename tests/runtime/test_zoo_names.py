"""Names of the zoo: where a packed file's path is read, a name is too; nothing outside the zoo has one."""

import os
import subprocess
import sys
from pathlib import Path

import packed_students as made
import pytest
import tiny
from hypothesis import example, given
from hypothesis import strategies as st

from card import ZOO, read_cards
from compression.runtime import PackedError, is_name, load, zoo, zoo_file, zoo_names


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A zoo of one model, first-1k."""
    path = made.packed(tmp_path / "s", "ffn", "hash")
    (tmp_path / "zoo").mkdir()
    path.rename(tmp_path / "zoo" / "first-1k.fwt")
    monkeypatch.setattr(zoo, "FOLDERS", (str(tmp_path / "zoo"), str(tmp_path / "nothing")))
    return tmp_path / "zoo"


def test_a_name_is_a_model_of_the_zoo(folder):
    assert zoo_names() == ["first-1k"]
    assert zoo_file("first-1k") == str(folder / "first-1k.fwt")
    assert load("first-1k").predict(["a film"]) == load(folder / "first-1k.fwt").predict(["a film"])


def test_an_unknown_name_lists_the_zoo(folder):
    message = r"^first-2k: not a file, and not a model of the zoo; did you mean first-1k\? \(zoo: first-1k\)$"
    with pytest.raises(PackedError, match=message):
        load("first-2k")
    with pytest.raises(PackedError, match=r"^x: not a file, and not a model of the zoo \(zoo: first-1k\)$"):
        load("x")
    (folder / "large-400k.json").touch()
    with pytest.raises(PackedError, match=r"large-400k: .*`featherweight zoo large-400k --from FOLDER`"):
        load("large-400k")


def test_a_file_of_that_name_comes_first(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("first-1k").write_bytes(b"not packed")
    with pytest.raises(PackedError, match="first-1k: not a packed student"):
        load("first-1k")


@pytest.mark.slow
def test_a_folder_of_the_users_has_names_too(folder):
    script = "from compression import runtime; print(runtime.zoo_file('first-1k'), 'sst-2-12k' in runtime.zoo_names())"
    environment = tiny.environment(FEATHERWEIGHT_ZOO=str(folder))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tiny.ROOT, env=environment, capture_output=True, timeout=60)
    assert done.stdout.decode() == f"{folder / 'first-1k.fwt'} True\n"


@given(st.text(st.sampled_from("ab1.-_/\\~ \0\n\u00e9"), max_size=12))
@example("../zoo/first-1k")
@example("..")
@example("")
@example("/etc/passwd")
def test_a_name_leads_nowhere_else(name):
    """A name is a file's name without a folder, and no hidden file's."""
    if is_name(name):
        assert os.path.basename(name) == name  # noqa: PTH119
        assert not name.startswith((".", "-"))
        assert Path("zoo", f"{name}.fwt").resolve().parent == Path("zoo").resolve()
    else:
        assert zoo_file(name) is None


ONLY_NUMPY = """
import sys, sysconfig
class OnlyNumpy:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] not in {'numpy', 'compression', *sys.stdlib_module_names}:
            raise ImportError(f'{name} is blocked')
sys.meta_path.insert(0, OnlyNumpy())
"""


OF_EACH_TASK = {card.task: card.name for card in read_cards(ZOO)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OF_EACH_TASK.values(), "sst-2-12"])
def test_the_first_minute(tmp_path, name):
    """`echo text | python -m compression.runtime NAME` from the root of a clone, with NumPy alone."""
    (tmp_path / "sitecustomize.py").write_text(ONLY_NUMPY)
    environment = tiny.environment(PYTHONPATH=str(tmp_path))
    command = [sys.executable, "-m", "compression.runtime", name]
    known = name in zoo_names()
    text = b"a gorgeous , witty film\tan ugly one\n" if known and load(name).pair else b"a gorgeous , witty film\n"
    done = subprocess.run(command, input=text, cwd=tiny.ROOT, env=environment, capture_output=True, timeout=60)
    if known:
        assert (done.returncode, done.stderr) == (0, b"")
        answer = done.stdout.decode().split("\t")[0].strip()
        expected = "an ugly one" if load(name).kind == "answers" else (*load(name).labels, "a")
        assert answer in expected or (not load(name).labels and float(answer) >= 0)
    else:
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(
            b"error: sst-2-12: not a file, and not a model of the zoo; did you mean sst-2-12k?"
        )
        assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_importing_the_package_loads_nothing():
    script = "import sys; before = set(sys.modules); import compression; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], cwd=tiny.ROOT, capture_output=True, text=True, timeout=60)
    loaded = {name.split(".")[0] for name in eval(done.stdout)}
    assert loaded <= {"compression", *sys.stdlib_module_names}
