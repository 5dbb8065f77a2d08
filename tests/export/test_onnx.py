"""ONNX files of students give PyTorch's logits at every shape of a batch, and carry what they are."""

import itertools
import json
import sys

import eight_bits
import numpy as np
import pytest
import tiny
import torch

from common.errors import UserError
from compression.students.batch import Batch
from compression.students.embeddings import load_tokenizer
from compression.students.saved import load_student
from compression.students.settings import StudentSettings
from compression.students.student import Student

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from compression.export.onnx_export import export_onnx  # noqa: E402 - needs onnx

VOCABULARY = {"bpe": 30, "hash": 30 * 3, "char": 33}
SHAPES = [(1, 1), (1, 300), (2, 7), (7, 2), (300, 7)]
"""Texts in a batch, and tokens of the longest."""
KINDS = tiny.STUDENT_KINDS


class NoTokenizer:
    """Stands in for byte pairs, whose file these tests do not need."""

    def save(self, folder):
        """Nothing."""


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A function that saves a student of random weights, and returns its folder."""
    monkeypatch.setattr("compression.students.saved.load_tokenizer", lambda settings, folder: NoTokenizer())

    def save(arch, embedding, pooling, pair, change=lambda student: None):
        sizes = {"embedding_dim": 5, "vocab_size": 30, "encoder_hidden_dim": 4, "cls_hidden_dim": 6}
        sizes |= {"heads": 2, "layers": 2, "iterations": 3, "intermediate_dim": 7, "adapters": 3}
        settings = StudentSettings(embedding_type=embedding, pooling=pooling, **sizes)
        torch.manual_seed(3)
        student = Student(arch, settings, 3, pair)
        change(student)
        shape = {"arch": arch, "pair": pair, "labels": ("no", "perhaps", "yes"), "task": "mine"}
        student_settings = settings.model_dump(mode="json")
        return tiny.save_student(tmp_path / "s", student, NoTokenizer(), **shape, student=student_settings)

    return save


def batch(embedding, rows, longest, seed):
    """ids [rows, longest, width] and lengths [rows], of which one is the longest; padding holds other ids."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, rows)
    lengths[rng.integers(rows)] = longest
    width = 3 if embedding == "hash" else 1
    return rng.integers(0, VOCABULARY[embedding], (rows, longest, width)), lengths


def compare(folder, embedding, pair, shapes):
    """Check onnxruntime's logits against PyTorch's on random texts; the sentences of a pair have other lengths."""
    student, _, _ = load_student(folder, torch.device("cpu"))
    session = onnxruntime.InferenceSession(export_onnx(folder, folder / "s.onnx"))
    for rows, longest in shapes:
        sentences = [batch(embedding, rows, longest, 1), batch(embedding, rows, longest + 2, 2)][: 1 + pair]
        with torch.inference_mode():
            first, *second = (Batch(*map(torch.from_numpy, sentence)) for sentence in sentences)
            expected = student(Batch(first.ids, first.lengths, *second)).numpy()
        names = ("ids", "lengths", "ids2", "lengths2")
        (result,) = session.run(None, dict(zip(names, itertools.chain(*sentences), strict=False)))
        assert result.shape == (rows, 3)
        np.testing.assert_allclose(result, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("arch", "embedding", "pooling", "pair"), KINDS)
def test_logits_are_pytorchs(saved, arch, embedding, pooling, pair):
    compare(saved(arch, embedding, pooling, pair), embedding, pair, SHAPES)


@pytest.mark.parametrize("arch", tiny.POOLINGS)
def test_of_quantized_students_too(saved, arch):
    def quantize(student):
        eight_bits.quantize(student)

    compare(saved(arch, "hash", tiny.POOLINGS[arch][0], False, quantize), "hash", False, [(7, 7)])


@pytest.mark.parametrize("embedding", ["hash", "char"])
def test_text_through_the_folders_tokenizer(saved, embedding):
    folder = saved("rnn", embedding, "max", False)
    student, _, config = load_student(folder, torch.device("cpu"))
    encoded = load_tokenizer(StudentSettings(**config.student), folder).encode(["A gorgeous, witty film!", "", "dull"])
    ids, lengths = encoded.pad(np.arange(3))
    session = onnxruntime.InferenceSession(export_onnx(folder, folder / "s.onnx"))
    (result,) = session.run(None, {"ids": ids, "lengths": lengths})
    with torch.inference_mode():
        expected = student(Batch(torch.from_numpy(ids), torch.from_numpy(lengths)))
    np.testing.assert_allclose(result, expected.numpy(), atol=1e-5, rtol=0)


def test_the_file_has_the_models_metadata(saved, tmp_path):
    path = export_onnx(saved("rnn", "char", "max", True), tmp_path / "s.onnx")
    metadata = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert (metadata["name"], metadata["task"], metadata["arch"]) == ("s", "mine", "rnn")
    assert json.loads(metadata["labels"]) == ["no", "perhaps", "yes"]
    assert json.loads(metadata["pair"]) is True
    assert json.loads(metadata["student"])["encoder_hidden_dim"] == 4


def test_the_same_bytes_again(saved, tmp_path):
    folder = saved("bilstm", "char", "max", False)
    first, second = (export_onnx(folder, tmp_path / name).read_bytes() for name in ("a.onnx", "b.onnx"))
    assert first == second


def test_teachers_are_refused(saved):
    folder = saved("ffn", "char", "last", False)
    tiny.edit_facts(folder, kind="teacher", stage="teacher")
    with pytest.raises(UserError, match="only students are exported"):
        export_onnx(folder, folder / "s.onnx")
    assert not (folder / "s.onnx").exists()


def test_without_the_library_the_error_names_the_requirements_file(saved, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install -r requirements-onnx\.txt"):
        export_onnx(saved("ffn", "char", "last", False), tmp_path / "s.onnx")
