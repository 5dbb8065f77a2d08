"""Quantization-aware training: it computes with what will be saved, gradients go straight through, and it helps."""

import itertools

import numpy as np
import pytest
import shrunk
import torch

from compression.shrinking.quantization.builder import UPDATES, FakeQuantized, RangeUpdater, convert
from compression.shrinking.quantization.scheme import Scheme
from compression.students.batch import Batch
from compression.students.weights import Affine, Codebook, matrices, replace_matrix

SCHEMES = [
    Scheme("affine", 2, "tensor"),
    Scheme("affine", 3, "column", "minmax"),
    Scheme("ternary", 2),
    Scheme("codebook", 3, "tensor"),
]


def weights():
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
    weight[:, ::3] = 0
    return weight


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_it_computes_with_what_is_saved_and_gradients_go_straight_through(scheme):
    matrix, factors, pruned = FakeQuantized(weights(), scheme), torch.arange(48.0).view(6, 8), weights() == 0
    with torch.no_grad():
        matrix.value += 0.1 * weights()
    saved = matrix.quantized()
    assert isinstance(saved, Codebook if scheme.quantizer == "codebook" else Affine)
    assert torch.equal(matrix.dense(), saved.dense())
    ids = torch.tensor([[3, 0], [3, 5]])
    assert torch.equal(matrix.select(ids), saved.select(ids))
    (matrix.dense() * factors).sum().backward()
    assert torch.equal(matrix.value.grad, factors.masked_fill(pruned, 0))
    matrix.value.grad = None
    matrix.select(torch.tensor([1, 1])).sum().backward()
    expected = torch.zeros(6, 8)
    expected[1] = 2.0
    assert torch.equal(matrix.value.grad, expected.masked_fill(pruned, 0))


@pytest.mark.parametrize(
    "scheme", [Scheme("affine", 3, "tensor"), Scheme("coded", 3, "row"), Scheme("ternary", 2)], ids=str
)
def test_with_stochastic_rounding_the_mean_weight_is_the_exact_one(scheme):
    torch.manual_seed(0)
    matrix, pruned = FakeQuantized(weights(), scheme, stochastic=True), weights() == 0
    with torch.no_grad():
        draws = torch.stack([matrix.dense() for _ in range(4000)])
        saved = matrix.eval().dense()
    assert torch.equal(saved, FakeQuantized(weights(), scheme).dense())
    assert not draws[:, pruned].any()
    inside = (weights() > draws.amin(0)) & (weights() < draws.amax(0))  # others are beyond the first or last code
    assert inside.sum() > 10
    error = (draws.mean(0) - weights()).abs() / matrix.scale
    assert error[inside].max() < 4 * 0.5 / 4000**0.5


def test_converting_changes_no_logit():
    student = shrunk.fresh()
    for name, matrix in list(matrices(student)):
        replace_matrix(student, name, FakeQuantized(matrix.dense().detach(), Scheme("affine", 3)))
    text = Batch(torch.randint(0, 40, (3, 9, 1)), torch.tensor([9, 2, 5]))
    with torch.no_grad():
        before = student(text)
        convert(student)
        assert torch.equal(student(text), before)
    assert all(isinstance(matrix, Affine) for _, matrix in matrices(student))


def test_ranges_follow_the_weights_now_and_then():
    student = shrunk.fresh()
    matrix = FakeQuantized(weights(), Scheme("affine", 3))
    replace_matrix(student, "classifier.0.weight", matrix)
    updater, steps, updates = RangeUpdater(student), 60, 0
    for before, after in itertools.pairwise(step / steps for step in range(steps + 1)):
        with torch.no_grad():
            matrix.value *= 1.03
        scale = matrix.scale
        updater.step(before, after)
        updates += not torch.equal(matrix.scale, scale)
    assert updates == UPDATES
    assert updater.eligible(0.0)
    assert torch.equal(matrix.scale, Scheme("affine", 3).fit(matrix.value.detach())["scale"])


def test_training_brings_a_student_of_two_bits_nearer_to_what_it_was(workspace):
    given = {"bits": 2, "guide": "student", "tune_lr": 0.01, "loss": "mse", "alpha": 0.0}  # a distance of logits
    at_once = shrunk.shrunk(workspace, "quantize", "learned", **given)
    tuned = shrunk.shrunk(workspace, "quantize", "learned", tune_epochs=4, only_original_data=False, **given)
    assert tuned.name.startswith(f"{at_once.name}-t4s")
    exact, *changed = (shrunk.logits(folder, workspace) for folder in (at_once.with_name("learned"), at_once, tuned))
    before, after = (float(np.square(other - exact).mean()) for other in changed)
    assert after < 0.7 * before


@pytest.mark.parametrize("guide", ["teacher", "student"])
def test_the_same_command_gives_the_same_bytes(workspace, guide):
    given = {"bits": 3, "quantizer": "codebook", "guide": guide, "tune_epochs": 1, "alpha": 0.0}
    once = shrunk.weights_file(shrunk.shrunk(workspace, "quantize", "ffn", **given))
    assert shrunk.weights_file(shrunk.shrunk(workspace, "quantize", "ffn", force=True, **given)) == once
