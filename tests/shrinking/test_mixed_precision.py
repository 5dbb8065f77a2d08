"""Mixed precision: the least harm for a size, budgets that are kept, and names that tell settings apart."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.data.tasks import load_task
from common.errors import UserError
from common.training.models import load_weights, read_config
from compression.packing import pack_student
from compression.shrinking.chain import compress
from compression.shrinking.context import CPU, Work
from compression.shrinking.quantization.asked import suffix
from compression.shrinking.quantization.hulls import first, hull, larger, path, price
from compression.shrinking.quantization.mixed import within_bytes
from compression.shrinking.quantization.scheme import Scheme
from compression.shrinking.quantization.sensitivity import Option, coded_size
from compression.students.saved import load_student
from compression.students.weights import Affine

CURVES = st.lists(
    st.tuples(st.integers(1, 100), st.integers(0, 100)), min_size=1, max_size=5, unique_by=lambda point: point[0]
)


def options(curve):
    """Options told apart by their bits, which are no real ones."""
    return [Option(Scheme(bits=number), size, harm) for number, (size, harm) in enumerate(curve)]


def cost(setting, all_options):
    """Size and harm of a setting, which are sums over its matrices."""
    chosen = [next(o for o in all_options[name] if o.scheme == scheme) for name, scheme in setting.items()]
    return sum(option.size for option in chosen), sum(option.harm for option in chosen)


@given(st.lists(CURVES, min_size=1, max_size=4))
def test_no_other_setting_as_small_as_a_point_of_the_path_does_less_harm(curves):
    found = {f"m{number}": options(curve) for number, curve in enumerate(curves)}
    everything = [
        (sum(option.size for option in chosen), sum(option.harm for option in chosen))
        for chosen in itertools.product(*found.values())
    ]
    points = path(found)
    for point in points:
        size, harm = cost(point, found)
        assert harm == min(other for most, other in everything if most <= size)
    sizes = [cost(point, found)[0] for point in points]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == min(size for size, _ in everything)
    for before, after in itertools.pairwise(points):
        assert sum(before[name] != after[name] for name in before) == 1


@given(CURVES)
def test_prices_rise_along_a_hull(curve):
    line = hull(options(curve))
    prices = [price(*pair) for pair in itertools.pairwise(line)]
    assert prices == sorted(prices)
    assert line[0].harm == min(harm for _, harm in curve)


@given(st.integers(1, 40), st.integers(0, 45))
def test_bisection_finds_the_first_and_looks_at_few(count, start):
    seen = []

    def holds(place):
        seen.append(place)
        return place >= start

    assert first(count, holds) == (start if start < count else None)
    assert len(seen) <= 2 + count.bit_length()
    if 0 < start < count:
        assert start - 1 in seen


def test_bytes_left_over_are_used():
    found = {"a": options([(100, 0), (10, 90)]), "b": options([(20, 0), (5, 3)])}
    points = path(found)
    assert [cost(point, found)[0] for point in points] == [120, 105, 15]
    for most, size in ((35, 30), (30, 30), (29, 15), (104, 30)):
        chosen = larger(points, 2, lambda setting, most=most: cost(setting, found)[0] <= most)
        assert cost(chosen, found)[0] == size


def test_the_size_of_codes_is_their_entropy():
    codes = torch.tensor([[0, 1, 2, 3] * 50], dtype=torch.uint8)
    even = Affine(codes, torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.uint8))
    assert coded_size(even) == pytest.approx(200 * 2 / 8 + 2)
    same = Affine(torch.zeros_like(codes), torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.uint8))
    assert coded_size(same) == pytest.approx(2)


def parent(workspace, arch="ffn", embedding="hash", task="sst-2", **given):
    values = tiny.small(student_arch=arch, embedding_type=embedding, alpha=1.0, only_original_data=True, **given)
    (folder,) = compress(tiny.compress_settings(task=task, workspace=workspace, **values))
    return folder


LEARNED = {"lr": 0.05, "epochs": 12, "patience": 12}
"""Enough for this student to learn its task, so that it has a score to lose."""


def quantized(workspace, name, task="sst-2", **given):
    values = tiny.small(alpha=1.0, only_original_data=True)
    actions = {"compression_actions": ("quantize",), "load_trained_model": name}
    return compress(tiny.compress_settings(task=task, workspace=workspace, **{**values, **actions, **given}))[0]


@pytest.mark.parametrize(("arch", "embedding"), [("bilstm", "bpe"), ("ffn", "hash"), ("conv", "char")])
def test_the_packed_file_keeps_its_budget_and_uses_it(workspace, arch, embedding):
    name = parent(workspace, arch, embedding).name
    largest, smallest = (
        len(pack_student(quantized(workspace, name, granularity="tensor", bits=bits))) for bits in (8, 2)
    )
    budget = (largest + smallest) // 2
    folder = quantized(workspace, name, max_bytes=budget)
    assert folder.name == f"{name}+qmax{budget}"
    assert 0.85 * budget < len(pack_student(folder)) <= budget
    told = read_config(folder).compression
    assert len({matrix["bits"] for matrix in told["quantized"].values()}) > 1
    assert 1.5 < told["bits"] < 9


def test_a_budget_that_nothing_meets_says_the_smallest_there_is(workspace):
    name = parent(workspace, "ffn", "char").name
    with pytest.raises(UserError, match=r"--max-bytes 10: the smallest that .* can become is \d+ bytes") as refused:
        quantized(workspace, name, max_bytes=10)
    smallest = int(str(refused.value).split()[-2])
    assert len(pack_student(quantized(workspace, name, max_bytes=smallest))) == smallest


def test_a_budget_holds_after_training_too(workspace):
    name = parent(workspace).name
    budget = len(pack_student(quantized(workspace, name, bits=3)))
    folder = quantized(workspace, name, max_bytes=budget, tune_epochs=1)
    assert len(pack_student(folder)) <= budget


class Swelling:
    """Stands for a Maker and its Work: sizes by bits, 7 % more of them after training."""

    SIZES = {"table": {4: 40, 3: 30}, "x": {8: 8, 4: 4}, "y": {8: 6, 4: 3}}

    def __init__(self):
        self.settings = SimpleNamespace(tune_epochs=1)
        self.folder = Path("swelling")
        self.trained = []

    def make(self, setting, tune):
        size = sum(self.SIZES[name][scheme.bits] for name, scheme in setting.items())
        self.size = round(1000 * size * (1.07 if tune else 1))
        if tune:
            self.trained.append(self.size)

    def packed_size(self):
        return self.size


def test_what_training_made_too_large_is_followed_by_what_fills_the_budget():
    steps = [(4, 8, 8), (4, 4, 8), (4, 4, 4), (3, 4, 4)]
    points = [dict(zip(Swelling.SIZES, (Scheme(bits=bits) for bits in step), strict=True)) for step in steps]
    work = Swelling()
    found = within_bytes(work, work, points, 50_000)
    assert [scheme.bits for scheme in found.values()] == [3, 8, 8]
    assert work.trained == [50_290, 47_080]


def score(workspace, folder, task="sst-2"):
    settings = tiny.compress_settings(
        task=task, workspace=workspace, compression_actions=("quantize",), load_trained_model="x"
    )
    student, tokenizer, config = load_student(folder, CPU)
    return Work(settings, load_task(task), folder, config, student, tokenizer, folder, "").score()


@pytest.mark.parametrize("tuned", [{}, {"tune_epochs": 1}], ids=["at once", "tuned"])
def test_no_more_is_lost_than_allowed(workspace, tuned):
    made = parent(workspace, **LEARNED)
    folder = quantized(workspace, made.name, max_loss=3, **tuned)
    assert 100 * (score(workspace, made) - score(workspace, folder)) <= 3 + 1e-6
    assert read_config(folder).compression["bits"] < 8


def test_less_may_be_lost_by_more_bits(workspace):
    name = parent(workspace, **LEARNED).name
    none, all_of_it = (read_config(quantized(workspace, name, max_loss=loss)).compression["bits"] for loss in (0, 100))
    assert all_of_it < 2 < none


def test_a_loss_that_cannot_be_kept_says_the_least_there_is(workspace, monkeypatch):
    name = parent(workspace).name
    scores = iter([0.9, *[0.5] * 20])
    monkeypatch.setattr(Work, "score", lambda work: next(scores))
    with pytest.raises(UserError, match=r"--max-loss 1: .* loses 40\.00 points at the least"):
        quantized(workspace, name, max_loss=1)


def test_a_good_setting_beyond_bad_ones_is_found(workspace, monkeypatch):
    name = parent(workspace, "rnn", "char").name
    # The student itself, then more bad settings than bisection looks at, then none that loses anything.
    scores = itertools.chain([0.9], [0.88] * 8, itertools.repeat(0.9))
    monkeypatch.setattr(Work, "score", lambda work: next(scores))
    assert read_config(quantized(workspace, name, max_loss=1)).compression["bits"] < 2


def test_bits_given_for_a_part_are_not_chosen(workspace):
    name = parent(workspace, "rnn", "char").name
    folder = quantized(workspace, name, max_loss=100, bits_encoder=6)
    told = read_config(folder).compression["quantized"]
    assert {matrix["bits"] for key, matrix in told.items() if key.startswith("encoder")} == {6}
    assert {matrix["bits"] for key, matrix in told.items() if key.startswith("embedding")} == {2}


def test_students_of_pairs(workspace):
    name = parent(workspace, "rnn", "char", task="qqp").name
    folder = quantized(workspace, name, task="qqp", max_loss=5)
    assert any(key.endswith("codes") for key in load_weights(folder))


def test_three_values_are_no_choice(workspace):
    name = parent(workspace, "ffn", "char").name
    with pytest.raises(UserError, match="ternary has but one width"):
        quantized(workspace, name, max_loss=1, quantizer="ternary")


NAMES = [
    ({}, "+q"),
    ({"bits": 4}, "+q4"),
    ({"bits": 3, "quantizer": "codebook"}, "+q3c"),
    ({"quantizer": "codebook"}, "+qc"),
    ({"quantizer": "ternary"}, "+qt"),
    ({"bits": 4, "tune_epochs": 2}, "+q4-t2"),
    ({"bits": 4, "tune_epochs": 2, "guide": "student"}, "+q4-t2s"),
    ({"bits": 4, "tune_epochs": 2, "tune_lr": 0.01}, "+q4-t2-lr0.01"),
    ({"max_bytes": 24000}, "+qmax24000"),
    ({"max_bytes": 24000, "quantizer": "codebook"}, "+qmax24000c"),
    ({"max_loss": 1.0}, "+qloss1"),
    ({"max_loss": 0.5}, "+qloss0.5"),
    ({"bits_embedding": 2}, "+q-emb2"),
    ({"bits": 6, "bits_encoder": 3, "bits_classifier": 8}, "+q6-enc3-cls8"),
    ({"granularity": "column"}, "+q-column"),
    ({"granularity": "row"}, "+q"),
    ({"granularity": "row", "bits": 4}, "+q4-row"),
    ({"granularity": "row", "bits_embedding": 4}, "+q-emb4-row"),
    ({"granularity": "row", "max_loss": 1.0}, "+qloss1-row"),
    ({"granularity": "tensor", "ranges": "minmax"}, "+q-tensor-minmax"),
    ({"ptq_embedding": True}, "+q-pe"),
    ({"dq_encoder": True, "dq_classifier": True}, "+q-de-dc"),
    ({"ptq_classifier": True, "calibration_rows": 64}, "+q-pc64"),
]


@pytest.mark.parametrize(("given", "name"), NAMES, ids=[name for _, name in NAMES])
def test_names_tell_the_settings(given, name):
    assert suffix(tiny.compress_settings(task="sst-2", **given)) == name
