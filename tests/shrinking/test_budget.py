"""Bits chosen for --max-bytes and --max-loss: no better choice is as small, and budgets are kept and used."""

import itertools
from types import SimpleNamespace

import pytest
import shrunk
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.checkpoint import load_weights
from common.training.metrics import main_score
from common.training.models import read_config
from compression.packing import pack_student
from compression.shrinking.quantization.budget import (
    Option,
    coded_size,
    filled,
    first,
    frontier,
    hull,
    slope,
    within_bytes,
)
from compression.shrinking.quantization.scheme import Scheme
from compression.shrinking.step import CompressionContext
from compression.students.weights import Affine

CURVES = st.lists(
    st.tuples(st.integers(1, 100), st.integers(0, 100)), min_size=1, max_size=4, unique_by=lambda point: point[0]
)


def options(curve):
    """Options of (size, distortion), distinguished by bits."""
    return [Option(Scheme(bits=number), *point) for number, point in enumerate(curve)]


def total(setting, some):
    """Size and distortion of a setting: sums over its matrices."""
    chosen = [next(o for o in some[name] if o.scheme == scheme) for name, scheme in setting.items()]
    return sum(option.size for option in chosen), sum(option.distortion for option in chosen)


@given(st.lists(CURVES, min_size=1, max_size=3))
def test_no_other_setting_as_small_as_one_of_the_frontier_distorts_less(curves):
    some = {f"m{number}": options(curve) for number, curve in enumerate(curves)}
    everything = [
        (sum(option.size for option in chosen), sum(option.distortion for option in chosen))
        for chosen in itertools.product(*some.values())
    ]
    points = frontier(some)
    totals = [total(point, some) for point in points]
    for size, distortion in totals:
        assert distortion == min(other for most, other in everything if most <= size)
    sizes = [size for size, _ in totals]
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
    assert total(filled(points[2], some, lambda setting: most - total(setting, some)[0]), some)[0] == size


@given(st.lists(CURVES, min_size=1, max_size=3), st.integers(0, 300))
def test_nothing_that_distorts_less_fits_into_the_bytes_left(curves, most):
    """Also not an option above the hull, which no point of the frontier has."""
    some = {f"m{number}": options(curve) for number, curve in enumerate(curves)}
    start = frontier(some)[-1]
    chosen = filled(start, some, lambda setting: most - total(setting, some)[0])
    size, distortion = total(chosen, some)
    assert (size, distortion) == total(start, some) or (size <= most and distortion < total(start, some)[1])
    for name, option in ((name, option) for name, options in some.items() for option in options):
        other, less = total({**chosen, name: option.scheme}, some)
        assert other > most or less >= distortion


@pytest.mark.parametrize(("codes", "size"), [([0, 1, 2, 3] * 50, 200 * 2 / 8 + 2), ([0] * 200, 2)])
def test_the_size_of_codes_is_their_entropy(codes, size):
    matrix = Affine(torch.tensor([codes], dtype=torch.uint8), torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.uint8))
    assert coded_size(matrix) == pytest.approx(size)


def quantized(workspace, student, **given):
    return shrunk.shrunk(workspace, "quantize", student, **given)


def bits(folder):
    return read_config(folder).compression["bits"]


@pytest.mark.parametrize("student", ["bilstm", "ffn"])
def test_the_packed_file_keeps_its_budget_and_uses_it(workspace, student):
    largest, smallest = (len(pack_student(quantized(workspace, student, granularity="tensor", bits=n))) for n in (8, 2))
    budget = (largest + smallest) // 2
    folder = quantized(workspace, student, max_bytes=budget)
    assert folder.name == f"{student}+qmax{budget}"
    assert 0.85 * budget < len(pack_student(folder)) <= budget
    assert len({matrix["bits"] for matrix in read_config(folder).compression["quantized"].values()}) > 1
    assert 1.5 < bits(folder) < 9


def test_a_budget_that_nothing_meets_names_the_smallest_possible(workspace):
    with pytest.raises(UserError, match=r"--max-bytes 10: the smallest file of ffn has \d+ bytes") as refused:
        quantized(workspace, "ffn", max_bytes=10)
    smallest = int(str(refused.value).split()[-2])
    assert len(pack_student(quantized(workspace, "ffn", max_bytes=smallest))) == smallest


