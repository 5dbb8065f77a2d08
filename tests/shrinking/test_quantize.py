"""Quantization of students: inputs' rounding errors, zeros that stay zero, and students that load again anywhere."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from common.data.data import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import load_weights, read_config
from compression.evaluation.sizes import measure
from compression.evaluation.weights import stored_tensors, weights_of
from compression.shrinking.chain import compress
from compression.students.layers import check_inputs
from compression.students.rounding import affine_range, round_by, round_each_vector
from compression.students.saved import load_student, save_student
from compression.students.scoring import encode_split, student_logits

NUMBERS = st.floats(-1000, 1000, width=32)
MATRICES = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=NUMBERS)
CPU = torch.device("cpu")


@given(MATRICES)
def test_rounding_inputs_is_off_by_half_a_step_at_most(values):
    x = torch.from_numpy(values)
    scale, zero_point = affine_range(x.amin(1, keepdim=True), x.amax(1, keepdim=True))
    assert ((round_by(x, scale, zero_point) - x).abs() <= 0.5 * scale * 1.001 + 1e-30).all()
    assert (scale > 0).all()


@given(MATRICES)
def test_each_vector_is_rounded_by_itself(values):
    x = torch.from_numpy(values)
    together = round_each_vector(x)
    for row in range(len(x)):
        assert torch.equal(round_each_vector(x[row]), together[row])


@given(st.lists(NUMBERS, min_size=1, max_size=9))
def test_rounding_twice_changes_nothing_much(values):
    once = round_each_vector(torch.tensor([values]))
    twice = round_each_vector(once)
    step = (once.max().clamp(min=0) - once.min().clamp(max=0)) / 255
    assert ((twice - once).abs() <= step + 1e-30).all()


def test_values_outside_a_calibrated_range_are_clamped():
    back = round_by(torch.tensor([-5.0, 5.0]), *affine_range(torch.tensor([-1.0]), torch.tensor([1.0])))
    assert back.abs().max() < 1.01


def test_unknown_parts_and_ways_are_refused():
    for inputs in ({"encoder": "static"}, {"head": "dynamic"}, {"embedding": "dynamic"}):
        with pytest.raises(UserError, match="cannot round the inputs"):
            check_inputs(inputs)


STUDENTS = [("bilstm", "bpe"), ("rnn", "char"), ("ffn", "hash"), ("conv", "bpe")]
PARTS = {"embedding", "encoder", "classifier"}
WAYS = [
    {},
    {"bits": 4},
    {"bits": 3, "granularity": "column"},
    {"quantizer": "ternary"},
    {"bits": 3, "quantizer": "codebook"},
    {"bits": 4, "tune_epochs": 1},
    {"bits": 4, "quantizer": "codebook", "tune_epochs": 1},
]
IDS = ["8 bits", "4 bits", "columns", "ternary", "codebook", "tuned", "tuned codebook"]
"""Ways to quantize, each of which every kind of student bears."""


def parts_of(names):
    return {name.split(".")[0] for name in names}


def made(workspace, arch="ffn", embedding="hash", task="sst-2", actions=("distill", "quantize"), **given):
    values = tiny.small(
        student_arch=arch, embedding_type=embedding, alpha=1.0, only_original_data=True, epochs=1, **given
    )
    return compress(tiny.compress_settings(task=task, workspace=workspace, compression_actions=actions, **values))


def again(workspace, parent, **way):
    """Quantize a saved student."""
    given = tiny.small(alpha=1.0, only_original_data=True, **way)
    actions = {"compression_actions": ("quantize",), "load_trained_model": parent.name}
    return compress(tiny.compress_settings(task="sst-2", workspace=workspace, **actions, **given))[0]


def logits(folder, workspace, task="sst-2"):
    student, tokenizer, _ = load_student(folder, CPU)
    split = load_split(Workspace(workspace), load_task(task), "test")
    return student_logits(student, encode_split(tokenizer, split), CPU)


def weights(folder):
    """Name -> float32 weights of a saved model."""
    return {w.name: w.values for w in weights_of(folder, read_config(folder), stored_tensors(folder))}


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_a_quantized_student_is_close_to_its_parent(workspace, arch, embedding, task):
    parent, folder = made(workspace, arch, embedding, task)
    exact, rounded = logits(parent, workspace, task), logits(folder, workspace, task)
    assert np.abs(exact - rounded).max() < 0.05 * max(1.0, np.abs(exact).max())
    config = read_config(folder)
    assert (config.stage, config.parent) == ("quantized", parent.name)
    if embedding == "hash":  # importance has 16 bits
        assert 8 < config.compression["bits"] < 16
    else:
        assert config.compression["bits"] == 8
    assert parts_of(config.compression["quantized"]) == PARTS - ({"encoder"} if arch == "ffn" else set())
    assert config.compression["inputs"] == {}


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
@pytest.mark.parametrize("how", ["dq_classifier", "ptq_classifier"])
def test_saved_and_loaded_it_gives_the_same_logits(workspace, tmp_path, arch, embedding, how):
    _, folder = made(workspace, arch, embedding, ptq_embedding=True, **{how: True})
    student, tokenizer, config = load_student(folder, CPU)
    save_student(tmp_path / "copy", config, student, tokenizer)
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert np.array_equal(logits(tmp_path / "copy", workspace), logits(folder, workspace))


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
def test_it_loads_where_nothing_else_is(workspace, tmp_path, arch, embedding):
    *_, folder = made(workspace, arch, embedding, actions=("distill", "prune", "quantize"))
    expected = logits(folder, workspace)
    elsewhere = tmp_path / "elsewhere" / "student"
    shutil.copytree(folder, elsewhere)
    test = tmp_path / "other" / "data" / "sst-2" / "test.parquet"
    test.parent.mkdir(parents=True)
    shutil.copy(workspace / "data/sst-2/test.parquet", test)
    shutil.rmtree(workspace)
    assert np.array_equal(logits(elsewhere, tmp_path / "other"), expected)


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
def test_pruned_weights_stay_zero(workspace, arch, embedding):
    _, pruned = made(workspace, arch, embedding, actions=("distill", "prune"))
    before = weights(pruned)
    assert sum(int((tensor == 0).sum()) for tensor in before.values()) > 0
    for way in WAYS:
        folder = again(workspace, pruned, **way)
        after = weights(folder)
        assert after.keys() == before.keys()
        for name, tensor in before.items():
            assert (after[name][tensor == 0] == 0).all(), (name, way)
        assert read_config(folder).compression["sparsity"] == read_config(pruned).compression["sparsity"]


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
def test_every_way_is_saved_and_loaded(workspace, tmp_path, arch, embedding):
    (parent,) = made(workspace, arch, embedding, actions=("distill",))
    for way, name in zip(WAYS, IDS, strict=True):
        folder = again(workspace, parent, **way)
        student, tokenizer, config = load_student(folder, CPU)
        assert parts_of(config.compression["quantized"]) == PARTS - ({"encoder"} if arch == "ffn" else set())
        save_student(tmp_path / name, config, student, tokenizer)
        assert (tmp_path / name / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
        codes = [tensor for key, tensor in load_weights(folder).items() if key.endswith("codes")]
        levels = 3 if name == "ternary" else 2 ** way.get("bits", 8)
        assert max(int(tensor.max()) for tensor in codes) < levels


def test_parts_may_have_bits_of_their_own(workspace):
    (parent,) = made(workspace, "bilstm", "bpe", actions=("distill",))
    folder = again(workspace, parent, bits_embedding=2, bits_encoder=3)
    told = read_config(folder).compression
    bits = {"embedding": 2, "encoder": 3, "classifier": 8}
    assert {name: matrix["bits"] for name, matrix in told["quantized"].items()} == {
        name: bits[name.split(".")[0]] for name in told["quantized"]
    }
    for name, tensor in load_weights(folder).items():
        if name.endswith("codes"):
            assert int(tensor.max()) < 2 ** bits[name.split(".")[0]]
    assert 2 < told["bits"] < 8


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"quantizer": "codebook", "granularity": "column"}, "not for columns"),
        ({"quantizer": "ternary", "bits_encoder": 4}, "--bits-encoder has no meaning"),
    ],
)
def test_what_no_quantizer_does_is_refused(workspace, way, message):
    (parent,) = made(workspace, "bilstm", "bpe", actions=("distill",))
    with pytest.raises(UserError, match=message):
        again(workspace, parent, **way)


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
def test_weights_are_counted_the_same_before_and_after(workspace, arch, embedding):
    parent, folder = made(workspace, arch, embedding)
    assert measure(parent)["parameters"] == measure(folder)["parameters"]


def test_only_the_parts_asked_for_are_quantized(workspace):
    _, folder = made(workspace, "rnn", "char", dq_encoder=True)
    told = read_config(folder).compression
    assert (parts_of(told["quantized"]), told["inputs"]) == ({"encoder"}, {"encoder": "dynamic"})
    assert 8 < told["bits"] < 32
    names = [name for name in load_weights(folder) if name.endswith("codes")]
    assert names
    assert all(name.startswith("encoder.") for name in names)


def test_asking_only_for_an_encoder_that_has_no_weights_changes_nothing_else(workspace):
    # An FFN's encoder is a mean. Whether refused or done as nothing, its other parts were not asked for.
    try:
        _, folder = made(workspace, "ffn", "hash", dq_encoder=True)
    except UserError:
        return
    assert not [name for name in load_weights(folder) if name.endswith("codes")]


def test_calibration_reads_training_text_only(workspace):
    (parent,) = made(workspace, actions=("distill",))
    for name in ("test", "validation"):
        (workspace / "data/sst-2" / f"{name}.parquet").unlink()
    settings = tiny.compress_settings(
        task="sst-2",
        workspace=workspace,
        compression_actions=("quantize",),
        load_trained_model=parent.name,
        ptq_classifier=True,
    )
    (folder,) = compress(settings)
    tensors = load_weights(folder)
    assert any(name.endswith("input_scale") and tensor.item() != 1 for name, tensor in tensors.items())


def test_hash_importance_is_kept_in_16_bits(workspace):
    _, folder = made(workspace)
    tensors = load_weights(folder)
    assert tensors["embedding.importance.weight.value"].dtype == torch.float16
    assert tensors["embedding.table.weight.codes"].dtype == torch.uint8


def test_quantizing_twice_is_refused(workspace):
    _, folder = made(workspace)
    settings = tiny.compress_settings(
        task="sst-2", workspace=workspace, compression_actions=("quantize",), load_trained_model=folder.name
    )
    with pytest.raises(UserError, match="quantized already"):
        compress(settings)


@pytest.mark.parametrize("cut", [0, 100, -1])
def test_a_truncated_student_is_named(workspace, cut):
    _, folder = made(workspace)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UserError, match=r"model\.safetensors: damaged or truncated"):
        load_student(folder, CPU)


def test_weights_of_another_student_are_refused(workspace):
    (other,) = made(workspace, "ffn", "char", actions=("distill",))
    _, folder = made(workspace)
    shutil.copy(other / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(UserError, match=r"does not fit its config\.json"):
        load_student(folder, CPU)
