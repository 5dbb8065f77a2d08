"""Baselines of a fit: a linear model over tf-idf in the time that there is."""

import numpy as np

from common.data.split import Split
from common.data.tasks import load_task
from compression.experiments.fit.baselines import quick_score, tf_idf

WORDS = [f"word{i}" for i in range(300)]
SINGLE, PAIR = load_task("sst-2"), load_task("mrpc")


def texts(rows, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 8)) for _ in range(rows)]


def split(first, labels, second=None):
    return Split(first, second, np.array(labels, np.int64), np.arange(len(first)))


def singles(rows, rare, seed):
    labels = [int(i < rare) for i in range(rows)]
    first = [f"{text} strange" if label else text for text, label in zip(texts(rows, seed), labels, strict=True)]
    return split(first, labels)


def pairs(rows, seed):
    """Label 1: both texts have the same words, in another order."""
    first, other = texts(rows, seed), texts(rows, seed + 1)
    labels = [i % 2 for i in range(rows)]
    second = [" ".join(reversed(a.split())) if label else b for a, b, label in zip(first, other, labels, strict=True)]
    return split(first, labels, second)


def test_a_rare_label_is_among_the_rows_whatever_the_time():
    train, held_out = singles(6000, 1, 0), singles(200, 50, 1)
    hurried = tf_idf(SINGLE, train, held_out, held_out, 0.0)
    assert hurried.about.endswith("C = 10, 2,000 rows")
    assert tf_idf(SINGLE, train, held_out, held_out, 600.0).about.count("rows") == 0
    assert hurried.metrics["accuracy"] == quick_score(SINGLE, train, held_out) == 0.75  # one row teaches nothing


def test_texts_of_a_pair_are_compared():
    train, held_out = pairs(400, 0), pairs(100, 7)
    assert tf_idf(PAIR, train, held_out, held_out, 60.0).metrics["accuracy"] == 1.0
