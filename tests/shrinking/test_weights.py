"""Pruning of single weights: exactly the zeros asked for, in the parts asked for, and never a bias."""

import pytest
import shrunk
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.config import parse_flags
from common.errors import UserError
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.distillation.pruning import (
    TARGETS,
    SparsityMask,
    masks,
    prunable,
    set_zero,
    share_of_target,
    smallest,
    sparsity_by_part,
)
from compression.shrinking.settings import CompressSettings, defaults_for


def pruned(student, arch="bilstm", embedding="bpe", **given):
    parts = prunable(student)
    set_zero(parts, masks(parts, tiny.compress_settings(task="sst-2", **given)))
    return parts


def zeros(part):
    return int((part.weight == 0).sum())


@pytest.mark.parametrize(
    ("arch", "embedding"), [*((arch, "bpe") for arch in tiny.POOLINGS), ("bilstm", "hash"), ("rnn", "char")]
)
def test_each_matrix_reaches_its_target_exactly_and_biases_stay(arch, embedding):
    student = shrunk.fresh(arch, embedding)
    before = {name: p.clone() for name, p in student.named_parameters()}
    parts = pruned(student, arch, embedding)
    assert {part.kind for part in parts} <= {arch, embedding, "linear"}
    for part in parts:
        assert zeros(part) == round(TARGETS[part.kind] * part.weight.numel()), part.name
    names = {part.name for part in parts}
    others = {name: p for name, p in student.named_parameters() if name.removesuffix(".value") not in names}
    assert others
    for name, parameter in others.items():
        assert parameter.dim() == 1
        assert torch.equal(parameter, before[name])


def test_the_targets_are_those_of_table_6_3():
    thesis = {"bilstm": 0.5, "rnn": 0.1, "linear": 0.125, "hash": 0.0, "char": 0.3, "bpe": 0.4}
    assert thesis.items() <= TARGETS.items()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_global_pruning_takes_the_smallest_weights_of_all(share):
    student = shrunk.fresh()
    before = torch.cat([part.weight.detach().abs().flatten() for part in prunable(student)])
    after = torch.cat(
        [part.weight.detach().flatten() for part in pruned(student, prune_topv=True, prune_threshold=share)]
    )
    assert int((after == 0).sum()) == round(share * len(before))
    assert share == 0 or before[after == 0].max() <= before[after != 0].min()


@pytest.mark.parametrize(
    ("flags", "everywhere"),
    [
        (["--prune-topv"], 0.5),
        (["--prune-topv", "--no-prune-local"], 0.5),
        (["--prune-topv", "--prune-local"], None),
        (["--prune-local"], None),
        ([], None),
    ],
)
def test_top_v_ranks_all_weights_together_unless_pruning_is_local(flags, everywhere):
    """Without a threshold, all together to the 50 % of the thesis's section 6.2.5, each matrix alone to table 6.3."""
    words = ["--task", "sst-2", "--compression-actions", "distill", "prune", *flags]
    settings = parse_flags(CompressSettings, words, "test", defaults_for)
    parts = prunable(shrunk.fresh())
    before = torch.cat([part.weight.detach().abs().flatten() for part in parts])
    set_zero(parts, masks(parts, settings))
    if everywhere is None:
        assert [zeros(part) for part in parts] == [round(TARGETS[part.kind] * part.weight.numel()) for part in parts]
        return
    after = torch.cat([part.weight.detach().flatten() for part in parts])
    assert int((after == 0).sum()) == round(everywhere * len(after))
    assert before[after == 0].max() <= before[after != 0].min()


@pytest.mark.parametrize(("threshold", "limit"), [(None, 0.05), (0.2, 0.2), (1.5, 1.5)])
def test_magnitude_pruning_takes_what_is_below_the_threshold(threshold, limit):
    before = {name: p.detach() for name, p in shrunk.fresh().named_parameters()}
    for part in pruned(shrunk.fresh(), prune_magnitude=True, prune_threshold=threshold):
        old = before[f"{part.name}.value"]
        assert torch.equal(part.weight, old.masked_fill(old.abs() < limit, 0))


