"""Paired tests and intervals: by hand, and their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.data.tasks import load_task
from common.kinds.registry import LABELS, MULTILABEL, NUMBERS
from common.training.metrics import score
from compression.evaluation.predictions import Predictions
from compression.experiments.significance import bootstrap, class_scores, holm, mcnemar, paired_t


def predictions(labels, choices):
    """Predictions as they are read back."""
    kind = NUMBERS if isinstance(choices[0], float) else LABELS if np.ndim(choices[0]) == 0 else MULTILABEL
    dtype = np.float64 if kind is NUMBERS else np.int64
    return Predictions(np.array(labels, dtype), np.array(choices, dtype), kind)


def test_the_t_interval_by_hand():
    """Mean 0.02, sd 0.01, n = 3: standard error 0.005773503, t(0.975, 2) = 4.302653, t = 3.464102."""
    interval = paired_t([0.01, 0.02, 0.03], 0.95)
    assert (interval.mean, interval.method) == (pytest.approx(0.02), "paired t over seeds")
    assert interval.low == pytest.approx(0.02 - 4.30265273 * 0.00577350269)
    assert interval.high == pytest.approx(0.02 + 4.30265273 * 0.00577350269)
    assert interval.p_value == pytest.approx(0.07417990)


def test_mcnemar_by_hand():
    """One row that only the first has right, nine that only the second has: p = 2 * (1 + 10) / 2 ** 10."""
    first = predictions([1] * 30, [1] + [0] * 9 + [1] * 15 + [0] * 5)
    second = predictions([1] * 30, [0] + [1] * 9 + [1] * 15 + [0] * 5)
    assert mcnemar(first, second) == (1, 9, 0.021484375)


def test_rows_without_a_label_do_not_count():
    assert mcnemar(predictions([1, -1, -1], [1, 1, 0]), predictions([1, -1, -1], [0, 0, 1])) == (1, 0, 1.0)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


choice = st.integers(0, 2)
rows_of_three = st.lists(st.tuples(choice, choice, choice), min_size=1, max_size=40)


@given(rows_of_three)
def test_swapped_sides_swap_mcnemar(rows):
    labels, first, second = zip(*rows, strict=True)
    a, b = predictions(labels, first), predictions(labels, second)
    only_a, only_b, p_value = mcnemar(a, b)
    assert mcnemar(b, a) == (only_b, only_a, p_value)
    assert mcnemar(a, a) == (0, 0, 1.0)


@settings(max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6))
def test_swapped_sides_negate_the_interval(differences):
    one, other = paired_t(differences, 0.9), paired_t([-value for value in differences], 0.9)
    assert (one.mean, one.low, one.high) == pytest.approx((-other.mean, -other.high, -other.low))
    assert one.p_value == pytest.approx(other.p_value)
    assert one.low <= one.mean <= one.high


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_order_and_never_lowers(p_values):
    adjusted = holm(p_values)
    assert all(0 <= old <= new <= 1 for old, new in zip(p_values, adjusted, strict=True))
    assert [adjusted[i] for i in np.argsort(p_values)] == sorted(adjusted)


@pytest.mark.filterwarnings("ignore:A single label")
@settings(max_examples=40)
@given(st.data(), st.sampled_from([("sst-2", 2), ("mnli", 3)]))
def test_metrics_of_counts_are_those_of_rows(data, task):
    name, classes = task
    names = ("accuracy", "matthews", "f1_macro", *(("f1",) if classes == 2 else ()))
    drawn = data.draw(st.lists(st.tuples(*[st.integers(0, classes - 1)] * 2), min_size=1, max_size=12))
    labels, choices = np.array(drawn).T
    kinds, counts = np.unique(np.stack([labels, choices], 1), axis=0, return_counts=True)
    logits = np.eye(classes, dtype=np.float32)[choices]
    expected = score(load_task(name).model_copy(update={"metrics": names}), labels, logits)
    assert {name: float(class_scores(name, counts[None], *kinds.T)[0]) for name in names} == pytest.approx(expected)


LISTS = load_task("cola").model_copy(update={"kind": MULTILABEL, "labels": ("a", "b", "c"), "metrics": ()})


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.lists(st.integers(0, 1), min_size=3, max_size=3)] * 2), min_size=1, max_size=12))
def test_metrics_of_counts_of_lists_are_those_of_rows(rows):
    labels, choices = np.array(rows).swapaxes(0, 1)
    kinds, counts = np.unique(np.stack([labels, choices], 1), axis=0, return_counts=True)
    expected = score(LISTS, labels.astype(np.float32), choices - 0.5)
    found = {name: float(class_scores(name, counts[None], kinds[:, 0], kinds[:, 1])[0]) for name in expected}
    assert found == pytest.approx(expected)


def test_rows_of_lists_are_right_with_exactly_their_labels():
    unknown = [-1, -1, -1]
    labels = [[1, 0, 0], [0, 0, 0], [1, 1, 0], unknown]
    first = predictions(labels, [[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]])
    second = predictions(labels, [[1, 0, 1], [0, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert first.right.tolist() == [True, True, False, False]
    assert mcnemar(first, second) == (1, 1, 1.0)
    for metric in LISTS.all_metrics:
        interval = bootstrap(metric, first, second, 0.9, 0.0)
        assert -1 <= interval.low <= interval.high <= 1
        assert bootstrap(metric, first, first, 0.9, 0.0).high == 0


def test_the_bootstrap_of_lists_is_that_of_resampled_rows():
    rng = np.random.default_rng(5)
    labels = rng.integers(2, size=(60, 3))
    first, second = (np.where(rng.random((60, 3)) < p, labels, 1 - labels) for p in (0.9, 0.7))
    slow = []
    for _ in range(400):
        rows = rng.integers(60, size=60)
        a, b = (score(LISTS, labels[rows].astype(np.float32), choices[rows] - 0.5) for choices in (first, second))
        slow.append([a[metric] - b[metric] for metric in LISTS.all_metrics])
    for metric, quantiles in zip(LISTS.all_metrics, np.quantile(slow, [0.05, 0.95], axis=0).T, strict=True):
        interval = bootstrap(metric, predictions(labels, first), predictions(labels, second), 0.9, 0.0)
        assert (interval.low, interval.high) == pytest.approx(tuple(quantiles), abs=0.03)


def test_the_bootstrap_is_that_of_resampled_rows():
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=60)
    first, second = (np.where(rng.random(60) < p, labels, rng.integers(3, size=60)) for p in (0.8, 0.4))
    interval = bootstrap("accuracy", predictions(labels, first), predictions(labels, second), 0.9, 0.0)
    gains = (first == labels).astype(int) - (second == labels)
    slow = gains[rng.integers(60, size=(20_000, 60))].mean(1)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(slow, [0.05, 0.95])), abs=0.018)
    assert interval == bootstrap("accuracy", predictions(labels, first), predictions(labels, second), 0.9, 0.0)


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_the_bootstrap_of_a_regression(metric):
    rng = np.random.default_rng(4)
    labels = rng.normal(size=50)
    first, second = labels + rng.normal(0, 0.3, 50), labels + rng.normal(0, 1.5, 50)
    known = load_task("sts-b").model_copy(update={"range": (0.0, 1.0), "metrics": (metric,)})
    interval = bootstrap(metric, predictions(labels, first.tolist()), predictions(labels, second.tolist()), 0.9, 0.0)
    slow = []
    for _ in range(500):
        rows = rng.integers(50, size=50)
        slow.append(np.subtract(*(score(known, labels[rows], c[rows, None])[metric] for c in (first, second))))
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(slow, [0.05, 0.95])), abs=0.04)


def test_the_bootstrap_of_a_model_and_itself_is_zero():
    labels = [0, 1, 2, 0, 1]
    same = predictions(labels, [0, 1, 1, 0, 2])
    for metric in ("accuracy", "f1", "f1_macro", "matthews"):
        interval = bootstrap(metric, same, same, 0.95, 0.0)
        assert (interval.low, interval.high) == (0, 0)
    assert bootstrap("agreement", same, same, 0.95, 0.0) is None
    assert bootstrap("accuracy", predictions([-1, -1], [0, 1]), predictions([-1, -1], [0, 1]), 0.95, 0.0) is None
