"""Low-rank factorisation: the nearest product, where it is smaller, and students that go on through every stage."""

import numpy as np
import pytest
import shrunk
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.shrinking.factorize import cut, kronecker, low_rank, rank_of
from compression.students.weights import Dense, Product, restore_matrices

SHAPES = st.tuples(st.integers(2, 12), st.integers(2, 9))


def random_matrix(rows, columns, seed):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@given(SHAPES, st.integers(0, 99), st.data())
def test_a_matrix_of_low_rank_comes_back_whatever_its_rows_count(shape, seed, data):
    rank = data.draw(st.integers(1, min(shape)))
    weight = random_matrix(shape[0], rank, seed) @ random_matrix(rank, shape[1], seed + 1)
    uses = data.draw(st.none() | st.lists(st.integers(0, 1000), min_size=shape[0], max_size=shape[0]))
    product = low_rank(weight, rank, None if uses is None else np.array(uses))
    assert (product.left.value.shape, product.right.value.shape) == ((shape[0], rank), (rank, shape[1]))
    assert torch.allclose(product.dense(), weight, atol=2e-3 * weight.abs().max().item())


@given(SHAPES, st.integers(0, 99), st.data())
def test_the_error_is_that_of_the_singular_values_left_out_and_factors_are_of_one_size(shape, seed, data):
    weight, rank = random_matrix(*shape, seed), data.draw(st.integers(1, min(shape)))
    product = low_rank(weight, rank)
    error = (product.dense() - weight).norm().item()
    assert error == pytest.approx(torch.linalg.svdvals(weight)[rank:].norm().item(), abs=1e-4)
    assert torch.allclose(product.left.value.norm(dim=0), product.right.value.norm(dim=1), rtol=1e-3, atol=1e-5)


@given(st.lists(st.integers(1, 4), min_size=4, max_size=4), st.integers(0, 99))
def test_blocks_of_a_matrix_are_a_product_that_gives_it_back(sides, seed):
    down, height, across, width = sides
    weight = random_matrix(down * height, across * width, seed)
    blocks = cut(weight, across, height)
    assert torch.equal(blocks[-1], weight[-height:, -width:].flatten())
    product = Product(Dense(blocks), Dense(torch.eye(height * width)), across, height)
    assert torch.equal(product.dense(), weight)
    assert torch.equal(product.select(torch.tensor([[0, len(weight) - 1]])), weight[[0, -1]][None])


@given(st.integers(0, 99))
def test_a_sum_of_kronecker_products_comes_back(seed):
    left, right = random_matrix(4, 3, seed), random_matrix(3, 5, seed + 1)
    weight = torch.kron(left, right) + torch.kron(left.flip(0), right.flip(1))
    product = kronecker(weight, 3)
    assert product.left.value.numel() + product.right.value.numel() <= 3 * sum(weight.shape)
    assert torch.allclose(product.dense(), weight, atol=1e-4 * weight.abs().max().item())


@given(SHAPES, st.integers(0, 99), st.data())
def test_kronecker_products_are_as_near_as_low_rank_or_nearer(shape, seed, data):
    weight, rank = random_matrix(*shape, seed), data.draw(st.integers(1, min(shape)))
    lost, lost_by_rank = ((each(weight, rank).dense() - weight).norm().item() for each in (kronecker, low_rank))
    assert lost <= lost_by_rank + 1e-3


def test_a_matrix_of_low_rank_stays_one():
    weight = random_matrix(12, 2, 0) @ random_matrix(2, 8, 1)
    assert not kronecker(weight, 2).has_blocks


def test_rows_that_text_uses_are_kept_better():
    for seed in range(20):
        weight, uses = random_matrix(12, 6, seed), np.array([1000] * 3 + [0] * 9)
        plain, weighted = ((low_rank(weight, 2, each).dense() - weight).detach() for each in (None, uses))
        assert weighted[:3].norm() < plain[:3].norm()
        assert weighted.norm() > plain.norm()


@pytest.mark.parametrize(
    ("value", "shape", "rank"), [(0.5, (40, 6), 3), (0.01, (40, 6), 1), (4, (40, 6), 4), (1, (3, 9), 1)]
)
def test_a_rank_is_a_share_or_a_number(value, shape, rank):
    assert rank_of(value, torch.Size(shape)) == rank


def test_only_what_gets_smaller_is_factorized(workspace):
    folder = shrunk.shrunk(workspace, "factorize", "bilstm", rank=4)
    config = read_config(folder)
    assert (folder.name, config.stage, config.parent) == ("bilstm+f4", "factorized", "bilstm")
    before, after = load_weights(folder.with_name("bilstm")), load_weights(folder)
    ranks = config.compression["rank"]
    assert "embedding.table.weight" in ranks
    assert "encoder.forward_rnn.weight_hh" not in ranks
    for name in (name.removesuffix(".value") for name in before if name.endswith(".value")):
        rows, columns = before[f"{name}.value"].shape
        if 4 * (rows + columns) < rows * columns:
            assert ranks.pop(name) == 4
            assert after[f"{name}.left.value"].shape == (rows, 4)
            assert after[f"{name}.right.value"].shape == (4, columns)
        else:
            assert torch.equal(after[f"{name}.value"], before[f"{name}.value"])
    assert not ranks