@given(st.integers(1, 40), st.integers(1, 9), st.floats(0, 0.999), st.booleans())
def test_the_mask_has_exactly_as_many_as_asked(rows, columns, share, ties):
    weight = torch.ones(rows, columns) if ties else torch.randn(rows, columns)
    mask = smallest(weight, share)
    assert mask.shape == weight.shape
    assert int(mask.sum()) == round(share * rows * columns)


def test_sparsity_is_reported_by_matrix_part_and_whole():
    parts = pruned(shrunk.fresh("ffn"), "ffn")
    groups = {part.name: [part] for part in parts} | {"total": parts}
    groups |= {group: [p for p in parts if p.name.startswith(group)] for group in ("embedding", "classifier")}
    expected = {name: sum(map(zeros, some)) / sum(p.weight.numel() for p in some) for name, some in groups.items()}
    assert sparsity_by_part(parts) == pytest.approx(expected, abs=1e-6)


def test_the_ramp_is_cubic_and_reaches_its_target():
    assert share_of_target(0.0) == share_of_target(0.1) == 0
    assert share_of_target(0.35) == pytest.approx(1 - 0.5**3)
    assert share_of_target(0.6) == share_of_target(1.0) == 1


def test_a_sparsity_mask_keeps_zeros_and_nothing_else():
    parts = prunable(shrunk.fresh())
    with torch.no_grad():
        parts[0].weight[0] = 0
        mask = SparsityMask(parts)
        mask.start({})
        for part in parts:
            part.weight.fill_(1.0)
    mask.step(0.0, 1.0)
    assert not parts[0].weight[0].any()
    assert parts[0].weight[1:].all()
    assert all(part.weight.all() for part in parts[1:])
    assert (mask.eligible(0.0), mask.state()) == (True, {})


def test_a_saved_student_is_pruned_and_pruned_again(workspace):
    folder = shrunk.shrunk(workspace, "prune", "rnn")
    config = read_config(folder)
    assert (folder.name, config.stage, config.parent) == ("rnn+p", "pruned", "rnn")
    before = load_weights(folder.with_name("rnn"))
    for name, tensor in load_weights(folder).items():
        if tensor.dim() == 1:
            assert torch.equal(tensor, before[name])
        else:
            share = config.compression["sparsity"][name.removesuffix(".value")]
            assert share == pytest.approx((tensor == 0).float().mean().item(), abs=1e-6)
    again = shrunk.shrunk(workspace, "prune", "rnn+p", prune_threshold=0.7, prune_local=True)
    assert again.name.startswith("rnn+p+p")
    assert read_config(again).compression["sparsity"]["total"] == pytest.approx(0.7, abs=0.01)
    quantized = shrunk.shrunk(workspace, "quantize", "rnn")
    with pytest.raises(UserError, match="prune it before quantizing"):
        shrunk.shrunk(workspace, "prune", quantized.name)


def test_distilling_does_not_depend_on_how_its_student_will_be_pruned(workspace):
    given = {"student_arch": "rnn", "embedding_type": "char", "vocab_size": 100, "model_name": "rnn"}
    before = (workspace / "models/sst-2/rnn/model.safetensors").stat().st_mtime_ns
    folders = shrunk.compressed(workspace, "distill", "prune", prune_threshold=0.3, **given)
    assert folders[0].name == "rnn"
    assert folders[1].name.startswith("rnn+p")
    assert (folders[0] / "model.safetensors").stat().st_mtime_ns == before


def test_a_matrix_without_a_weight_left_is_noticed(workspace, capsys):
    given = {"load_trained_model": "bilstm", "prune_threshold": 0.9999}
    shrunk.compressed(workspace, "prune", prune_topv=True, model_name="all", **given)
    noted = [line for line in capsys.readouterr().err.splitlines() if "no weight is left in" in line]
    assert len(noted) == 1
    assert "classifier.0.weight" in noted[0]
    assert noted[0].endswith("--prune-local prunes each matrix by itself")
    shrunk.compressed(workspace, "prune", prune_local=True, model_name="each", load_trained_model="bilstm")
    assert "no weight is left in" not in capsys.readouterr().err
