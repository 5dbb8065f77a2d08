"""Quantization of students: close to their parents, zeros that stay zero, and folders that load anywhere."""

import shutil

import numpy as np
import pytest
import shrunk
import tiny
import torch

from common.errors import UserError
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.evaluation.sizes import measure
from compression.evaluation.weights import stored_tensors, weights_of
from compression.shrinking.quantize import suffix
from compression.students.layers import check_inputs
from compression.students.saved import load_student

PARTS = {"embedding", "encoder", "classifier"}
WAYS = {
    "8 bits": {},
    "4 bits": {"bits": 4},
    "columns": {"bits": 3, "granularity": "column"},
    "ternary": {"quantizer": "ternary"},
    "codebook": {"bits": 3, "quantizer": "codebook"},
    "tuned": {"bits": 4, "tune_epochs": 1},
    "tuned codebook": {"bits": 4, "quantizer": "codebook", "tune_epochs": 1},
}


def parts_of(names):
    return {name.split(".")[0] for name in names}


def quantized(workspace, student="ffn", **given):
    return shrunk.shrunk(workspace, "quantize", student, **given)


def levels_of(way):
    return 3 if way.get("quantizer") == "ternary" else 2 ** way.get("bits", 8)


def weights(folder):
    """Name -> float32 weights of a saved model."""
    return {w.name: w.values for w in weights_of(folder, read_config(folder), stored_tensors(folder))}


@pytest.mark.parametrize(("student", "task"), [*((student, "sst-2") for student in shrunk.STUDENTS), ("rnn", "qqp")])
def test_a_quantized_student_is_close_to_its_parent(workspace, student, task):
    folder = quantized(workspace, student, task=task)
    parent = folder.with_name(student)
    exact, rounded = (shrunk.logits(each, workspace, task) for each in (parent, folder))
    assert np.abs(exact - rounded).max() < 0.05 * max(1.0, np.abs(exact).max())
    config = read_config(folder)
    assert (config.stage, config.parent) == ("quantized", student)
    if student == "ffn":  # hash importance has 16 bits
        assert 8 < config.compression["bits"] < 16
    else:
        assert config.compression["bits"] == 8
    assert parts_of(config.compression["quantized"]) == PARTS - ({"encoder"} if student == "ffn" else set())
    assert config.compression["inputs"] == {}
    assert measure(parent)["parameters"] == measure(folder)["parameters"]


@pytest.mark.parametrize("student", shrunk.STUDENTS)
@pytest.mark.parametrize("how", ["dq_classifier", "ptq_classifier"])
def test_saved_and_loaded_it_gives_the_same_logits(workspace, tmp_path, student, how):
    folder = quantized(workspace, student, ptq_embedding=True, **{how: True})
    loaded, tokenizer, config = load_student(folder, shrunk.CPU)
    tiny.save_student(tmp_path / "copy", loaded, tokenizer, **config.facts())
    assert shrunk.weights_file(tmp_path / "copy") == shrunk.weights_file(folder)
    assert np.array_equal(shrunk.logits(tmp_path / "copy", workspace), shrunk.logits(folder, workspace))


@pytest.mark.parametrize("student", ["bilstm", "ffn"])
def test_it_loads_without_the_rest_of_the_workspace(workspace, tmp_path, student):
    folder = quantized(workspace, shrunk.shrunk(workspace, "prune", student).name)
    expected = shrunk.logits(folder, workspace)
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere" / "student")
    shutil.copytree(workspace / "data/sst-2/splits", tmp_path / "other/data/sst-2/splits")
    shutil.rmtree(workspace)
    assert np.array_equal(shrunk.logits(elsewhere, tmp_path / "other"), expected)