def test_tuning_trains_the_factors_of_the_parts_picked(workspace):
    given = {"rank": 2, "factorize": ("encoder",)}
    plain = shrunk.shrunk(workspace, "factorize", "bilstm", **given)
    ranks = read_config(plain).compression["rank"]
    assert {name.split(".")[0] for name in ranks} == {"encoder"}
    assert set(ranks.values()) == {2}
    folder = shrunk.shrunk(workspace, "factorize", "bilstm", tune_epochs=1, tune_lr=0.01, **given)
    assert folder.name.startswith("bilstm+f2-t")
    tuned, untuned = load_weights(folder), load_weights(plain)
    assert tuned.keys() == untuned.keys()
    assert not any(torch.equal(tuned[name], untuned[name]) for name in tuned)


@pytest.mark.parametrize(
    ("arch", "matrix"),
    [("bilstm", "forward_rnn.weight_ih"), ("gru", "forward_rnn.weight_ih"), ("conv", "convolution.weight")],
)
def test_later_stages_take_products(workspace, arch, matrix):
    factorized, pruned, quantized = shrunk.compressed(
        workspace,
        *("factorize", "prune", "quantize"),
        **{"load_trained_model": arch, "rank": 2, "prune_units": 0.4, "prune_threshold": 0.3},
    )
    config = read_config(pruned)
    assert isinstance(shrunk.loaded(pruned).encoder.get_submodule(matrix), Product)
    assert config.student["encoder_hidden_dim"] == 3
    assert config.compression["rank"] == read_config(factorized).compression["rank"]
    assert config.compression["sparsity"]["total"] == pytest.approx(0.3, abs=0.01)
    assert np.isfinite(shrunk.logits(quantized, workspace)).all()
    with pytest.raises(UserError, match="nothing left to factorize in embedding"):
        shrunk.shrunk(workspace, "factorize", factorized.name, factorize=("embedding",))


def test_sums_of_kronecker_products_are_saved_and_keep_their_units(workspace):
    given = {"rank": 2, "decomposition": "kronecker"}
    folder = shrunk.shrunk(workspace, "factorize", "bilstm", **given)
    assert folder.name == "bilstm+f2k"
    student = shrunk.loaded(folder)
    products = {name: module for name, module in student.named_modules() if isinstance(module, Product)}
    assert any(product.has_blocks for product in products.values())
    assert not products["embedding.table.weight"].has_blocks
    for action, flags in {"prune": {"prune_threshold": 0.3}, "quantize": {"bits": 4, "tune_epochs": 1}}.items():
        assert np.isfinite(shrunk.logits(shrunk.shrunk(workspace, action, folder.name, **flags), workspace)).all()
    with pytest.raises(UserError, match="prune units before factorizing"):
        shrunk.shrunk(workspace, "prune", folder.name, prune_units=0.4)


@pytest.mark.parametrize("blocks", [(0, 1), (1, -2), (2, 1), (1, 4)])
def test_blocks_that_do_not_fit_their_factors_are_refused(blocks):
    tensors = {"left.value": torch.ones(3, 2), "right.value": torch.ones(2, 6), "blocks": torch.tensor(blocks)}
    with pytest.raises(UserError, match="cannot be cut into blocks"):
        Product.from_tensors(tensors)


@pytest.mark.parametrize(
    "tensors",
    [
        {"w.left.value": torch.ones(3, 2), "w.right.value": torch.ones(2, 6), "w.blocks": torch.ones(3)},
        {"w.left.value": torch.ones(3, 2), "w.right.value": torch.ones(2, 6), "w.blocks": torch.tensor(1)},
        {"w.codes": torch.full((3, 6), 4, dtype=torch.uint8), "w.codebook": torch.ones(1, 4)},
    ],
)
def test_malformed_matrices_are_refused(tensors):
    student = torch.nn.Module()
    student.w = Dense(torch.zeros(3, 6))
    with pytest.raises(UserError, match=r"^w: "):
        restore_matrices(student, tensors)


def test_what_cannot_be_factorized_is_refused(workspace):
    shrunk.shrunk(workspace, "quantize", "bilstm")
    shrunk.shrunk(workspace, "quantize", "bilstm", dq_classifier=True, model_name="c")
    for message, wrong in {
        "factorize it before quantizing": {"load_trained_model": "bilstm+q"},
        "c is quantized": {"load_trained_model": "c", "factorize": ("encoder",)},
        "--rank 50 is higher than the rank of every matrix": {"rank": 50},
        "the highest is 6": {"rank": 7, "factorize": ("embedding",)},
        "no product would be smaller than its matrix": {"rank": 6, "factorize": ("embedding",)},
    }.items():
        with pytest.raises(UserError, match=message):
            shrunk.compressed(workspace, "factorize", **{"load_trained_model": "bilstm", "model_name": "f", **wrong})
    assert not (workspace / "models/sst-2/f").exists()
