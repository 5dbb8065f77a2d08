"""Baselines of a fit: a linear model over tf-idf in the time that there is."""

import shutil

import numpy as np
import pytest
import tiny_labels

from common.data.split import Split
from common.data.tasks import load_task
from common.kinds.registry import MULTILABEL
from compression.experiments.fit.baselines import fasttext, quick_score, tf_idf

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
    assert hurried.details.endswith("C = 10, 2,000 rows")
    assert tf_idf(SINGLE, train, held_out, held_out, 600.0).details.count("rows") == 0
    assert hurried.metrics["accuracy"] == quick_score(SINGLE, train, held_out) == 0.75  # one row teaches nothing


def test_texts_of_a_pair_are_compared():
    train, held_out = pairs(400, 0), pairs(100, 7)
    assert tf_idf(PAIR, train, held_out, held_out, 60.0).metrics["accuracy"] == 1.0


def lists(rows, skip=0):
    """Texts with any number of labels, the last of which is on one row only."""
    found = tiny_labels.labelled(rows + skip)[skip:]
    labels = np.array(
        [[name in names for name in tiny_labels.LABELS] + [row == 7] for row, (_, names) in enumerate(found)]
    )
    return Split([text for text, _ in found], None, labels.astype(np.float32), np.arange(rows), MULTILABEL)


@pytest.fixture
def topics(tmp_path):
    return load_task(str(tiny_labels.write_task(tmp_path, [], labels=[*tiny_labels.LABELS, "rare"])))


def test_several_labels_are_found_by_a_model_of_each(topics):
    train, held_out = lists(3000), lists(200, skip=3000)
    hurried = tf_idf(topics, train, held_out, held_out, 0.0)
    assert hurried.name == "tf-idf, one-vs-rest logistic regression"
    assert hurried.details.endswith("C = 10, 2,000 rows")  # and one of them has the rare label
    assert hurried.metrics["f1_micro"] > 0.98
    assert set(hurried.metrics) == {"f1_micro", "f1_macro", "subset_accuracy"}
    assert quick_score(topics, train, held_out) > 0.98


@pytest.mark.skipif(shutil.which("fasttext") is None, reason="the program fasttext is not installed")
def test_fasttext_has_a_model_of_each_label_too(topics):
    train, held_out = lists(500), lists(200, skip=500)
    assert fasttext(topics, train, held_out, held_out, 60.0, 1).metrics["f1_micro"] > 0.8


def test_fasttext_may_choose_several_labels_or_none(topics, tmp_path, monkeypatch):
    """A program that chooses the labels 0 and 2, then none."""
    (tmp_path / "fasttext").write_text(
        "#!/bin/sh\n"
        'if [ "$1" = predict ]; then\n'
        '  [ "$4 $5" = "-1 0.5" ] || exit 1\n'
        "  printf '__label__0 __label__2\\n\\n'\n"
        "else\n"
        '  case "$*" in *"-loss ova"*) cp train.txt model.bin;; *) exit 1;; esac\n'
        f"  cp train.txt {tmp_path}/seen.txt\n"
        "fi\n"
    )
    (tmp_path / "fasttext").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    rows = Split(["One", "two"], None, np.array([[1, 0, 1, 0], [0, 0, 0, 0]], np.float32), np.arange(2), MULTILABEL)
    found = fasttext(topics, rows, rows, rows, 60.0, 1)
    assert found.metrics["subset_accuracy"] == 1.0
    assert sorted((tmp_path / "seen.txt").read_text().splitlines()) == ["__label__0 __label__2 one", "two"]
