"""ONNX files of students give PyTorch's logits at every shape of a batch, and carry what they are."""

import itertools
import json
import sys

import numpy as np
import packed_students as made
import pytest
import tiny
import torch

from common.errors import UserError
from compression.export.onnx_export import export_onnx
from compression.students.batch import Batch
from compression.students.saved import load_student

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SHAPES = [(1, 1), (1, 300), (2, 7), (7, 2), (300, 7)]
"""Texts in a batch, and tokens of the longest."""


def compare(folder, batches):
    """Check onnxruntime's logits against PyTorch's. batches: of each one or two sentences, ids and lengths."""
    student, _, _ = load_student(folder, torch.device("cpu"))
    session = onnxruntime.InferenceSession(export_onnx(folder, folder / "s.onnx"))
    for sentences in batches:
        with torch.inference_mode():
            first, *second = (Batch(*map(torch.from_numpy, sentence)) for sentence in sentences)
            expected = student(Batch(first.ids, first.lengths, *second)).numpy()
        names = ("ids", "lengths", "ids2", "lengths2")
        (result,) = session.run(None, dict(zip(names, itertools.chain(*sentences), strict=False)))
        assert result.shape == (len(first.ids), 3)
        np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-6)


def batch(embedding, rows, longest, seed):
    """ids [rows, longest, width] and lengths [rows], of which one is the longest; padding holds other ids."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, rows)
    lengths[rng.integers(rows)] = longest
    width, below = (3, 500) if embedding == "hash" else (1, 33)
    return rng.integers(0, below, (rows, longest, width)), lengths


@pytest.mark.parametrize(("arch", "embedding", "pooling", "pair"), tiny.STUDENT_KINDS)
def test_logits_are_pytorchs(tmp_path, arch, embedding, pooling, pair):
    folder = made.write_student(tmp_path / "s", arch, embedding, pooling=pooling, pair=pair)
    # The sentences of a pair have other lengths.
    compare(folder, [[batch(embedding, n, t + i, i) for i in range(1 + pair)] for n, t in SHAPES])


@pytest.mark.parametrize(("arch", "embedding", "symmetric", "how"), tiny.ALIGNED_KINDS)
def test_logits_of_aligned_pairs_are_pytorchs(tmp_path, arch, embedding, symmetric, how):
    given = made.ALIGNED | {"symmetric": symmetric, "pair_encoder": how}
    folder = made.write_student(tmp_path / "s", arch, embedding, **given)
    compare(folder, [[batch(embedding, n, t + i, i) for i in range(2)] for n, t in SHAPES])


def test_pairs_without_an_order_are_exported(tmp_path):
    folder = made.write_student(tmp_path / "s", "rnn", "hash", pair=True, symmetric=True)
    compare(folder, [[batch("hash", n, t + i, i) for i in range(2)] for n, t in SHAPES])


@pytest.mark.parametrize(("arch", "layout"), tiny.LAYOUTS)
def test_every_layout_of_a_transformer_is_exported(tmp_path, arch, layout):
    folder = made.write_student(tmp_path / "s", arch, "char", pair=True, **layout)
    compare(folder, [[batch("char", n, t + i, i) for i in range(2)] for n, t in SHAPES[2:4]])


@pytest.mark.parametrize("arch", tiny.POOLINGS)
def test_quantized_students_are_exported_too(tmp_path, arch):
    compare(made.write_student(tmp_path / "s", arch, "hash", "affine-row"), [[batch("hash", 7, 7, 1)]])


@pytest.mark.parametrize(("arch", "embedding"), [("rnn", "hash"), ("rnn", "char"), ("ffn", "ngrams")])
def test_text_through_the_folders_tokenizer(tmp_path, arch, embedding):
    folder = made.write_student(tmp_path / "s", arch, embedding)
    encoded = load_student(folder, torch.device("cpu"))[1].encode(["A gorgeous, witty film!", "", "dull"])
    compare(folder, [[encoded.pad(np.arange(3))]])


def test_the_file_has_the_models_metadata_and_is_the_same_again(tmp_path):
    folder = made.write_student(tmp_path / "s", "rnn", "char", pooling="max", pair=True)
    first, second = (export_onnx(folder, tmp_path / name) for name in ("a.onnx", "b.onnx"))
    assert first.read_bytes() == second.read_bytes()
    metadata = onnxruntime.InferenceSession(first).get_modelmeta().custom_metadata_map
    assert (metadata["name"], metadata["task"], metadata["arch"]) == ("s", "films", "rnn")
    assert json.loads(metadata["labels"]) == ["bad", "good", "so-so"]
    assert json.loads(metadata["pair"]) is True
    assert json.loads(metadata["kind"]) == "labels"
    assert json.loads(metadata["student"])["encoder_hidden_dim"] == made.HIDDEN


def test_the_metadata_says_that_labels_are_independent(tmp_path):
    folder = made.write_student(tmp_path / "s", "ffn", "hash", kind="multilabel")
    compare(folder, [[batch("hash", 3, 5, 1)]])
    metadata = onnxruntime.InferenceSession(folder / "s.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(metadata["kind"]) == "multilabel"


def test_teachers_are_refused(tmp_path):
    folder = made.write_student(tmp_path / "s", "ffn", "char")
    tiny.edit_facts(folder, kind="teacher", stage="teacher")
    with pytest.raises(UserError, match="only students are exported"):
        export_onnx(folder, folder / "s.onnx")
    assert not (folder / "s.onnx").exists()


def test_without_the_library_the_error_names_the_requirements_file(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install -r requirements-onnx\.txt"):
        export_onnx(made.write_student(tmp_path / "s", "ffn", "char"), tmp_path / "s.onnx")
