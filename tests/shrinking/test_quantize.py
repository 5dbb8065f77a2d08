"""Quantization of students: close to their parents, zeros that stay zero, and folders that load anywhere."""

import itertools
import shutil

import numpy as np
import pytest
import shrunk
import tiny
import torch

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.artifact import artifact_at
from common.store.workspace import Workspace
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.evaluation.sizes import measure
from compression.evaluation.weights import stored_tensors, weights_of
from compression.packing import pack_student
from compression.runtime.model import load_bytes
from compression.shrinking.quantize import Quantize
from compression.students.layers import round_inputs
from compression.students.saved import load_student

PARTS = {"embedding", "encoder", "classifier"}
WAYS = {
    "8 bits": {},
    "4 bits": {"bits": 4},
    "16 bits": {"bits": 16},
    "columns": {"bits": 3, "granularity": "column"},
    "ternary": {"quantizer": "ternary"},
    "coded": {"bits": 3, "quantizer": "coded"},
    "codebook": {"bits": 3, "quantizer": "codebook"},
    "tuned": {"bits": 4, "tune_epochs": 1},
    "tuned stochastically": {"bits": 4, "tune_epochs": 1, "rounding": "stochastic"},
    "tuned codebook": {"bits": 4, "quantizer": "codebook", "tune_epochs": 1},
}


def parts_of(names):
    return {name.split(".")[0] for name in names}


def quantized(workspace, student="ffn", **given):
    return shrunk.shrunk(workspace, "quantize", student, **given)


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
    # Hash importance has 16 bits.
    assert 8 < config.compression["bits"] < 16 if student == "ffn" else config.compression["bits"] == 8
    assert parts_of(config.compression["quantized"]) == PARTS - ({"encoder"} if student == "ffn" else set())
    assert config.compression["inputs"] == {}
    assert measure(parent)["parameters"] == measure(folder)["parameters"]


@pytest.mark.parametrize("student", ["ffn", "rnn", "bilstm"])
@pytest.mark.parametrize("how", [{}, {"ptq_embedding": True}, {"bits": 4, "tune_epochs": 1}])
def test_biases_of_quantized_parts_have_16_bits(workspace, student, how):
    folder = quantized(workspace, student, **how)
    exact, rounded = (load_student(each, torch.device("cpu"))[0] for each in (folder.with_name(student), folder))
    parts = parts_of(read_config(folder).compression["quantized"])
    for name in ("encoder.forward_rnn.bias", "classifier.0.bias", "classifier.3.bias"):
        if student == "ffn" and name.startswith("encoder"):
            continue
        bias, parents = rounded.vector(name).detach(), exact.vector(name).detach()
        if name.split(".")[0] in parts:
            assert torch.equal(bias, bias.bfloat16().float())
        if "tune_epochs" not in how:
            assert torch.allclose(bias, parents, rtol=0.004)
            assert (name.split(".")[0] in parts) or torch.equal(bias, parents)


@pytest.mark.parametrize("student", shrunk.STUDENTS)
@pytest.mark.parametrize("how", ["dq_classifier", "ptq_classifier"])
def test_a_student_that_rounds_inputs_is_loaded_from_its_folder_alone(workspace, tmp_path, student, how):
    folder = quantized(workspace, student, ptq_embedding=True, **{how: True})
    expected = shrunk.logits(folder, workspace)
    shrunk.check_saved_again(folder)
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere")
    shutil.copytree(workspace / "data/sst-2/splits", tmp_path / "other/data/sst-2/splits")
    shutil.rmtree(workspace)
    assert np.array_equal(shrunk.logits(elsewhere, tmp_path / "other"), expected)


