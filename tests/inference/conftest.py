"""Fixtures of the tests of predict.py: students of every kind of task, and a function that asks them."""

import pytest
from random_students import KINDS, save

from common.config import build
from compression.inference.predict import PredictSettings, predict


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of students with random weights, by the keys of KINDS."""
    return {kind: save(tmp_path_factory.mktemp(kind) / kind, **shape) for kind, shape in KINDS.items()}


@pytest.fixture
def ask(tmp_path):
    """A function from a model's folder, the bytes of an input file and flags to the text of the output file."""

    def run(model, content, name="input.txt", **flags):
        (tmp_path / name).write_bytes(content)
        files = {"model": str(model), "input": tmp_path / name, "output": tmp_path / "output"}
        predict(build(PredictSettings, {**files, "cpu": True, **flags}))
        return (tmp_path / "output").read_text(encoding="utf-8")

    return run
