"""Fixtures: packed students of every kind, some taken apart for damaging, and the joined runtime."""

import importlib.util
import subprocess
import sys

import damage
import packed_students as made
import pytest
import tiny

from compression.packing import ans, pack_student, write_packed
from compression.runtime import load


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Name -> (loaded model, folder) of packed students: one for each embedding, one of convolutions."""
    folder = tmp_path_factory.mktemp("packed")
    found = {}
    for name, embedding, arch in (("bpe", "bpe", "bilstm"), ("hash", "hash", "ffn"), ("char", "char", "rnn"),
                                  ("windows", "bpe", "conv"), ("wordpiece", "wordpiece", "transformer")):  # fmt: skip
        student = made.write_student(folder / name, arch, embedding, "affine-row", pooling="max")
        found[name] = load(write_packed(student)), student
    return found


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """(header, what follows it) of a few very small packed students."""
    folder = tmp_path_factory.mktemp("honest")
    found = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        # Many lanes: small files are decoded in a few steps of numpy, and damage meets states as often as words.
        monkeypatch.setattr(ans, "_USUAL_STEPS", 16)
        for number, (arch, embedding, form, more) in enumerate(damage.TINY):
            model = made.pieces(vocab_size=72) if embedding == "bpe" else None
            student = made.write_student(
                folder / str(number), arch, embedding, form, model=model, **{**damage.SIZES, **more}
            )
            found.append(damage.take_apart(pack_student(student)))
    return found


@pytest.fixture(scope="session")
def joined(tmp_path_factory):
    """Path of the joined runtime."""
    path = tmp_path_factory.mktemp("joined") / "featherweight_runtime.py"
    subprocess.run([sys.executable, tiny.ROOT / "runtimes" / "python" / "join.py", path], check=True)
    return path


@pytest.fixture(scope="session")
def joined_runtime(joined):
    """The joined runtime as a module."""
    spec = importlib.util.spec_from_file_location(joined.stem, joined)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
