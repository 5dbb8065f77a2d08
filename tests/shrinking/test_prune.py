"""Pruning: exactly the zeros asked for, in the parts asked for, and never a bias."""

import json

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.training.checkpoint import load_tensors
from common.training.models import read_config
from compression.shrinking.chain import compress
from compression.shrinking.pruning.weights import (
    TARGETS,
    masks,
    prunable,
    set_zero,
    share_of_target,
    smallest,
    sparsity_by_part,
)
from compression.students.saved import load_student
from compression.students.settings import StudentSettings
from compression.students.student import Student


def student(arch="bilstm", embedding="bpe"):
    torch.manual_seed(1)
    settings = StudentSettings(
        embedding_type=embedding, embedding_dim=6, vocab_size=40, encoder_hidden_dim=5, cls_hidden_dim=7, pooling="max"
    )
    return Student(arch, settings, outputs=2, pair=False)


def settings_of(**given):
    return tiny.compress_settings(task="sst-2", compression_actions=("prune",), load_trained_model="s", **given)


def pruned(net, arch, embedding, **given):
    parts = prunable(net, arch, embedding)
    set_zero(parts, masks(parts, settings_of(**given)))
    return parts


@pytest.mark.parametrize("arch", tiny.POOLINGS)
@pytest.mark.parametrize("embedding", ["bpe", "hash", "char"])
def test_each_matrix_reaches_its_part_of_table_6_3_exactly(arch, embedding):
    net = student(arch, embedding)
    biases = {name: p.clone() for name, p in net.named_parameters() if p.dim() == 1}
    parts = pruned(net, arch, embedding)
    for part in parts:
        zeros = int((part.weight == 0).sum())
        assert zeros == round(TARGETS[part.kind] * part.weight.numel()), part.name
    assert {part.kind for part in parts} <= {arch, embedding, "linear"}
    assert biases
    assert all(torch.equal(dict(net.named_parameters())[name], bias) for name, bias in biases.items())


OURS = ("conv", "transformer", "recursive", "wordpiece")
"""Students and tokens that the thesis did not try."""


def test_the_targets_are_the_thesiss():
    of_thesis = {kind: target for kind, target in TARGETS.items() if kind not in OURS}
    assert of_thesis == {"bilstm": 0.5, "rnn": 0.1, "linear": 0.125, "hash": 0.0, "char": 0.3, "bpe": 0.4}


def test_every_matrix_is_prunable_and_no_bias_is():
    net = student()
    names = {part.name for part in prunable(net, "bilstm", "bpe")}
    assert names == {name.removesuffix(".value") for name, p in net.named_parameters() if "bias" not in name}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_global_pruning_takes_the_smallest_weights_of_all(share):
    net = student()
    before = torch.cat([part.weight.detach().abs().flatten() for part in prunable(net, "bilstm", "bpe")])
    parts = pruned(net, "bilstm", "bpe", prune_topv=True, prune_threshold=share)
    after = torch.cat([part.weight.detach().flatten() for part in parts])
    count = round(share * len(before))
    assert int((after == 0).sum()) == count
    if count:
        assert before[after == 0].max() <= before[after != 0].min()


def test_local_pruning_takes_the_same_share_of_each_matrix():
    parts = pruned(student(), "bilstm", "bpe", prune_local=True, prune_threshold=0.25)
    assert all(int((p.weight == 0).sum()) == round(0.25 * p.weight.numel()) for p in parts)


@pytest.mark.parametrize("threshold", [None, 0.2, 1.5])
def test_magnitude_pruning_takes_what_is_below_the_threshold(threshold):
    net = student()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    limit = 0.05 if threshold is None else threshold
    for part in pruned(net, "bilstm", "bpe", prune_magnitude=True, prune_threshold=threshold):
        old = before[f"{part.name}.value"]
        assert torch.equal(part.weight == 0, old.abs() < limit)
        assert torch.equal(part.weight[part.weight != 0], old[old.abs() >= limit])


@given(st.integers(1, 40), st.integers(1, 9), st.floats(0, 0.999), st.booleans())
def test_the_mask_has_exactly_as_many_as_asked(rows, columns, share, ties):
    weight = torch.ones(rows, columns) if ties else torch.randn(rows, columns)
    mask = smallest(weight, share)
    assert mask.shape == weight.shape
    assert int(mask.sum()) == round(share * rows * columns)


