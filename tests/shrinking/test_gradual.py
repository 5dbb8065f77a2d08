"""Pruning while a student learns, by magnitude and by movement, in distillation and in tuning."""

import pytest
import shrunk
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stops import stopped_in_step

import compression.distillation.trainer
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.distillation.distill import Distill
from compression.distillation.pruning import TARGETS, MovementPruner, Scored, prunable
from compression.shrinking.prune import Prune
from compression.shrinking.settings import CompressSettings
from compression.students.weights import Dense, matrices

MOVEMENT, MAGNITUDE = {"prune_movement": True}, {}


def test_a_scored_matrix_learns_as_equation_3_says():
    torch.manual_seed(0)
    value, inputs, used = torch.randn(3, 4), torch.randn(5, 4), torch.rand(3, 4) > 0.5
    matrix = Scored(value)
    matrix.used.copy_(used)
    assert torch.equal(matrix.dense(), value * used)
    assert not matrix.scores.any()  # computing leaves the scores as they are
    masked = (value * used).requires_grad_()
    (inputs @ masked.T).square().sum().backward()
    for _ in range(2):
        (inputs @ matrix.dense().T).square().sum().backward()
    assert torch.allclose(matrix.scores, -2 * masked.grad * value)  # of unused weights as well
    assert torch.allclose(matrix.value.grad, 2 * masked.grad * used)
    assert matrix.scores[~used].abs().min() > 0


def test_rows_of_a_scored_matrix_are_rows_of_the_whole():
    matrix = Scored(torch.randn(6, 2))
    matrix.used[::2] = False
    ids = torch.tensor([[5, 0], [3, 5]])
    assert torch.equal(matrix.select(ids), matrix.dense()[ids])
    matrix.select(ids).sum().backward()
    assert (matrix.scores != 0).all(1).nonzero().flatten().tolist() == [0, 3, 5]
    assert not matrix.scores[[1, 2, 4]].any()


def movement_pruner(student, **given):
    return MovementPruner(student, tiny.compress_settings(task="sst-2", prune_movement=True, **given))


@settings(max_examples=15)
@given(st.floats(0, 0.99), st.booleans(), st.floats(0.6, 1.0))
def test_exactly_the_weights_of_the_highest_scores_are_used(share, local, progress):
    student = shrunk.fresh("rnn")
    pruner = movement_pruner(student, prune_threshold=share, prune_local=local)
    before = {part.name: part.weight.detach().clone() for part in pruner.parts}
    for part in pruner.parts:
        part.scores.copy_(torch.randn_like(part.scores))
    scores = {part.name: part.scores.clone() for part in pruner.parts}
    pruner.step(0.0, progress)
    pruner.finish()
    assert all(type(matrix) is Dense for _, matrix in matrices(student))
    after = {part.name: part.weight.detach() for part in prunable(student)}
    for names in [[name] for name in after] if local else [list(after)]:
        kept = torch.cat([after[name].flatten() != 0 for name in names])
        values = torch.cat([scores[name].flatten() for name in names])
        assert int((~kept).sum()) == round(share * len(kept))
        if 0 < kept.sum() < len(kept):
            assert values[kept].min() >= values[~kept].max()
    for name, weight in after.items():
        assert torch.equal(weight[weight != 0], before[name][weight != 0])


def test_an_unused_weight_comes_back_when_its_score_rises():
    student = shrunk.fresh("rnn")
    pruner = movement_pruner(student, prune_threshold=0.5, prune_local=True)
    table = student.embedding.table.weight
    for score, used, progress in ((-1.0, False, 0.7), (1.0, True, 0.8)):
        table.scores[0] = score
        pruner.step(progress - 0.1, progress)
        assert (table.used[0] == used).all()


def while_training(workspace, when, **given):
    """Folder of a student pruned while it is distilled or tuned."""
    if when == "distilling":
        values = {"student_arch": "rnn", "embedding_type": "char", "prune_aware": True}
        return shrunk.compressed(workspace, "distill", **{"model_name": "p", **values, **given})[0]
    return shrunk.shrunk(workspace, "prune", "rnn", **{"model_name": "p", "tune_epochs": 1, "tune_lr": 0.01, **given})