def test_a_budget_holds_after_training_too(workspace):
    budget = len(pack_student(quantized(workspace, "ffn", bits=3)))
    assert len(pack_student(quantized(workspace, "ffn", max_bytes=budget, tune_epochs=1))) <= budget


class Swelling:
    """Stands for a StudentBuilder and its context: sizes by bits, 7 % more of them after training, or less."""

    SIZES = {"table": {4: 40, 3: 30}, "x": {8: 8, 4: 4}, "y": {8: 6, 4: 3}}

    def __init__(self, factor=1.07):
        self.factor = factor
        self.step = SimpleNamespace(tuning="any")
        self.parent = SimpleNamespace(name="swelling")
        self.name = "swelling"
        self.student = self.history = None
        self.trained = []

    def build(self, setting, tune):
        size = sum(self.SIZES[name][scheme.bits] for name, scheme in setting.items())
        self.size = round(1000 * size * (self.factor if tune else 1))
        if tune:
            self.student = setting
            self.trained.append(self.size)

    def packed_size(self):
        return self.size


_DISTORTIONS = {"table": {4: 0, 3: 10}, "x": {8: 0, 4: 1}, "y": {8: 0, 4: 1.5}}
SWELLING = {
    name: [Option(Scheme(bits=bits), 1000 * size, _DISTORTIONS[name][bits]) for bits, size in sizes.items()]
    for name, sizes in Swelling.SIZES.items()
}


def test_a_student_that_training_made_too_large_is_followed_by_one_that_fills_the_budget():
    both = Swelling()
    assert [scheme.bits for scheme in within_bytes(both, both, SWELLING, 50_000).values()] == [3, 8, 8]
    assert both.trained == [53_500, 47_080]
    with pytest.raises(UserError, match="the smallest file of swelling after training has 39590 bytes"):
        within_bytes(both, both, SWELLING, 38_000)


@pytest.mark.parametrize(
    ("most", "trained"), [(44_000, [40_480, 43_240]), (40_000, [36_800]), (41_700, [36_800, 40_480])]
)
def test_a_student_that_training_made_small_is_trained_once_more(most, trained):
    """A file is filled to 97 %, if there is another setting."""
    both = Swelling(0.92)
    chosen = within_bytes(both, both, SWELLING, most)
    assert both.trained == trained
    assert both.student == chosen


@pytest.mark.parametrize("epochs", [0, 1])
def test_no_more_is_lost_than_allowed(workspace, epochs):
    task = load_task("sst-2")
    labels = load_split(Workspace(workspace), task, "validation").labels

    def score(folder):
        return main_score(task, labels, shrunk.logits(folder, workspace, rows="validation"))

    folder = quantized(workspace, "learned", max_loss=3, tune_epochs=epochs)
    assert 100 * (score(folder.with_name("learned")) - score(folder)) <= 3 + 1e-6
    assert bits(folder) < 8


def test_a_loss_that_cannot_be_kept_names_the_least_possible(workspace, monkeypatch):
    scores = iter([0.9, *[0.5] * 20])
    monkeypatch.setattr(CompressionContext, "score", lambda context: next(scores))
    with pytest.raises(UserError, match=r"--max-loss 1: .* loses at least 40\.00 points"):
        quantized(workspace, "ffn", max_loss=1)


def test_a_good_setting_beyond_bad_ones_is_found(workspace, monkeypatch):
    # The student itself, then more bad settings than bisection evaluates, then only good ones.
    scores = itertools.chain([0.9], [0.88] * 8, itertools.repeat(0.9))
    monkeypatch.setattr(CompressionContext, "score", lambda context: next(scores))
    assert bits(quantized(workspace, "rnn", max_loss=1)) < 2


def test_bits_given_for_a_part_are_not_chosen(workspace):
    folder = quantized(workspace, "rnn", task="qqp", max_loss=100, bits_encoder=6)
    chosen = read_config(folder).compression["quantized"]
    assert {matrix["bits"] for name, matrix in chosen.items() if name.startswith("encoder")} == {6}
    assert {matrix["bits"] for name, matrix in chosen.items() if name.startswith("embedding")} == {1}
    assert any(name.endswith("codes") for name in load_weights(folder))