def test_sparsity_is_reported_by_matrix_part_and_whole():
    net = student("ffn", "bpe")
    parts = pruned(net, "ffn", "bpe")
    report = sparsity_by_part(parts)
    zeros = {part.name: (int((part.weight == 0).sum()), part.weight.numel()) for part in parts}
    classifier = [zeros[name] for name in zeros if name.startswith("classifier")]
    assert report["embedding"] == pytest.approx(0.4)
    assert report["classifier"] == pytest.approx(
        sum(z for z, _ in classifier) / sum(n for _, n in classifier), abs=1e-6
    )
    assert report["total"] == pytest.approx(
        sum(z for z, _ in zeros.values()) / sum(n for _, n in zeros.values()), abs=1e-6
    )
    assert set(report) == {*zeros, "embedding", "classifier", "total"}


def test_the_ramp_is_cubic_and_reaches_its_target():
    assert share_of_target(0.0) == share_of_target(0.1) == 0
    assert share_of_target(0.35) == pytest.approx(1 - 0.5**3)
    assert share_of_target(0.6) == share_of_target(1.0) == 1


def made(workspace, *actions, **given):
    values = tiny.small(student_arch="rnn", embedding_type="char", alpha=1.0, only_original_data=True, **given)
    return compress(tiny.compress_settings(task="sst-2", workspace=workspace, compression_actions=actions, **values))


def test_pruning_a_saved_student(workspace):
    parent, folder = made(workspace, "distill", "prune")
    config = read_config(folder)
    assert folder.name == parent.name + "+p"
    assert (config.stage, config.parent) == ("pruned", parent.name)
    before, after = (load_tensors(f / "model.safetensors")[0] for f in (parent, folder))
    for name, tensor in after.items():
        if tensor.dim() == 1:
            assert torch.equal(tensor, before[name])
        else:
            assert config.compression["sparsity"][name.removesuffix(".value")] == pytest.approx(
                (tensor == 0).float().mean().item(), abs=1e-6
            )
    total = config.compression["sparsity"]["total"]
    matrices = torch.cat([t.flatten() for t in after.values() if t.dim() == 2])
    assert total == pytest.approx((matrices == 0).float().mean().item(), abs=1e-6)


def test_a_pruned_student_can_be_pruned_again(workspace):
    _, folder = made(workspace, "distill", "prune")
    settings = settings_of(workspace=workspace, prune_threshold=0.7, prune_local=True)
    (again,) = compress(settings.model_copy(update={"load_trained_model": folder.name}))
    assert again.name.startswith(folder.name + "+p")
    assert read_config(again).compression["sparsity"]["total"] == pytest.approx(0.7, abs=0.01)


def test_a_quantized_student_is_not_pruned(workspace):
    *_, folder = made(workspace, "distill", "quantize")
    settings = settings_of(workspace=workspace).model_copy(update={"load_trained_model": folder.name})
    with pytest.raises(UserError, match="prune it before quantizing"):
        compress(settings)


@pytest.mark.parametrize("epochs", [1, 5, 7])
@pytest.mark.parametrize(
    "target", [{}, {"prune_threshold": 0.5}, {"prune_threshold": 0.5, "prune_local": True}, {"prune_magnitude": True}]
)
def test_pruning_while_training_reaches_the_target(workspace, epochs, target):
    (folder,) = made(workspace, "distill", prune_aware=True, epochs=epochs, **target)
    net, _, config = load_student(folder, torch.device("cpu"))
    parts = prunable(net, "rnn", "char")
    assert config.compression["sparsity"] == sparsity_by_part(parts)
    zeros = sum(int((p.weight == 0).sum()) for p in parts)
    weights = sum(p.weight.numel() for p in parts)
    if target.get("prune_magnitude"):
        assert zeros >= sum(int((p.weight.abs() < 0.04).sum()) for p in parts) > 0
    elif target.get("prune_threshold") and not target.get("prune_local"):
        assert zeros == round(0.5 * weights)
    else:
        shares = {p.name: target.get("prune_threshold", TARGETS[p.kind]) for p in parts}
        assert all(int((p.weight == 0).sum()) == round(shares[p.name] * p.weight.numel()) for p in parts)


def test_pruning_while_training_goes_on_learning(workspace):
    (folder,) = made(workspace, "distill", prune_aware=True, pooling="last", epochs=10, patience=10)
    losses = [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]
    assert len(losses) == 10
    assert losses[-1] < losses[1] < losses[0]


def test_distilling_does_not_depend_on_how_its_student_will_be_pruned(workspace):
    # One command or two, one pruning threshold or another: the same distilled student, reused.
    made(workspace, "distill", model_name="s")
    folders = made(workspace, "distill", "prune", model_name="s", prune_threshold=0.3)
    assert folders[0].name == "s"
    assert folders[1].name.startswith("s+p")