@pytest.mark.parametrize(
    ("when", "given", "target"),
    [
        ("distilling", MAGNITUDE, {}),
        ("distilling", MAGNITUDE, {"prune_threshold": 0.5, "prune_local": True}),
        ("distilling", MOVEMENT, {"prune_threshold": 0.5}),
        ("tuning", MAGNITUDE, {"prune_threshold": 0.5}),
        ("tuning", MOVEMENT, {}),
        ("tuning", MOVEMENT, {"prune_threshold": 0.8, "prune_local": True}),
    ],
)
def test_the_target_is_reached_exactly(workspace, when, given, target):
    folder = while_training(workspace, when, **given, **target)
    parts = prunable(shrunk.loaded(folder))
    zeros = {part.name: int((part.weight == 0).sum()) for part in parts}
    if "prune_threshold" in target and "prune_local" not in target:
        assert sum(zeros.values()) == round(0.5 * sum(part.weight.numel() for part in parts))
    else:
        shares = {part.name: target.get("prune_threshold", TARGETS[part.kind]) for part in parts}
        assert zeros == {part.name: round(shares[part.name] * part.weight.numel()) for part in parts}
    reported = read_config(folder).compression["sparsity"]
    assert {part.name: reported[part.name] for part in parts} == pytest.approx(
        {part.name: zeros[part.name] / part.weight.numel() for part in parts}, abs=1e-6
    )


def test_a_threshold_of_magnitudes_holds_after_training(workspace):
    folder = while_training(workspace, "distilling", prune_magnitude=True)
    weights = torch.cat([part.weight.flatten() for part in prunable(shrunk.loaded(folder))])
    assert (weights == 0).any()
    assert not ((weights != 0) & (weights.abs() < 0.04)).any()  # weights move a little after the last selection


@pytest.mark.parametrize("how", [MOVEMENT, MAGNITUDE], ids=["movement", "magnitude"])
def test_the_optimizer_trains_what_is_saved(workspace, how, monkeypatch):
    optimizers, make = [], compression.distillation.trainer.make_optimizer
    monkeypatch.setattr(
        compression.distillation.trainer,
        "make_optimizer",
        lambda *given: optimizers.append(make(*given)) or optimizers[0],
    )
    folder = while_training(workspace, "tuning", prune_threshold=0.5, **how)
    trained = [p.detach() for group in optimizers[0].param_groups for p in group["params"]]
    before, saved = load_weights(folder.with_name("rnn")), load_weights(folder)
    assert len(trained) == len(saved)
    for name, tensor in saved.items():
        assert any(p.shape == tensor.shape and torch.equal(p * (tensor != 0), tensor) for p in trained), name
        assert not torch.equal(tensor[tensor != 0], before[name][tensor != 0]), f"{name}: not trained"


@pytest.mark.parametrize(("when", "how"), [("tuning", MOVEMENT), ("distilling", MAGNITUDE)])
def test_a_stopped_run_ends_with_the_bytes_of_one_never_stopped(distilled, tmp_path, when, how):
    whole, stopped = (tiny.copy_workspace(distilled, tmp_path / name) for name in ("whole", "stopped"))
    given = {"prune_threshold": 0.5, "epochs": 2, "tune_epochs": 2, **how}
    for step in (4, 3):
        with stopped_in_step(step):
            while_training(stopped, when, **given)
    again = while_training(stopped, when, **given)
    assert shrunk.weights_file(again) == shrunk.weights_file(while_training(whole, when, **given))


@pytest.mark.parametrize(
    "more", [{"prune_units": 0.2}, {"prune_movement": True, "prune_threshold": 0.6}, {"prune_vocabulary": 2}]
)
def test_zeros_of_the_parent_stay_zero(workspace, more):
    first = shrunk.shrunk(workspace, "prune", "rnn", prune_threshold=0.4)
    again = shrunk.shrunk(workspace, "prune", first.name, tune_epochs=1, **more)
    before, after = (shrunk.loaded(folder).embedding.table.weight.value for folder in (first, again))
    assert (before == 0).any()
    assert not after[before == 0].any()
    assert not torch.equal(after, before)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "+p"),
        ({"tune_epochs": 1}, "+p-t"),
        ({"prune_movement": True, "tune_epochs": 1}, "+pm-t"),
        ({"prune_units": 0.4, "prune_vocabulary": 2}, "+pu0.4v2"),
        ({"prune_units": 0.25, "prune_threshold": 0.5}, "+pwu0.25"),
    ],
)
def test_names_show_how_a_student_was_pruned(given, name):
    assert Prune.label(tiny.compress_settings(task="sst-2", **given)) == name


def test_pruning_of_units_is_no_part_of_pruning_while_training():
    given = {"task": "sst-2", "teacher": "t", "prune_aware": True, "compression_actions": ["distill", "prune"]}
    plain, units = (CompressSettings(**given, **more) for more in ({}, {"prune_units": 0.5, "prune_vocabulary": 3}))
    assert Distill.of(units) == Distill.of(plain)
    assert units.prune_units == 0.5