@pytest.mark.parametrize("student", shrunk.STUDENTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_pruned_student_keeps_its_zeros_and_is_saved_as_it_is_loaded(workspace, tmp_path, student, way):
    pruned = shrunk.shrunk(workspace, "prune", student)
    folder = quantized(workspace, pruned.name, **WAYS[way])
    before, after = (weights(each) for each in (pruned, folder))
    assert any((tensor == 0).any() for tensor in before.values())
    assert after.keys() == before.keys()
    assert not any(after[name][tensor == 0].any() for name, tensor in before.items())
    loaded, tokenizer, config = load_student(folder, shrunk.CPU)
    assert config.compression["sparsity"] == read_config(pruned).compression["sparsity"]
    assert parts_of(config.compression["quantized"]) == PARTS - ({"encoder"} if student == "ffn" else set())
    codes = [tensor for name, tensor in load_weights(folder).items() if name.endswith("codes")]
    assert max(int(tensor.max()) for tensor in codes) < levels_of(WAYS[way])
    tiny.save_student(tmp_path / "copy", loaded, tokenizer, **config.facts())
    assert shrunk.weights_file(tmp_path / "copy") == shrunk.weights_file(folder)


def test_parts_may_have_bits_of_their_own(workspace):
    folder = quantized(workspace, "bilstm", bits_embedding=2, bits_encoder=3)
    compression = read_config(folder).compression
    bits = {"embedding": 2, "encoder": 3, "classifier": 8}
    assert all(matrix["bits"] == bits[name.split(".")[0]] for name, matrix in compression["quantized"].items())
    assert parts_of(compression["quantized"]) == PARTS
    for name, tensor in load_weights(folder).items():
        assert not name.endswith("codes") or int(tensor.max()) < 2 ** bits[name.split(".")[0]]
    assert 2 < compression["bits"] < 8


def test_only_the_parts_asked_for_are_quantized(workspace):
    folder = quantized(workspace, "rnn", dq_encoder=True)
    compression = read_config(folder).compression
    assert (parts_of(compression["quantized"]), compression["inputs"]) == ({"encoder"}, {"encoder": "dynamic"})
    assert 8 < compression["bits"] < 32
    assert parts_of(name for name in load_weights(folder) if name.endswith("codes")) == {"encoder"}


@pytest.mark.parametrize(
    ("student", "way", "message"),
    [
        ("bilstm", {"quantizer": "codebook", "granularity": "column"}, "not for columns"),
        ("bilstm", {"quantizer": "ternary", "bits_encoder": 4}, "--bits-encoder has no meaning"),
        ("ffn", {"dq_encoder": True}, "ffn has no weights in its encoder"),
    ],
)
def test_what_cannot_be_quantized_is_refused(workspace, student, way, message):
    with pytest.raises(UserError, match=message):
        quantized(workspace, student, **way)


@pytest.mark.parametrize("inputs", [{"encoder": "static"}, {"head": "dynamic"}, {"embedding": "dynamic"}])
def test_unknown_parts_and_ways_of_rounding_inputs_are_refused(inputs):
    with pytest.raises(UserError, match="cannot round the inputs"):
        check_inputs(inputs)


def test_calibration_reads_training_text_only(workspace):
    for name in ("test", "validation"):
        (workspace / "data/sst-2/splits" / f"{name}.parquet").unlink()
    tensors = load_weights(quantized(workspace, ptq_classifier=True))
    assert any(name.endswith("input_scale") and tensor.item() != 1 for name, tensor in tensors.items())


def test_hash_importance_is_saved_in_16_bits_and_a_student_quantized_once(workspace):
    folder = quantized(workspace)
    tensors = load_weights(folder)
    assert tensors["embedding.importance.weight.value"].dtype == torch.float16
    assert tensors["embedding.table.weight.codes"].dtype == torch.uint8
    with pytest.raises(UserError, match="quantized already"):
        quantized(workspace, folder.name)


@pytest.mark.parametrize("cut", [0, 100, -1])
def test_a_truncated_student_is_named(workspace, cut):
    folder = quantized(workspace)
    (folder / "model.safetensors").write_bytes(shrunk.weights_file(folder)[:cut])
    with pytest.raises(UserError, match=r"model\.safetensors: damaged or truncated"):
        shrunk.loaded(folder)


def test_weights_of_another_student_are_refused(workspace):
    folder = quantized(workspace)
    (folder / "model.safetensors").write_bytes(shrunk.weights_file(folder.with_name("rnn")))
    with pytest.raises(UserError, match=r"does not fit its manifest\.json"):
        shrunk.loaded(folder)


NAMES = {
    "+q": {},
    "+q4": {"bits": 4},
    "+q3c": {"bits": 3, "quantizer": "codebook"},
    "+qc": {"quantizer": "codebook"},
    "+qt": {"quantizer": "ternary"},
    "+q4-t2": {"bits": 4, "tune_epochs": 2},
    "+q4-t2s": {"bits": 4, "tune_epochs": 2, "guide": "student"},
    "+q4-t2-lr0.01": {"bits": 4, "tune_epochs": 2, "tune_lr": 0.01},
    "+qmax24000": {"max_bytes": 24000},
    "+qmax24000c": {"max_bytes": 24000, "quantizer": "codebook"},
    "+qloss1": {"max_loss": 1.0},
    "+qloss0.5": {"max_loss": 0.5},
    "+q-emb2": {"bits_embedding": 2},
    "+q6-enc3-cls8": {"bits": 6, "bits_encoder": 3, "bits_classifier": 8},
    "+q-column": {"granularity": "column"},
    "+q ": {"granularity": "row"},
    "+q4-row": {"granularity": "row", "bits": 4},
    "+q-emb4-row": {"granularity": "row", "bits_embedding": 4},
    "+qloss1-row": {"granularity": "row", "max_loss": 1.0},
    "+q-tensor-minmax": {"granularity": "tensor", "ranges": "minmax"},
    "+q-pe": {"ptq_embedding": True},
    "+q-de-dc": {"dq_encoder": True, "dq_classifier": True},
    "+q-pc64": {"ptq_classifier": True, "calibration_rows": 64},
}


@pytest.mark.parametrize("name", NAMES)
def test_names_show_how_a_student_was_quantized(name):
    assert suffix(tiny.compress_settings(task="sst-2", **NAMES[name])) == name.strip()
