"""Quantizers: small errors, zeros that stay zero, few codes, and matrices that a weights file gives back."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from common.errors import UserError
from compression.shrinking.quantization.budget import coded_size
from compression.shrinking.quantization.scheme import BITS, CODED_BITS, MOST_CODES, POWER, Scheme, k_means, nearest
from compression.students.weights import Affine, Codebook, Half, Matrix

MATRICES = arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(2, 9)),
    elements=st.one_of(st.just(0.0), st.floats(-1000, 1000, width=32)),
).map(torch.from_numpy)
AFFINE = [
    Scheme("affine", bits, granularity, ranges)
    for bits, granularity, ranges in itertools.product(BITS, ("row", "column", "tensor"), ("fitted", "minmax"))
]
TERNARY = [Scheme("ternary", 2, granularity) for granularity in ("row", "column", "tensor")]
CODED = [
    Scheme("coded", bits, granularity)
    for bits, granularity in itertools.product(CODED_BITS, ("row", "column", "tensor"))
]
CODEBOOK = [Scheme("codebook", bits, granularity) for bits, granularity in itertools.product(BITS, ("row", "tensor"))]

some_examples = settings(max_examples=40)


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def relative_error(scheme, weight):
    return float((scheme.quantize(weight).dense() - weight).square().mean() / weight.square().mean())


@settings(max_examples=80)
@given(MATRICES, st.sampled_from([*AFFINE, *TERNARY, *CODED, *CODEBOOK]))
def test_codes_keep_zeros_fit_their_bits_and_are_stable(weight, scheme):
    ranges = scheme.fit(weight)
    matrix = scheme.code(weight, ranges)
    back = matrix.dense()
    assert back.shape == weight.shape
    assert torch.isfinite(back).all()
    assert (back[weight == 0] == 0).all()
    assert matrix.codes.dtype == torch.uint8
    assert scheme.levels == (3 if scheme.quantizer == "ternary" else 2**scheme.bits)
    assert int(matrix.codes.max()) < (MOST_CODES if scheme.quantizer == "coded" else scheme.levels)
    assert torch.equal(scheme.code(back, ranges).dense(), back)
    again = Matrix.from_tensors(matrix.state_dict())
    assert type(again) is type(matrix)
    assert torch.equal(again.dense(), back)


@some_examples
@given(MATRICES, st.sampled_from(BITS), st.sampled_from(["row", "column", "tensor"]))
def test_rounding_is_off_by_half_a_step_at_most_and_fitted_ranges_are_no_worse(weight, bits, granularity):
    whole = Scheme("affine", bits, granularity, "minmax").quantize(weight)
    fitted = Scheme("affine", bits, granularity, "fitted").quantize(weight)
    least, most = ((m.dense() - weight).abs() for m in (fitted, whole))
    assert (most <= 0.5 * whole.scale * 1.001 + 1e-30).all()
    assert least.double().pow(POWER).sum() <= most.double().pow(POWER).sum() * (1 + 1e-4) + 1e-30


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_fitted_ranges_cut_off_an_outlier(bits):
    weight = normal(1, 2000)
    weight[0, 0] = 9.0
    fitted, whole = (relative_error(Scheme("affine", bits, ranges=ranges), weight) for ranges in ("fitted", "minmax"))
    assert fitted < 0.7 * whole


@pytest.mark.parametrize(("granularity", "shape"), [("row", (4, 1)), ("column", (1, 6)), ("tensor", (1, 1))])
def test_the_granularity_of_a_scale(granularity, shape):
    matrix = Scheme("affine", 4, granularity).quantize(normal(4, 6))
    assert isinstance(matrix, Affine)
    assert matrix.scale.shape == matrix.zero_point.shape == shape


def test_a_scale_for_each_row_or_column_keeps_small_ones():
    rows = normal(2, 50) * torch.tensor([[1.0], [0.01]])
    small = torch.tensor([[False], [True]]).expand_as(rows)
    for own, weight, where in (("row", rows, small), ("column", rows.T.contiguous(), small.T)):
        kept, lost = (Scheme("affine", 4, shared).quantize(weight).dense() for shared in (own, "tensor"))
        assert (kept - weight)[where].abs().max() < 0.005
        assert not lost[where].any()


@pytest.mark.parametrize(
    ("scheme", "most"),
    # Max (1960) and Lloyd (1982): of normal weights the least errors are 0.0095, 0.0345 and 0.1175 with any values,
    # 0.0115, 0.0374 and 0.1188 with even ones; even ones with a zero among them lose a little, most at 2 bits.
    [
        (Scheme("codebook", 4, "tensor"), 0.0097),
        (Scheme("codebook", 3, "tensor"), 0.0352),
        (Scheme("codebook", 2, "tensor"), 0.1195),
        (Scheme("affine", 4, "tensor"), 0.0135),
        (Scheme("affine", 3, "tensor"), 0.046),
        (Scheme("affine", 2, "tensor"), 0.18),
        (Scheme("ternary", 2, "tensor"), 0.22),
    ],
    ids=lambda value: f"{value.quantizer}{value.bits}" if isinstance(value, Scheme) else "",
)
def test_errors_of_normal_weights_are_near_the_least_possible(scheme, most):
    assert relative_error(scheme, normal(100, 200)) < most


@pytest.mark.parametrize("bits", [2, 2.5, 3, 4, 5])
def test_coded_weights_have_the_bits_asked_for_and_less_error_than_few_values_with_as_many(bits):
    """Gish and Pierce (1968): of normal weights the error is 2 pi e / 12 of the least possible, 4 ** -bits."""
    scheme, weight = Scheme("coded", bits, "tensor"), normal(200, 400)
    assert 8 * coded_size(scheme.quantize(weight)) / weight.numel() == pytest.approx(bits, abs=0.06)
    assert relative_error(scheme, weight) == pytest.approx(math.pi * math.e / 6 * 4.0**-bits, rel=0.05)
    for levels in (4, 8, 16):
        few = Scheme("affine", math.log2(levels), "tensor")
        as_small = Scheme("coded", 8 * coded_size(few.quantize(weight)) / weight.numel(), "tensor")
        assert relative_error(as_small, weight) < relative_error(few, weight)


def test_ternary_weights_are_minus_zero_and_plus_one_scale():
    matrix = Scheme("ternary", 2).quantize(normal(5, 40))
    for row, scale in zip(matrix.dense(), matrix.scale, strict=True):
        assert set(row.tolist()) == {-scale.item(), 0.0, scale.item()}


def test_scales_have_16_significant_bits():
    for scheme in (*AFFINE, *TERNARY, *CODED):
        scale = scheme.quantize(normal(7, 9)).scale
        assert not (scale.view(torch.int32) & 0xFFFF).any()


@some_examples
@given(MATRICES, st.sampled_from([4, 16]))
def test_centroids_are_means_or_the_zero_that_pruning_needs(weight, levels):
    few = weight.round().clamp(-1, 1)  # three values at most
    assert torch.equal(Scheme("codebook", int(np.log2(levels)), "tensor").quantize(few).dense(), few)
    flat = weight.reshape(1, -1)
    centroids = k_means(flat, levels)
    assert (centroids.diff(dim=1) >= 0).all()
    codes = nearest(flat, centroids)
    for code in codes.unique().tolist():
        members, centroid = flat[codes == code], centroids[0, code]
        if not (centroid == 0 and (flat == 0).any()):
            assert torch.isclose(centroid, members.double().mean().float(), rtol=1e-4, atol=1e-3)


def test_a_pruned_matrix_has_a_centroid_of_zero_and_another_one_need_not():
    dense = normal(20, 30) + 5
    pruned = dense.masked_fill(normal(20, 30) > 0, 0.0)
    assert (Scheme("codebook", 3, "tensor").quantize(pruned).codebook == 0).sum() == 1
    assert (Scheme("codebook", 3, "tensor").quantize(dense).codebook > 1).all()


def test_equal_centroids_stay_in_order_next_to_zero():
    values = torch.tensor([[-0.1] * 8, [0.0] * 8])
    centroids = k_means(values, 4)
    assert (centroids.diff(dim=1) >= 0).all()
    assert torch.equal(centroids.gather(1, nearest(values, centroids)), values)


def test_each_row_may_have_a_codebook():
    weight = normal(3, 50) * torch.tensor([[1.0], [10.0], [100.0]])
    matrix = Scheme("codebook", 3, "row").quantize(weight)
    assert isinstance(matrix, Codebook)
    assert matrix.codebook.shape == (3, 8)
    alone = [Scheme("codebook", 3, "row").quantize(weight[row : row + 1]).dense() for row in range(3)]
    assert torch.equal(torch.cat(alone), matrix.dense())


def test_single_numbers_are_16_bit_floats_at_8_bits_and_share_a_range_at_fewer():
    importance = normal(300, 1)
    assert isinstance(Scheme("affine", 8).quantize(importance), Half)
    assert isinstance(Scheme("affine", 8, "tensor").quantize(importance), Affine)
    for scheme in (Scheme("affine", 4), Scheme("ternary", 2), Scheme("codebook", 4, "row")):
        matrix = scheme.quantize(importance)
        assert matrix.codes.shape == (300, 1)
        assert sum(tensor.numel() for tensor in matrix.buffers()) < 300 + 20
    assert [Scheme("affine", bits).width(importance) for bits in (8, 4)] == [16, 4]


@pytest.mark.parametrize("scheme", [*TERNARY, Scheme("affine", 2), Scheme("codebook", 2, "tensor")], ids=str)
def test_a_matrix_of_zeros_or_of_a_single_weight(scheme):
    assert not scheme.quantize(torch.zeros(3, 4)).dense().any()
    assert scheme.quantize(torch.tensor([[0.0, -2.5]])).dense()[0, 1].item() == pytest.approx(-2.5, rel=0.01)


@pytest.mark.parametrize("name", ["left.left", "right.left", "left." * 5_000 + "left"])
def test_a_factor_of_a_product_is_no_product(name):
    tensors = {f"{name}.value": torch.ones(1, 1), "left.value": torch.ones(1, 1), "right.value": torch.ones(1, 1)}
    with pytest.raises(UserError, match="no matrix is stored as"):
        Matrix.from_tensors(tensors)