@pytest.mark.parametrize(
    ("student", "way"),
    [*(("rnn", way) for way in WAYS), *((student, "tuned") for student in ("bilstm", "ffn", "conv"))],
)
def test_a_pruned_student_keeps_its_zeros_and_is_saved_as_it_is_loaded(workspace, student, way):
    pruned = shrunk.shrunk(workspace, "prune", student)
    folder = quantized(workspace, pruned.name, **WAYS[way])
    before, after = (weights(each) for each in (pruned, folder))
    assert any((tensor == 0).any() for tensor in before.values())
    assert after.keys() == before.keys()
    assert not any(after[name][tensor == 0].any() for name, tensor in before.items())
    assert read_config(folder).compression["sparsity"] == read_config(pruned).compression["sparsity"]
    levels = {"ternary": 3, "coded": 256}.get(way) or 2 ** WAYS[way].get("bits", 8)
    assert all(int(codes.max()) < levels for name, codes in load_weights(folder).items() if name.endswith("codes"))
    shrunk.check_saved_again(folder)


def test_parts_may_have_different_bits(workspace):
    folder = quantized(workspace, "bilstm", bits_embedding=2, bits_encoder=3)
    compression = read_config(folder).compression
    bits = {"embedding": 2, "encoder": 3, "classifier": 8}
    assert all(matrix["bits"] == bits[name.split(".")[0]] for name, matrix in compression["quantized"].items())
    assert parts_of(compression["quantized"]) == PARTS
    for name, tensor in load_weights(folder).items():
        assert not name.endswith("codes") or int(tensor.max()) < 2 ** bits[name.split(".")[0]]
    assert 2 < compression["bits"] < 8


@pytest.mark.parametrize("student", ["bilstm", "ffn"])
def test_the_thesis_has_ranges_for_rows_of_the_embedding_alone(workspace, student):
    """Section 6.1.7: rows for embeddings, the whole matrix for encoder and classifier."""
    folder = quantized(workspace, student, granularity="thesis")
    scales = {name: scale for name, scale in load_weights(folder).items() if name.endswith("scale")}
    assert parts_of(scales) >= {"embedding", "classifier"}
    for name, scale in scales.items():
        assert (scale.numel() > 1) == name.startswith("embedding.")
    smaller, larger = (len(pack_student(path)) for path in (folder, quantized(workspace, student)))
    assert smaller < larger


def test_only_the_parts_asked_for_are_quantized(workspace):
    folder = quantized(workspace, "rnn", dq_encoder=True)
    compression = read_config(folder).compression
    assert (parts_of(compression["quantized"]), compression["inputs"]) == ({"encoder"}, {"encoder": "dynamic"})
    assert 8 < compression["bits"] < 32
    assert parts_of(name for name in load_weights(folder) if name.endswith("codes")) == {"encoder"}


@pytest.mark.parametrize("arch", ["transformer", "recursive", "conv", "ffn"])
def test_inputs_are_rounded_in_training_as_they_are_afterwards(workspace, arch):
    """A rate of almost zero: the loss in training, of all rows as one batch, is that of the saved student."""
    pooling = {"pooling": "max"} if arch == "conv" else {}
    given = {"student_arch": arch, "dropout": 0.0, "batch_size": 1000, "embedding_type": "char", **pooling}
    shrunk.compressed(workspace, "distill", model_name="exact", **given)
    given |= {"ptq_embedding": True, "dq_encoder": True, "dq_classifier": True, "tune_epochs": 1, "tune_lr": 1e-30}
    folder = quantized(workspace, "exact", bits=4, **given)
    train = load_split(Workspace(workspace), load_task("sst-2"), "train")
    after = torch.from_numpy(shrunk.logits(folder, workspace, rows="train"))
    expected = torch.nn.functional.cross_entropy(after, torch.from_numpy(train.labels)).item()
    assert tiny.read_history(folder)[0]["loss"] == pytest.approx(expected, rel=4e-6)


def test_training_with_rounded_inputs_is_known_by_the_key():
    def record(**given):
        settings = tiny.compress_settings(task="sst-2", teacher="t", **given)
        return Quantize.of(settings, tiny.ROOT).model_dump(mode="json")

    records = [record(dq_classifier=rounded, tune_epochs=epochs) for rounded in (False, True) for epochs in (0, 1)]
    assert all(one != other for one, other in itertools.combinations(records, 2))


@pytest.mark.parametrize("inputs", [{"encoder": "static"}, {"head": "dynamic"}, {"embedding": "dynamic"}])
def test_unknown_parts_and_ways_of_rounding_inputs_are_refused(inputs):
    with pytest.raises(UserError, match="cannot round the inputs"):
        round_inputs(torch.nn.Module(), inputs, None)


