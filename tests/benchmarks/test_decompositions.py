"""benchmarks/decompositions.py: errors and weights of Tucker decompositions, tensor trains and products; its table."""

import itertools
import json
import math
import sys

import numpy as np
import packed_students as made
import pytest
import shrunk
import tiny
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from processes import run_script

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

import decompositions
from logits_change import LogitsProbe
from nearest import (
    allotted_error,
    block_losses,
    losses,
    modes_of,
    nearest_kronecker,
    nearest_train,
    nearest_tucker,
    product_error,
    project,
    ranks_within,
    relative_error,
    smooth,
    triples,
    tucker,
    unfold,
    weights_of,
)

from compression.shrinking.factorize import kronecker

SIZES = {"embedding_dim": 8, "encoder_hidden_dim": 8, "cls_hidden_dim": 8}
"""Of students whose matrices are not left out."""
SHAPES = st.tuples(*[st.integers(2, 6)] * 3)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rebuilt(core, factors):
    """The tensor of a core and its factors [length, rank]."""
    return project(core, [None if factor is None else factor.T for factor in factors])


def error_of(tensor, ranks):
    return relative_error(rebuilt(*tucker(tensor, ranks)), tensor)


@given(SHAPES, st.integers(0, 99), st.data())
def test_a_tensor_of_low_ranks_comes_back_and_its_weights_are_counted(shape, seed, data):
    ranks = [data.draw(st.integers(1, length)) for length in shape]
    assume(all(rank**2 <= math.prod(ranks) for rank in ranks))
    bases = [random(rank, length, seed=seed + 1) for rank, length in zip(ranks, shape, strict=True)]
    tensor = project(random(*ranks, seed=seed), bases)
    core, factors = tucker(tensor, ranks)
    assert torch.allclose(rebuilt(core, factors), tensor, atol=1e-4 * tensor.abs().max().item())
    assert [factor is None for factor in factors] == [rank == length for rank, length in zip(ranks, shape, strict=True)]
    assert weights_of(shape, ranks) == core.numel() + sum(each.numel() for each in factors if each is not None)


@given(SHAPES, st.integers(0, 99))
def test_with_whole_modes_the_core_is_the_tensor(shape, seed):
    tensor = random(*shape, seed=seed)
    core, factors = tucker(tensor, shape)
    assert torch.equal(core, tensor)
    assert factors == [None] * 3
    assert weights_of(shape, shape) == tensor.numel()


