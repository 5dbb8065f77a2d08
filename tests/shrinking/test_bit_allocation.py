"""Bit allocation: no setting as small as one of the frontier distorts less, and budgets are filled."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compression.shrinking.quantization.budget import Option, coded_size, first, frontier, hull, slope, widened
from compression.shrinking.quantization.scheme import Scheme
from compression.students.weights import Affine

CURVES = st.lists(
    st.tuples(st.integers(1, 100), st.integers(0, 100)), min_size=1, max_size=5, unique_by=lambda point: point[0]
)


def options(curve):
    """Options of (size, distortion), distinguished by bits."""
    return [Option(Scheme(bits=number), *point) for number, point in enumerate(curve)]


def total(setting, some):
    """Size and distortion of a setting: sums over its matrices."""
    chosen = [next(o for o in some[name] if o.scheme == scheme) for name, scheme in setting.items()]
    return sum(option.size for option in chosen), sum(option.distortion for option in chosen)


@given(st.lists(CURVES, min_size=1, max_size=4))
def test_no_other_setting_as_small_as_one_of_the_frontier_distorts_less(curves):
    some = {f"m{number}": options(curve) for number, curve in enumerate(curves)}
    everything = [
        (sum(option.size for option in chosen), sum(option.distortion for option in chosen))
        for chosen in itertools.product(*some.values())
    ]
    points = frontier(some)
    for size, distortion in (total(point, some) for point in points):
        assert distortion == min(other for most, other in everything if most <= size)
    sizes = [total(point, some)[0] for point in points]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == min(size for size, _ in everything)
    for before, after in itertools.pairwise(points):
        assert sum(before[name] != after[name] for name in before) == 1


@given(CURVES)
def test_slopes_rise_along_a_hull(curve):
    line = hull(options(curve))
    slopes = [slope(*pair) for pair in itertools.pairwise(line)]
    assert slopes == sorted(slopes)
    assert line[0].distortion == min(distortion for _, distortion in curve)


@given(st.integers(1, 40), st.integers(0, 45))
def test_bisection_finds_the_first_in_few_steps(count, start):
    seen = []
    assert first(count, lambda index: seen.append(index) or index >= start) == (start if start < count else None)
    assert len(seen) <= 2 + count.bit_length()
    if 0 < start < count:
        assert start - 1 in seen


@pytest.mark.parametrize(("most", "size"), [(35, 30), (30, 30), (29, 15), (104, 30)])
def test_bytes_left_over_are_used(most, size):
    some = {"a": options([(100, 0), (10, 90)]), "b": options([(20, 0), (5, 3)])}
    points = frontier(some)
    assert [total(point, some)[0] for point in points] == [120, 105, 15]
    assert total(widened(points, 2, lambda setting: total(setting, some)[0] <= most), some)[0] == size


@pytest.mark.parametrize(("codes", "size"), [([0, 1, 2, 3] * 50, 200 * 2 / 8 + 2), ([0] * 200, 2)])
def test_the_size_of_codes_is_their_entropy(codes, size):
    matrix = Affine(torch.tensor([codes], dtype=torch.uint8), torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.uint8))
    assert coded_size(matrix) == pytest.approx(size)
