"""Movement pruning: scores are learned as the paper has it, and the optimizer trains what is saved."""

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

import common.training.loop
import compression.distillation.trainer
from common.errors import UserError
from common.training.checkpoint import load_tensors
from compression.distillation.callbacks import CallbackList
from compression.distillation.losses import combined
from compression.shrinking.chain import compress
from compression.shrinking.prune import suffix
from compression.shrinking.pruning.movement import MovementPruner, Scored
from compression.shrinking.pruning.weights import TARGETS, SparsityMask, prunable
from compression.students.saved import load_student
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.students.weights import Dense, matrices

CPU = torch.device("cpu")
HOW = [{"prune_movement": True}, {}]
HOW_NAMES = ["movement", "magnitude"]


def made(workspace, *actions, **given):
    values = tiny.small(student_arch="rnn", embedding_type="char", alpha=1.0, only_original_data=True)
    if "distill" not in actions:
        values["load_trained_model"] = "s"
    settings = {"model_name": "s", **values, **given}
    return compress(tiny.compress_settings(task="sst-2", workspace=workspace, compression_actions=actions, **settings))


def tuned(workspace, **given):
    """Folders of a student and of what pruning while tuning made of it."""
    return [
        *made(workspace, "distill"),
        *made(workspace, "prune", **{"model_name": "p", "tune_epochs": 2, "tune_lr": 0.01, **given}),
    ]


def test_a_scored_matrix_learns_as_equation_3_says():
    torch.manual_seed(0)
    value, inputs, used = torch.randn(3, 4), torch.randn(5, 4), torch.rand(3, 4) > 0.5
    matrix = Scored(value)
    matrix.used.copy_(used)
    assert torch.equal(matrix.dense(), value * used)
    masked = (value * used).requires_grad_()
    (inputs @ masked.T).square().sum().backward()
    for _ in range(2):
        (inputs @ matrix.dense().T).square().sum().backward()
    assert torch.allclose(matrix.scores, -2 * masked.grad * value)  # of weights left out as well
    assert torch.allclose(matrix.value.grad, 2 * masked.grad * used)
    assert matrix.scores[~used].abs().min() > 0


def test_rows_of_a_scored_matrix_are_rows_of_its_whole():
    matrix = Scored(torch.randn(6, 2))
    matrix.used[::2] = False
    ids = torch.tensor([[5, 0], [3, 5]])
    assert torch.equal(matrix.select(ids), matrix.dense()[ids])
    matrix.select(ids).sum().backward()
    assert torch.equal(
        matrix.scores != 0, torch.tensor([0, 3, 5])[:, None].eq(torch.arange(6)).any(0)[:, None].expand(6, 2)
    )


def test_looking_at_a_scored_matrix_leaves_its_scores():
    matrix = Scored(torch.randn(3, 3))
    with torch.no_grad():
        matrix.dense()
    assert not matrix.scores.any()


def small_student():
    torch.manual_seed(1)
    sizes = {"embedding_dim": 6, "vocab_size": 40, "encoder_hidden_dim": 5, "cls_hidden_dim": 7}
    return Student("rnn", StudentSettings(embedding_type="bpe", **sizes), outputs=2, pair=False)


@given(st.floats(0, 0.99), st.booleans(), st.floats(0.6, 1.0))
def test_the_weights_of_the_highest_scores_are_used_exactly_as_many_as_asked(share, local, progress):
    student = small_student()
    settings = tiny.compress_settings(task="sst-2", prune_movement=True, prune_threshold=share, prune_local=local)
    pruner = MovementPruner(student, "rnn", "bpe", settings)
    before = {part.name: part.weight.detach().clone() for part in pruner.parts}
    for part in pruner.parts:
        part.scores.copy_(torch.randn_like(part.scores))
    scores = {part.name: part.scores.clone() for part in pruner.parts}
    pruner.step(0.0, progress)
    pruner.finish()
    after = {part.name: part.weight.detach() for part in prunable(student, "rnn", "bpe")}
    assert all(isinstance(matrix, Dense) for _, matrix in matrices(student))
    groups = [[name] for name in after] if local else [list(after)]
    for names in groups:
        kept = torch.cat([after[name].flatten() != 0 for name in names])
        worth = torch.cat([scores[name].flatten() for name in names])
        assert int((~kept).sum()) == round(share * len(kept))
        if 0 < kept.sum() < len(kept):
            assert worth[kept].min() >= worth[~kept].max()
    for name, weight in after.items():
        assert torch.equal(weight[weight != 0], before[name][weight != 0])


def test_a_weight_left_out_comes_back_when_its_score_rises():
    student = small_student()
    settings = tiny.compress_settings(task="sst-2", prune_movement=True, prune_threshold=0.5, prune_local=True)
    pruner = MovementPruner(student, "rnn", "bpe", settings)
    table = student.embedding.table.weight
    table.scores[0] = -1.0
    pruner.step(0.0, 0.7)
    assert not table.used[0].any()
    table.scores[0] = 1.0
    pruner.step(0.7, 0.8)
    assert table.used[0].all()


@pytest.mark.parametrize("how", HOW, ids=HOW_NAMES)
@pytest.mark.parametrize("target", [{}, {"prune_threshold": 0.5}, {"prune_threshold": 0.8, "prune_local": True}])
def test_pruning_while_tuning_reaches_the_target(workspace, how, target):
    _, folder = tuned(workspace, **how, **target)
    student, _, config = load_student(folder, CPU)
    parts = prunable(student, "rnn", "char")
    zeros = {part.name: int((part.weight == 0).sum()) for part in parts}
    if target.get("prune_threshold") and not target.get("prune_local"):
        assert sum(zeros.values()) == round(0.5 * sum(part.weight.numel() for part in parts))
    else:
        share = {part.name: target.get("prune_threshold", TARGETS[part.kind]) for part in parts}
        assert zeros == {part.name: round(share[part.name] * part.weight.numel()) for part in parts}
    for part in parts:
        assert config.compression["sparsity"][part.name] == pytest.approx(
            zeros[part.name] / part.weight.numel(), abs=1e-6
        )