@given(SHAPES, st.integers(0, 99), st.data())
def test_an_error_is_between_the_largest_and_the_sum_of_those_of_single_modes(shape, seed, data):
    tensor = random(*shape, seed=seed)
    ranks = [data.draw(st.integers(1, length)) for length in shape]
    single = [
        losses(unfold(tensor, mode))[min(rank, math.prod(shape) // shape[mode])] for mode, rank in enumerate(ranks)
    ]
    assert max(single) - 1e-4 <= error_of(tensor, ranks) <= sum(single) + 1e-4


def test_losses_are_those_of_the_singular_values_left_out():
    weight = random(7, 4)
    squares = torch.linalg.svdvals(weight).square()
    expected = [squares[rank:].sum() / squares.sum() for rank in range(5)]
    for matrix in (weight, weight.T):
        assert losses(matrix) == pytest.approx([each.item() for each in expected], abs=1e-6)


@given(st.tuples(*[st.integers(2, 5)] * 3), st.integers(1, 120), st.booleans())
def test_ranks_are_the_best_within_the_budget(shape, budget, whole):
    tensor = random(*shape)
    lost = [losses(unfold(tensor, mode)) for mode in range(3)]
    if whole:
        lost[1] = None
    possible = {}
    for ranks in itertools.product(*(range(1, length + 1) for length in shape)):
        fits = weights_of(shape, ranks) <= budget and all(rank**2 <= math.prod(ranks) for rank in ranks)
        cuts = sum(rank < length for rank, length in zip(ranks, shape, strict=True))
        if fits and cuts > 1 and (not whole or ranks[1] == shape[1]):
            single = [0 if each is None else each[rank] for each, rank in zip(lost, ranks, strict=True)]
            possible[ranks] = pytest.approx(sum(single)), pytest.approx(max(single))
    found = ranks_within(shape, lost, budget, most=10_000)
    assert all(possible[each.ranks] == (each.bound, each.least) for each in found)
    assert bool(found) == bool(possible)
    if found:
        assert found[0].bound == pytest.approx(min(bound.expected for bound, _ in possible.values()))
        assert ranks_within(shape, lost, budget, most=1) == found[:1]


def test_blocks_of_a_kronecker_product_are_modes():
    factors = [random(2, 3), random(1, 2, seed=1), random(3, 2, seed=2)]
    weight = torch.kron(torch.kron(*factors[:2]), factors[2])
    tensor = modes_of(weight, (2, 1, 3), (3, 2, 2))
    expected = torch.einsum("i,j,k->ijk", *(factor.flatten() for factor in factors))
    assert torch.allclose(tensor, expected, atol=1e-6)


def test_a_tensor_train_of_three_cores_comes_back_within_its_weights():
    cores = random(6, 2), random(2, 4, 3, seed=1), random(3, 6, seed=2)
    tensor = torch.einsum("ia,ajb,bk->ijk", *cores)
    weight = tensor.reshape(2, 3, 2, 2, 3, 2).permute(0, 2, 4, 1, 3, 5).reshape(12, 12)
    assert torch.equal(modes_of(weight, (2, 2, 3), (3, 2, 2)), tensor)
    budget = sum(core.numel() for core in cores)
    assert weights_of((6, 4, 6), (2, 4, 3)) == budget
    lost = block_losses(weight)
    assert torch.allclose(nearest_train(weight, lost, budget), weight, atol=1e-4)
    assert relative_error(nearest_train(weight, lost, budget - 1), weight) > 0.01


def test_a_tucker_decomposition_comes_back_within_its_weights():
    tensor = project(random(2, 3, 2), [random(2, 4, seed=1), random(3, 6, seed=2), random(2, 5, seed=3)])
    budget = weights_of(tensor.shape, (2, 3, 2))
    assert budget == 12 + 8 + 18 + 10
    assert torch.allclose(nearest_tucker(tensor, budget), tensor, atol=1e-4)
    assert relative_error(nearest_tucker(tensor, budget - 1), tensor) > 0.001


def test_errors_fall_with_the_budget():
    weight, tensor = random(12, 8), random(4, 6, 5)
    blocks = block_losses(weight)
    budgets = range(30, 90, 15)
    for errors in (
        [relative_error(nearest_train(weight, blocks, budget), weight) for budget in budgets],
        [relative_error(nearest_kronecker(weight, blocks, budget), weight) for budget in budgets],
        [relative_error(nearest_tucker(tensor, budget), tensor) for budget in budgets],
        [product_error(blocks[1, 1], weight.shape, budget) for budget in budgets],
    ):
        assert errors == sorted(errors, reverse=True)
        assert errors[0] > errors[-1]
    assert nearest_tucker(tensor, 10) is nearest_train(weight, blocks, 10) is None


@pytest.mark.parametrize("shape", [(12, 8), (9, 10)])
def test_a_sum_of_kronecker_products_is_that_of_factorize(shape):
    weight = random(*shape)
    near = nearest_kronecker(weight, block_losses(weight), 2 * sum(shape))
    assert torch.allclose(near, kronecker(weight, 2).dense(), atol=1e-4)


@given(st.integers(0, 99), st.integers(2, 4), st.integers(1, 4))
def test_allotted_ranks_are_the_best_of_matrices_of_one_shape(seed, count, rank):
    weights = [random(5, 4, seed=seed + index) ** 3 for index in range(count)]
    lost = [losses(weight) for weight in weights]
    every = itertools.product(range(5), repeat=count)
    best = min(np.mean([each[r] for each, r in zip(lost, ranks, strict=True)]) for ranks in every if sum(ranks) == rank)
    assert allotted_error(lost, [(5, 4)] * count, 9 * rank + 8) == pytest.approx(best)


def test_numbers():
    assert [smooth(number) for number in (1, 210, 211, 30518)] == [1, 210, 216, 30618]
    assert sorted(triples(4)) == [(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1)]


def test_matrices_that_share_a_factor_have_no_error():
    right = random(2, 6)
    weights = [random(rows, 2, seed=rows) @ right for rows in (18, 19)]
    (errors,) = decompositions.together("equal columns", weights, [0.5])
    assert errors["shared right"] == pytest.approx(0, abs=1e-6)
    assert errors.keys() == {"ranks allotted", "shared right"}
    (errors,) = decompositions.together("recurrent layer", [weight.T for weight in weights], [0.5])
    assert errors["shared left"] == pytest.approx(0, abs=1e-6)
    assert errors.keys() == {"ranks allotted", "shared left"}


def test_groups_have_one_matrix_of_all_layers_or_equal_sizes():
    sizes = {"ih": 3, "hh": 2}
    lstm = {f"encoder.{way}_rnn.weight_{of}": (8, sizes[of]) for way in ("forward", "backward") for of in sizes}
    assert decompositions.groups({"embedding.table.weight": (20, 3), **lstm}) == {
        ("input", "encoder.rnn.weight_ih"): ["encoder.forward_rnn.weight_ih", "encoder.backward_rnn.weight_ih"],
        ("recurrent", "encoder.rnn.weight_hh"): ["encoder.forward_rnn.weight_hh", "encoder.backward_rnn.weight_hh"],
        ("recurrent layer", "encoder.forward_rnn"): list(lstm)[:2],
        ("recurrent layer", "encoder.backward_rnn"): list(lstm)[2:],
        ("equal rows", "8"): list(lstm),
        ("equal columns", "3"): ["embedding.table.weight", *list(lstm)[::2]],
        ("equal columns", "2"): list(lstm)[1::2],
    }
    blocks = {f"encoder.blocks.{layer}.{name}.weight": (4, 4) for layer in (0, 1) for name in ("attention.key", "up")}
    found = decompositions.groups(blocks)
    assert found["attention", "encoder.blocks.attention.key.weight"] == list(blocks)[::2]
    assert found["feed-forward", "encoder.blocks.up.weight"] == list(blocks)[1::2]


def measured(capsys, *words):
    """Exit code, standard output and last line of standard error of the script."""
    code = run_script("benchmarks/decompositions.py", *words)
    out, err = capsys.readouterr()
    return code, out, err.splitlines()[-1]


def test_a_table_has_the_mean_of_each_kind(tmp_path, capsys):
    lstm = made.write_student(tmp_path / "lstm", "bilstm", "bpe", **SIZES)
    other = made.write_student(tmp_path / "transformer", "transformer", "wordpiece", **SIZES)
    code, out, _ = measured(capsys, lstm, other, "--shares", 0.5, "--json")
    assert code == 0
    result = json.loads(out)
    lines = {line["kind"]: line for line in result["means"]}
    assert {"embedding", "input", "recurrent", "attention", "feed-forward", "classifier"} <= lines.keys()
    assert {"recurrent layer", "equal rows", "equal columns"} <= lines.keys()
    assert all(0 <= error < 1 for row in result["rows"] for error in row["errors"][0].values())
    first, second, both = (row["errors"][0] for row in result["rows"] if row["kind"] == "input")
    assert lines["input"]["low rank"] == pytest.approx((first["low rank"] + second["low rank"]) / 2)
    assert lines["input"]["shared left"] == both["shared left"]
    code, out, _ = measured(capsys, lstm, "--shares", 0.5)
    header, _, line, *_ = out.splitlines()
    assert header.split("  ")[0] == "kind"
    assert line.split()[0] == "embedding"


def test_a_folded_matrix_of_full_rank_is_the_same_alignment():
    weight, own, read = random(5, 12), random(7, 3, seed=1), random(7, 3, seed=2)
    inputs = torch.cat([own, read, own - read, own * read], 1)
    near = decompositions.nearest_folded(weight, 5 * (5 + 9))
    assert torch.equal(near[:, 6:9], torch.zeros(5, 3))
    assert torch.allclose(inputs @ near.T, inputs @ weight.T, atol=1e-4)


@pytest.mark.slow
def test_logits_change_with_the_matrices_that_are_replaced(prepared, tmp_path, capsys):
    workspace = tiny.copy_workspace(prepared, tmp_path / "workspace")
    kind = {"student_arch": "bilstm", "embedding_type": "bpe", "vocab_size": 100}
    (folder,) = shrunk.compressed(workspace, "distill", **kind, **SIZES)
    probe = LogitsProbe(folder)
    weight = probe.student.embedding.table.weight.dense().detach()
    assert probe.change({"embedding.table.weight": weight}) == 0
    assert probe.change({"embedding.table.weight": 0 * weight}) > 0
    assert (probe.uses["embedding.table.weight"] > 0).any()
    code, out, _ = measured(capsys, folder, "--logits", "--json")
    assert code == 0
    few, many = (line for line in json.loads(out)["means"] if line["kind"] == "logits, embedding")
    assert few["low rank"] > many["low rank"] > 0


def test_students_that_are_not_dense_are_refused(tmp_path, capsys):
    for form in ("affine-row", "product"):
        student = made.write_student(tmp_path / form, "bilstm", "bpe", form)
        code, _, error = measured(capsys, student)
        assert code == 2
        assert error == f"error: {student}: this benchmark is of students before they are factorized or quantized"
    code, _, error = measured(capsys, tmp_path / "nothing")
    assert code == 2
    assert error.startswith("error: ")
