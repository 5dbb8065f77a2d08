"""What the runtimes take for a list of texts, and how they refuse what is not one."""

import collections
import ctypes
import types

import numpy as np
import packed_students as made
import pytest

from compression.runtime import PackedError, load
from compression.runtime.native import load_native

TEXTS = ["a film", "not a film", ""]
PAIRS = [("a film", "not"), ["a", "film"]]


class Table:
    """Iterates as pandas' DataFrame does: over the names of its columns."""

    columns = ("text", "label")

    def __iter__(self):
        return iter(self.columns)

    def __len__(self):
        return 3


class Column:
    """Iterates as pandas' Series does: over its values. An index has keys."""

    def __iter__(self):
        return iter(TEXTS)

    def keys(self):
        """Return the index."""
        return range(3)


def named(name):
    """Return a value whose type has this name."""
    return type(name, (), {})()


NO_LISTS = {
    "a str": "a film",
    "a bytes": b"a film",
    "None": None,
    "an int": 3,
    "a float": float("nan"),
    "a dict": {"text": "a film"},
    "an OrderedDict": collections.OrderedDict(text="a film"),
    "a mappingproxy": types.MappingProxyType({"text": "a film"}),
    "a set": {"a film"},
    "a Table": Table(),
    "a ndarray": np.array("a film"),
}
NO_TEXTS = {
    "item 2 is None": ["a", None],
    "item 3 is a float": ["a", "b", float("nan"), 4],
    "item 2 is a float64": ["a", np.float64("nan")],
    "item 1 is an int": [1],
    "item 2 is a bytes": ["a", b"b"],
    "item 1 is a bytes_": np.array([b"a"]),
    "item 1 is a list": [["a"]],
    "item 1 is a tuple": [("a", "b")],
    "item 1 is a dict": [{"text": "a"}],
    "item 1 is a ndarray": np.array([["a", "b"]]),
    "item 2 is a NAType": ["a", named("NAType")],
}
NO_PAIRS = {
    "item 1 is a str, not a pair of texts": ["ab"],
    "item 2 is a dict, not a pair of texts": [("a", "b"), {"a": "b", "c": "d"}],
    "item 1 is None, not a pair of texts": [None],
    "item 2 has 3 texts instead of two": [("a", "b"), ("a", "b", "c")],
    "item 1 has 1 texts instead of two": [["a"]],
    "item 1 has 0 texts instead of two": [()],
    "item 1 has None as its first text": [(None, "b")],
    "item 2 has a float as its second text": [("a", "b"), ("a", float("nan"))],
    "item 1 has a tuple as its first text": [(("a", "b"), "c")],
}


def loaded(folder, loader, arch="ffn", **kind):
    """Return a model of hashed words."""
    return loader(made.packed(folder / "s", arch, "hash", **kind))


def methods(model):
    """Return what answers: the C runtime has no `predict`."""
    return [getattr(model, name) for name in ("predict", "probabilities", "logits") if hasattr(model, name)]


@pytest.fixture(params=[load, load_native], ids=["numpy", "c"])
def loader(request, c_library):
    """How a file is loaded: in either runtime."""
    return request.param


def test_what_is_not_a_list_of_texts_is_refused(tmp_path, loader):
    for answer in methods(loaded(tmp_path, loader)):
        for name, value in NO_LISTS.items():
            with pytest.raises(PackedError, match=f"^expected a list of texts, not {name}$"):
                answer(value)
        for message, value in NO_TEXTS.items():
            with pytest.raises(PackedError, match=f"^{message}, not a text$"):
                answer(value)


def test_what_is_not_a_list_of_pairs_is_refused(tmp_path, loader):
    for answer in methods(loaded(tmp_path, loader, pair=True)):
        with pytest.raises(PackedError, match=r"^expected a list of pairs of texts, not a Table$"):
            answer(Table())
        for message, value in NO_PAIRS.items():
            with pytest.raises(PackedError, match=f"^{message}$"):
                answer(value)


@pytest.mark.parametrize("kind", [{"kind": "tags"}, {"kind": "numbers", "labels": []}, {"kind": "multilabel"}])
def test_every_kind_of_model_refuses_them(tmp_path, loader, kind):
    for answer in methods(loaded(tmp_path, loader, "conv", **kind)):
        with pytest.raises(PackedError, match=r"^item 2 is None, not a text$"):
            answer(["a", None])


def test_models_of_questions_refuse_them(tmp_path):
    model = loaded(tmp_path, load, "bilstm", pair=True, kind="answers", pair_encoder="align", pooling="max",
                   labels=["start", "end"])  # fmt: skip
    for answer in (model.predict, model.logits):
        with pytest.raises(PackedError, match=r"^item 2 has a float as its second text$"):
            answer([("who", "a film"), ("who", float("nan"))])
        with pytest.raises(PackedError, match=r"^expected a list of pairs of texts, not a Table$"):
            answer(Table())


@pytest.mark.parametrize("kind", [{}, {"kind": "tags"}])
def test_any_other_iterable_of_texts_is_read(tmp_path, loader, kind):
    for answer in methods(loaded(tmp_path, loader, "conv", **kind)):
        expected = answer(TEXTS)
        for texts in (tuple(TEXTS), (text for text in TEXTS), np.array(TEXTS), np.array(TEXTS, object), Column(),
                      dict(enumerate(TEXTS)).values()):  # fmt: skip
            assert repr(answer(texts)) == repr(expected)


def test_pairs_are_tuples_or_lists(tmp_path, loader):
    for answer in methods(loaded(tmp_path, loader, pair=True)):
        assert repr(answer(iter(PAIRS))) == repr(answer([tuple(pair) for pair in PAIRS]))


def test_the_c_library_refuses_missing_texts(tmp_path, c_library):
    for kind, texts in (({}, (None, None)), ({"pair": True}, (b"a", None)), ({"pair": True}, (None, b"a"))):
        model = loaded(tmp_path / str(texts), load_native, **kind)
        workspace, logits = np.zeros(1 << 22, np.uint8), np.zeros(3, np.float32)
        model._c.fw_logits.argtypes = (ctypes.c_void_p, *(ctypes.c_char_p, ctypes.c_size_t) * 2, ctypes.c_void_p,
                                       ctypes.c_size_t, ctypes.c_void_p)  # fmt: skip
        status = model._c.fw_logits(
            model._block, texts[0], 1, texts[1], 1, workspace.ctypes.data, workspace.size, logits.ctypes.data
        )
        assert model._c.fw_error(status).startswith(b"the model reads another kind of input")
