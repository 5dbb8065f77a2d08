"""Inputs that clang's libFuzzer found (runtimes/c/fuzz.c), which together run almost all of the C runtime: every reader
refuses each, or answers with the same label."""

import subprocess

import attacks
import c_runtime
import numpy as np
import pytest
import web_module

from compression.runtime import PackedError
from compression.runtime import model as package
from compression.runtime.native import NativeModel

INPUTS = sorted((attacks.ROOT / "tests" / "runtime" / "corpus").iterdir())
"""Each is a packed file and, behind its length, a text."""
ONLY_NUMPY = ("only the NumPy runtime reads it", "this version of the runtime does not know")
"""What the C runtime says to whole models that it does not read."""
NO_TRANSFORMERS = "leaves them out"
"""What the module says to a transformer."""


def parts(data):
    """Return an input's file and its texts: one, and for pairs a second one that begins two bytes later."""
    length = int.from_bytes(data[4:8], "little") if len(data) >= 16 else len(data)
    length = length if 16 <= length <= len(data) else len(data)
    return data[:length], (data[length:], data[length + 2 :])


def answer(load, texts, error):
    """Return a reader's logits of a text or a pair of bytes, or its refusal. Texts that are no UTF-8 are refused."""
    try:
        model = load()
        of_model = [text.decode() for text in texts[: 1 + model.pair]]
        return np.asarray(model.logits([tuple(map(package.tidy, of_model)) if model.pair else package.tidy(*of_model)]))
    except (error, UnicodeDecodeError) as refusal:
        return str(refusal)


class Module:
    """The module's answers in the form of the other readers'."""

    def __init__(self, data):
        self._model = web_module.WebModel(data)
        self.pair = self._model.pair

    def logits(self, texts):
        """Return the logits of words, or the probabilities of a text or a pair."""
        texts = texts[0] if self.pair else texts
        return self._model.tags(*texts)[2] if self._model.by_word else self._model.probabilities(*texts)


def test_there_are_few_and_small_ones():
    assert 50 < len(INPUTS) <= 200
    assert sum(path.stat().st_size for path in INPUTS) < 200_000


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_every_reader_treats_it_alike(c_library, joined_runtime, path):
    data, texts = parts(path.read_bytes())
    with np.errstate(all="ignore"):
        expected = answer(lambda: package.load_bytes(data), texts, PackedError)
        of_joined = answer(lambda: joined_runtime.load_bytes(data), texts, joined_runtime.PackedError)
        of_native = answer(lambda: NativeModel(data), texts, PackedError)
    assert np.array_equal(of_joined, expected, equal_nan=not isinstance(expected, str))
    if isinstance(of_native, str) and any(words in of_native for words in ONLY_NUMPY):
        return
    assert_same_label(expected, of_native)
    if not isinstance(expected, str):
        np.testing.assert_allclose(of_native, expected, atol=near(expected))
    pytest.importorskip("wasmtime")
    of_module = answer(lambda: Module(data), texts, ValueError)
    if not (isinstance(of_module, str) and NO_TRANSFORMERS in of_module):
        assert_same_label(expected, of_module)


@pytest.mark.slow
def test_less_memory_than_is_needed_is_refused_under_sanitizers():
    """A header of word pieces was decoded to a null pointer."""
    done = subprocess.run([c_runtime.built("fuzz"), "inputs", *INPUTS], capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")


def near(expected):
    """Return how far logits may be from those of NumPy: damaged weights may be large, and their rounding with them."""
    return 1e-3 * max(1, np.nanmax(np.abs(expected)))


def assert_same_label(expected, found):
    """Check that both are refusals, or that what has the largest number in `found` has it in `expected` too."""
    assert isinstance(found, str) == isinstance(expected, str), (found, expected)
    if not isinstance(found, str):
        found = found.reshape(expected.shape)
        chosen = np.take_along_axis(expected, np.nan_to_num(found).argmax(-1)[..., None], -1)
        assert np.nanmax(expected.max(-1, keepdims=True) - chosen) < near(expected)