def test_calibration_reads_training_text_only(workspace):
    for name in ("test", "validation"):
        (workspace / "data/sst-2/splits" / f"{name}.parquet").unlink()
    tensors = load_weights(quantized(workspace, ptq_classifier=True))
    assert any(name.endswith("input_scale") and tensor.item() != 1 for name, tensor in tensors.items())


def test_what_cannot_be_quantized_or_loaded_is_refused(workspace):
    with pytest.raises(UserError, match="ffn has no encoder weights to quantize"):
        quantized(workspace, dq_encoder=True)
    folder = quantized(workspace)
    with pytest.raises(UserError, match="quantized already"):
        quantized(workspace, folder.name)
    whole = shrunk.weights_file(folder)
    for data in (b"", whole[:100], whole[:-1]):
        (folder / "model.safetensors").write_bytes(data)
        with pytest.raises(UserError, match=r"model\.safetensors: damaged or truncated"):
            shrunk.loaded(folder)
    (folder / "model.safetensors").write_bytes(shrunk.weights_file(folder.with_name("rnn")))
    with pytest.raises(UserError, match=r"does not fit its manifest\.json"):
        shrunk.loaded(folder)


NAMES = {
    "+q": {},
    "+q3c": {"bits": 3, "quantizer": "codebook"},
    "+q16": {"bits": 16},
    "+q-emb16": {"bits_embedding": 16},
    "+qt": {"quantizer": "ternary"},
    "+q4-t2": {"bits": 4, "tune_epochs": 2},
    "+q4-t2s-lr0.01": {"bits": 4, "tune_epochs": 2, "guide": "student", "tune_lr": 0.01},
    "+qmax24000c": {"max_bytes": 24000, "quantizer": "codebook"},
    "+qloss0.5": {"max_loss": 0.5},
    "+q4-t2-stochastic": {"bits": 4, "tune_epochs": 2, "rounding": "stochastic"},
    "+q6-enc3-cls8": {"bits": 6, "bits_encoder": 3, "bits_classifier": 8},
    "+q-column": {"granularity": "column"},
    "+q ": {"granularity": "row"},
    "+q-thesis": {"granularity": "thesis"},
    "+q4-row": {"granularity": "row", "bits": 4},
    "+q-emb4-row": {"granularity": "row", "bits_embedding": 4},
    "+qloss1-row": {"granularity": "row", "max_loss": 1.0},
    "+q-tensor-minmax": {"granularity": "tensor", "ranges": "minmax"},
    "+q-pe": {"ptq_embedding": True},
    "+q-de-dc": {"dq_encoder": True, "dq_classifier": True},
    "+q-pc64": {"ptq_classifier": True, "calibration_rows": 64},
}


@pytest.mark.parametrize("student", ["ffn", "bilstm"])
def test_16_bits_are_float16_numbers(workspace, student):
    folder = quantized(workspace, student, bits=16)
    exact = weights(folder.with_name(student))
    for name, values in weights(folder).items():
        if values.dim() == 2:
            assert torch.equal(values, exact[name].half().float())
    assert read_config(folder).compression["bits"] == 16
    packed = load_bytes(pack_student(folder))
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    np.testing.assert_allclose(packed.logits(split.sentence1), shrunk.logits(folder, workspace), atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_names_show_how_a_student_was_quantized(name):
    assert Quantize.suffix(tiny.compress_settings(task="sst-2", **NAMES[name])) == name.strip()


def test_a_loaded_student_has_the_architecture_that_is_given(workspace):
    with pytest.raises(UserError, match="rnn has architecture rnn, not bilstm"):
        shrunk.shrunk(workspace, "quantize", "rnn", student_arch="bilstm")
    assert shrunk.shrunk(workspace, "quantize", "rnn", student_arch="rnn").exists()


def test_a_seed_that_draws_nothing_is_not_part_of_the_key(workspace):
    once, again = (quantized(workspace, "ffn", bits=4, seed=seed) for seed in (1, 2))
    assert artifact_at(once) == artifact_at(again)
