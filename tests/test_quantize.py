"""Quantization: bounded rounding errors, zeros that stay zero, and students that load again anywhere."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from common.data import load_split
from common.errors import UserError
from common.models import load_weights, read_config
from common.tasks import load_task
from common.workspace import Workspace
from compression.compress import compress
from compression.quantize import (
    QuantizedMatrix,
    affine_range,
    check_parts,
    from_codes,
    round_each_vector,
    to_codes,
)
from compression.scoring import encode_split, student_logits
from compression.sizes import logical_weights, measure
from compression.student_store import load_student, save_student

NUMBERS = st.floats(-1000, 1000, width=32)
MATRICES = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=NUMBERS)
CPU = torch.device("cpu")


@given(MATRICES)
def test_rounding_is_off_by_half_a_step_at_most(values):
    x = torch.from_numpy(values)
    scale, zero_point = affine_range(x.amin(1, keepdim=True), x.amax(1, keepdim=True))
    back = from_codes(to_codes(x, scale, zero_point), scale, zero_point)
    assert ((back - x).abs() <= 0.5 * scale * 1.001 + 1e-30).all()
    assert (scale > 0).all()


@given(MATRICES)
def test_zeros_stay_exactly_zero_and_codes_are_bytes(values):
    x = torch.from_numpy(values)
    x[:, ::2] = 0
    matrix = QuantizedMatrix(*x.shape)
    matrix.fill(x)
    assert matrix.codes.dtype == torch.uint8
    assert (matrix.value()[x == 0] == 0).all()
    assert matrix.value().shape == x.shape


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
    scale, zero_point = affine_range(torch.tensor([-1.0]), torch.tensor([1.0]))
    back = from_codes(to_codes(torch.tensor([-5.0, 5.0]), scale, zero_point), scale, zero_point)
    assert back.abs().max() < 1.01


def test_unknown_parts_and_ways_are_refused():
    for parts in ({"encoder": "static"}, {"head": "dynamic"}, {"embedding": "dynamic"}):
        with pytest.raises(UserError, match="cannot quantize"):
            check_parts(parts)


STUDENTS = [("bilstm", "bpe"), ("rnn", "char"), ("ffn", "hash")]


def made(workspace, arch="ffn", embedding="hash", task="sst-2", actions=("distill", "quantize"), **given):
    values = tiny.small(
        student_arch=arch, embedding_type=embedding, alpha=1.0, only_original_data=True, epochs=1, **given
    )
    return compress(tiny.compress_settings(task=task, workspace=workspace, compression_actions=actions, **values))


def logits(folder, workspace, task="sst-2"):
    student, tokenizer, _ = load_student(folder, CPU)
    split = load_split(Workspace(workspace), load_task(task), "test")
    return student_logits(student, encode_split(tokenizer, split), CPU)


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_a_quantized_student_is_close_to_its_parent(workspace, arch, embedding, task):
    parent, folder = made(workspace, arch, embedding, task)
    exact, rounded = logits(parent, workspace, task), logits(folder, workspace, task)
    assert np.abs(exact - rounded).max() < 0.05 * max(1.0, np.abs(exact).max())
    config = read_config(folder)
    assert (config.stage, config.parent, config.compression["bits"]) == ("quantized", parent.name, 8)
    assert set(config.compression["quantized"]) == {"embedding", "classifier"} | (
        {"encoder"} if arch != "ffn" else set()
    )


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
    _, pruned, folder = made(workspace, arch, embedding, actions=("distill", "prune", "quantize"))
    before = load_student(pruned, CPU)[0].state_dict()
    after = logical_weights(load_weights(folder))
    zeros = 0
    for name, tensor in before.items():
        # The quantized encoder names its matrices without the layer's number.
        twin = after.get(name, after.get(name.replace("_l0", "")))
        twin = after.get(name.removesuffix(".weight")) if twin is None else twin
        assert twin is not None, name
        assert (twin[tensor == 0] == 0).all(), name
        zeros += int((tensor == 0).sum())
    assert zeros > 0
    assert read_config(folder).compression["sparsity"] == read_config(pruned).compression["sparsity"]


@pytest.mark.parametrize(("arch", "embedding"), STUDENTS)
def test_weights_are_counted_the_same_before_and_after(workspace, arch, embedding):
    parent, folder = made(workspace, arch, embedding)
    assert measure(parent)["parameters"] == measure(folder)["parameters"]


def test_only_the_parts_asked_for_are_quantized(workspace):
    _, folder = made(workspace, "rnn", "char", dq_encoder=True)
    assert read_config(folder).compression["quantized"] == {"encoder": "dynamic"}
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
    assert tensors["embedding.importance.value"].dtype == torch.float16
    assert tensors["embedding.table.codes"].dtype == torch.uint8


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
    parent, folder = made(workspace)
    shutil.copy(parent / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(UserError, match=r"does not fit its config\.json"):
        load_student(folder, CPU)