@pytest.mark.parametrize("how", HOW, ids=HOW_NAMES)
def test_the_optimizer_trains_what_is_saved(workspace, how, monkeypatch):
    optimizers = []
    make = compression.distillation.trainer.make_optimizer

    def noted(*arguments):
        optimizers.append(make(*arguments))
        return optimizers[-1]

    made(workspace, "distill")
    monkeypatch.setattr(compression.distillation.trainer, "make_optimizer", noted)
    made(workspace, "prune", model_name="p", tune_epochs=1, prune_threshold=0.5, **how)
    trained = [p.detach() for group in optimizers[0].param_groups for p in group["params"]]
    paths = workspace / "models" / "sst-2"
    before, saved = (load_tensors(paths / name / "model.safetensors")[0] for name in ("s", "p"))
    assert len(trained) == len(saved)
    for name, tensor in saved.items():
        same = [p for p in trained if p.shape == tensor.shape and torch.equal((p * (tensor != 0)), tensor)]
        assert same, f"{name}: not what the optimizer held"
        assert not torch.equal(tensor[tensor != 0], before[name][tensor != 0]), f"{name}: not trained"


@pytest.mark.parametrize("how", HOW, ids=HOW_NAMES)
@pytest.mark.parametrize("when", ["tuning", "distilling"])
def test_a_stopped_run_ends_with_the_bytes_of_one_never_stopped(prepared, tmp_path, monkeypatch, how, when):
    class Stopped(Exception):
        pass

    def stopping_after(steps):
        left = iter(range(steps))

        def loss(*arguments):
            if next(left, None) is None:
                raise Stopped
            return combined(*arguments)

        return loss

    def run(workspace):
        if when == "distilling":
            return made(workspace, "distill", prune_aware=True, prune_threshold=0.5, **how)[-1]
        return made(workspace, "prune", model_name="p", tune_epochs=2, prune_threshold=0.5, **how)[-1]

    places = [tiny.copy_workspace(prepared, tmp_path / name) for name in ("whole", "stopped")]
    if when == "tuning":
        for place in places:
            made(place, "distill")
    whole = run(places[0])
    monkeypatch.setattr(common.training.loop, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    for steps in (4, 5):
        monkeypatch.setattr(compression.distillation.trainer, "combined", stopping_after(steps))
        with pytest.raises(Stopped):
            run(places[1])
    monkeypatch.setattr(compression.distillation.trainer, "combined", combined)
    again = run(places[1])
    assert (again / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert not again.with_name(f"{again.name}.training").exists()


def test_distilling_with_movement_pruning_saves_a_plain_student(workspace):
    (folder,) = made(workspace, "distill", prune_aware=True, prune_movement=True, prune_threshold=0.5, epochs=3)
    student, _, config = load_student(folder, CPU)
    parts = prunable(student, "rnn", "char")
    weights = sum(part.weight.numel() for part in parts)
    assert sum(int((part.weight == 0).sum()) for part in parts) == round(0.5 * weights)
    assert config.compression["sparsity"]["total"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("more", [{"prune_units": 0.2}, {"prune_movement": True, "prune_threshold": 0.6}, {}])
def test_zeros_a_student_came_with_stay_zero(workspace, more):
    made(workspace, "distill")
    (first,) = made(workspace, "prune", model_name="first", prune_threshold=0.4)
    more = more or {"prune_vocabulary": 2}
    (again,) = made(workspace, "prune", load_trained_model="first", model_name="again", tune_epochs=2, **more)
    before, after = (load_student(folder, CPU)[0] for folder in (first, again))
    before, after = (student.embedding.table.weight.value for student in (before, after))
    assert (before == 0).any()
    assert (after[before == 0] == 0).all()
    assert not torch.equal(after, before)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "+p"),
        ({"tune_epochs": 1}, "+p-t"),
        ({"prune_movement": True, "tune_epochs": 1}, "+pm-t"),
        ({"prune_units": 0.4, "prune_vocabulary": 2}, "+pu0.4v2"),
        ({"prune_units": 0.25, "prune_threshold": 0.5}, "+pwu0.25"),
        ({"prune_vocabulary": 3, "prune_movement": True, "tune_epochs": 2}, "+pmv3-t"),
    ],
)
def test_names_tell_what_was_done(given, told):
    assert suffix(tiny.compress_settings(task="sst-2", **given)) == told


def test_movement_needs_training(workspace):
    made(workspace, "distill")
    with pytest.raises(UserError, match="--tune-epochs"):
        made(workspace, "prune", model_name="p", prune_movement=True)


def test_callbacks_run_one_after_the_other():
    student = small_student()
    parts = prunable(student, "rnn", "bpe")
    with torch.no_grad():
        parts[0].weight[0] = 0
    keeper = SparsityMask(parts)
    both = CallbackList([keeper, SparsityMask(parts[:1])])
    both.start({})
    with torch.no_grad():
        for part in parts:
            part.weight.add_(1.0)
    both.step(0.0, 1.0)
    assert not parts[0].weight[0].any()
    assert (parts[0].weight[1:] != 0).all()
    assert both.eligible(0.0)
    assert both.state() == {}
