"""All readers of packed files reject the same texts, and the same damaged files."""

import json
import shutil
import struct
import subprocess

import c_runtime
import damage
import numpy as np
import packed_students as made
import pytest
import web_module
from c_parity import NEAR, TEXTS, check, refused

from compression.packing import pack_student
from compression.runtime import load, tidy
from compression.runtime.native import load_native

LINES = [text for text in map(tidy, TEXTS) if text.isprintable()]
NODE = shutil.which("node")
SCRIPT = """
import { readFileSync } from "node:fs";
const [wrapper, file, texts] = process.argv.slice(1);
const { load } = await import(wrapper);
const model = await load(readFileSync(file));
console.log(JSON.stringify([model.rejects, model.threshold, JSON.parse(texts).map(text => model.predict(text).label)]));
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A packed file with a threshold from which half of LINES are answered, and that is near none of them."""

    folder = made.write_student(tmp_path_factory.mktemp("rejects") / "s", "conv", "hash", edit=made.spread, seed=7)
    path = folder / "s.fwt"
    path.write_bytes(pack_student(folder, 2.0, rejects=True))
    highest = np.sort(load(path).probabilities(LINES).max(1))
    middle = len(highest) // 4 + np.diff(highest)[len(highest) // 4 : -len(highest) // 4].argmax()
    threshold = float(highest[middle : middle + 2].mean())
    assert np.abs(highest - threshold).min() > NEAR
    path.write_bytes(pack_student(folder, 2.0, threshold, rejects=True))
    answers = load(path).predict(LINES)
    assert None in answers
    assert len({*answers}) > 2
    return path


def test_the_c_runtime(c_library, path):
    theirs, ours = load(path), load_native(path)
    check(theirs, ours, TEXTS)
    assert (ours.kind, ours.rejects, ours.threshold) == ("labels", True, theirs.threshold)


@pytest.mark.slow
def test_the_c_command(path):
    def run(command, *words):
        lines = "".join(f"{text}\n" for text in LINES).encode()
        done = subprocess.run(
            [c_runtime.built("fwt"), command, path, *words], input=lines, capture_output=True, check=True
        )
        return done.stdout.decode()

    assert run("predict").splitlines() == [label or "none of these" for label in load(path).predict(LINES)]
    assert "answers\ta label, or none of these\n" in run("info")


def test_the_module(path):
    pytest.importorskip("wasmtime")
    theirs, ours = load(path), web_module.WebModel(path.read_bytes())
    assert (ours.rejects, ours.threshold, ours.labels) == (1, theirs.threshold, theirs.labels)
    found = [ours.probabilities(text) for text in LINES]
    np.testing.assert_allclose(found, theirs.probabilities(LINES), atol=NEAR)


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="no Node.js here")
def test_the_wrapper(path):
    command = [NODE, "--input-type=module", "-e", SCRIPT, "--", web_module.WRAPPER, path]
    done = subprocess.run([*command, json.dumps(LINES)], capture_output=True, text=True, check=True, timeout=60)
    model = load(path)
    assert json.loads(done.stdout) == [True, model.threshold, model.predict(LINES)]


def damaged(header, rest):
    """Return damaged files: no threshold, no temperature, another code, and numbers that are no threshold."""
    flags, first = header[2], header[:2]
    yield damage.assemble(first + bytes([flags & ~128]) + header[3:], rest[:4] + rest[8:])
    yield damage.assemble(first + bytes([flags & ~16]) + header[3:], rest[4:])
    yield damage.assemble(header[:3] + bytes([2]) + header[4:], rest)
    for value in (float("nan"), -0.1, 1.1):
        yield damage.assemble(header, rest[:4] + struct.pack("<f", value) + rest[8:])


def test_damaged_files_are_refused_by_both(c_library, path):
    for data in damaged(*damage.take_apart(path.read_bytes())):
        refused(data)


def test_one_label_is_none_to_choose_from(c_library, tmp_path):
    refused(pack_student(made.write_student(tmp_path / "s", "ffn", "char", labels=["only"]), rejects=True))
