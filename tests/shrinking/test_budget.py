"""Bits chosen for --max-bytes and --max-loss: budgets are kept and used."""

import itertools
from types import SimpleNamespace

import pytest
import shrunk
import tiny

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.checkpoint import load_weights
from common.training.metrics import main_score
from common.training.models import read_config
from compression.packing import pack_student
from compression.shrinking.context import CompressionContext
from compression.shrinking.quantization.budget import within_bytes
from compression.shrinking.quantization.scheme import Scheme


def quantized(workspace, student, **given):
    return shrunk.shrunk(workspace, "quantize", student, **given)


def bits(folder):
    return read_config(folder).compression["bits"]


@pytest.mark.parametrize("student", ["bilstm", "ffn", "conv"])
def test_the_packed_file_keeps_its_budget_and_uses_it(workspace, student):
    largest, smallest = (len(pack_student(quantized(workspace, student, granularity="tensor", bits=n))) for n in (8, 2))
    budget = (largest + smallest) // 2
    folder = quantized(workspace, student, max_bytes=budget)
    assert folder.name == f"{student}+qmax{budget}"
    assert 0.85 * budget < len(pack_student(folder)) <= budget
    assert len({matrix["bits"] for matrix in read_config(folder).compression["quantized"].values()}) > 1
    assert 1.5 < bits(folder) < 9


def test_a_budget_that_nothing_meets_names_the_smallest_possible(workspace):
    with pytest.raises(UserError, match=r"--max-bytes 10: the smallest that ffn can become is \d+ bytes") as refused:
        quantized(workspace, "ffn", max_bytes=10)
    smallest = int(str(refused.value).split()[-2])
    assert len(pack_student(quantized(workspace, "ffn", max_bytes=smallest))) == smallest


@pytest.mark.slow
def test_a_budget_holds_after_training_too(workspace):
    budget = len(pack_student(quantized(workspace, "ffn", bits=3)))
    assert len(pack_student(quantized(workspace, "ffn", max_bytes=budget, tune_epochs=1))) <= budget


class Swelling:
    """Stands for a StudentBuilder and its context: sizes by bits, 7 % more of them after training."""

    SIZES = {"table": {4: 40, 3: 30}, "x": {8: 8, 4: 4}, "y": {8: 6, 4: 3}}

    def __init__(self):
        self.settings = SimpleNamespace(tune_epochs=1)
        self.name = "swelling"
        self.trained = []

    def build(self, setting, tune):
        size = sum(self.SIZES[name][scheme.bits] for name, scheme in setting.items())
        self.size = round(1000 * size * (1.07 if tune else 1))
        if tune:
            self.trained.append(self.size)

    def packed_size(self):
        return self.size


def test_a_student_that_training_made_too_large_is_followed_by_one_that_fills_the_budget():
    steps = [(4, 8, 8), (4, 4, 8), (4, 4, 4), (3, 4, 4)]
    points = [dict(zip(Swelling.SIZES, (Scheme(bits=bits) for bits in step), strict=True)) for step in steps]
    both = Swelling()
    assert [scheme.bits for scheme in within_bytes(both, both, points, 50_000).values()] == [3, 8, 8]
    assert both.trained == [50_290, 47_080]


@pytest.mark.parametrize("tuned", [{}, pytest.param({"tune_epochs": 1}, marks=pytest.mark.slow)])
def test_no_more_is_lost_than_allowed(workspace, tuned):
    task = load_task("sst-2")
    labels = load_split(Workspace(workspace), task, "validation").labels

    def score(folder):
        return main_score(task, labels, shrunk.logits(folder, workspace, rows="validation"))

    folder = quantized(workspace, "learned", max_loss=3, **tuned)
    assert 100 * (score(folder.with_name("learned")) - score(folder)) <= 3 + 1e-6
    assert bits(folder) < 8


def test_more_loss_takes_fewer_bits(workspace):
    assert bits(quantized(workspace, "learned", max_loss=100)) < 2 < bits(quantized(workspace, "learned", max_loss=0))


def test_a_loss_that_cannot_be_kept_names_the_least_possible(workspace, monkeypatch):
    scores = iter([0.9, *[0.5] * 20])
    monkeypatch.setattr(CompressionContext, "score", lambda context: next(scores))
    with pytest.raises(UserError, match=r"--max-loss 1: .* loses 40\.00 points at the least"):
        quantized(workspace, "ffn", max_loss=1)


def test_a_good_setting_beyond_bad_ones_is_found(workspace, monkeypatch):
    # The student itself, then more bad settings than bisection evaluates, then only good ones.
    scores = itertools.chain([0.9], [0.88] * 8, itertools.repeat(0.9))
    monkeypatch.setattr(CompressionContext, "score", lambda context: next(scores))
    assert bits(quantized(workspace, "rnn", max_loss=1)) < 2


def test_bits_given_for_a_part_are_not_chosen(workspace):
    folder = quantized(workspace, "rnn", max_loss=100, bits_encoder=6)
    chosen = read_config(folder).compression["quantized"]
    assert {matrix["bits"] for name, matrix in chosen.items() if name.startswith("encoder")} == {6}
    assert {matrix["bits"] for name, matrix in chosen.items() if name.startswith("embedding")} == {2}


def test_students_of_pairs(workspace):
    folder = quantized(workspace, "rnn", task="qqp", max_loss=5)
    assert any(name.endswith("codes") for name in load_weights(folder))


def test_ternary_codes_leave_nothing_to_choose(workspace):
    with pytest.raises(UserError, match="ternary has but one width"):
        quantized(workspace, "ffn", max_loss=1, quantizer="ternary")


@pytest.mark.parametrize("given", [{"max_loss": 1}, {"max_bytes": 900}, {"quantizer": "ternary"}])
def test_bits_that_would_have_no_meaning_are_refused(given):
    with pytest.raises(ValueError, match="leave --bits out"):
        tiny.compress_settings(task="sst-2", bits=4, **given)
