"""Fixtures: packed students of every kind, some taken apart for damaging, and the joined runtime."""

import importlib.util
import runpy

import damage
import packed_students as made
import pytest
import tiny

from compression.packing import ans, pack_student
from compression.runtime import load


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Name -> (loaded model, folder) of packed students: one for each embedding, one of convolutions."""
    folder = tmp_path_factory.mktemp("packed")
    found = {}
    for name, embedding, arch, max_tokens in (
        ("bpe", "bpe", "bilstm", 512),
        ("hash", "hash", "ffn", 512),
        ("char", "char", "rnn", 512),
        ("ngrams", "ngrams", "ffn", 512),
        ("windows", "bpe", "conv", 512),
        ("wordpiece", "wordpiece", "transformer", 64),
    ):
        sizes = {"pooling": "max", "max_tokens": max_tokens}
        student = made.write_student(folder / name, arch, embedding, "affine-row", **sizes)
        found[name] = load(made.write_packed(student)), student
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
            sizes = {**damage.SIZES, **more, "model": made.pieces(vocab_size=72)}
            student = made.write_student(folder / str(number), arch, embedding, form, **sizes)
            found.append(damage.take_apart(pack_student(student)))
    return found


@pytest.fixture(scope="session")
def joined(tmp_path_factory):
    """Path of the joined runtime."""
    path = tmp_path_factory.mktemp("joined") / "featherweight.py"
    path.write_text(runpy.run_path(str(tiny.ROOT / "runtimes/python/join.py"))["join"](), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def joined_runtime(joined):
    """The joined runtime as a module."""
    spec = importlib.util.spec_from_file_location(joined.stem, joined)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
