"""Inputs rounded to 8 bits: small errors, and each vector by itself."""

import numpy as np
import torch
from compression.students.rounding import affine_range, round_by, round_each_vector
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

NUMBERS = st.floats(-1000, 1000, width=32)
MATRICES = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=NUMBERS).map(torch.from_numpy)


def range_of(x):
    return affine_range(x.amin(1, keepdim=True), x.amax(1, keepdim=True))


@given(MATRICES)
def test_rounding_is_off_by_half_a_step_at_most(x):
    scale, zero_point = range_of(x)
    assert ((round_by(x, scale, zero_point) - x).abs() <= 0.5 * scale * 1.001 + 1e-30).all()
    assert (scale > 0).all()


@given(MATRICES)
def test_rounding_again_by_the_same_range_changes_nothing(x):
    once = round_by(x, *range_of(x))
    assert torch.equal(round_by(once, *range_of(x)), once)


@given(MATRICES)
def test_each_vector_is_rounded_by_itself(x):
    together = round_each_vector(x)
    assert torch.equal(together, round_by(x, *range_of(x)))
    for row in range(len(x)):
        assert torch.equal(round_each_vector(x[row]), together[row])


def test_values_outside_a_calibrated_range_are_clamped():
    back = round_by(torch.tensor([-5.0, 5.0]), *affine_range(torch.tensor([-1.0]), torch.tensor([1.0])))
    assert back.abs().max() < 1.01
