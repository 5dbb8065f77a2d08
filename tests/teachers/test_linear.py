"""Linear teachers: what they learn, of which kinds of task, and that out-of-fold logits are of other rows' models."""

import dataclasses

import numpy as np
import pytest
from scipy.sparse import hstack
from scipy.special import log_softmax
from sklearn.feature_extraction.text import TfidfVectorizer

from common.data.split import Split
from common.data.tasks import Source, Task
from common.errors import UserError
from common.teachers import linear
from common.teachers.linear import TfIdf, assigned_folds, cross_fitted, fitted
from compression.runtime.words import split_words

SOURCE = Source(files={"train": "train.csv"})
PLACES = ("bank", "beach", "forest")
LABELS = Task(name="places", labels=PLACES, source=SOURCE)
TWO = Task(name="two", labels=PLACES[:2], source=SOURCE)
SEVERAL = Task(name="several", kind="multilabel", labels=PLACES, source=SOURCE)
NUMBERS = Task(name="stars", kind="numbers", range=(0, 10), source=SOURCE)
TAGS = Task(name="names", kind="tags", labels=("O", "B-x"), source=SOURCE)
PAIRS = Task(name="same", labels=("no", "yes"), columns={"sentence1": "a", "sentence2": "b"}, source=SOURCE)


def rows(task, texts, labels, second=None):
    return Split(texts, second, np.asarray(labels, task.kind.dtype), np.arange(len(texts)), task.kind)


def learned(task, train):
    return cross_fitted(task, train, TfIdf()), fitted(task, train, train, TfIdf()).logits(train)


def texts_of(rows_of_each, places=PLACES):
    return [f"at the {place} on day {day}" for day in range(rows_of_each) for place in places]


@pytest.mark.parametrize("task", [LABELS, TWO])
def test_logits_are_log_probabilities_of_the_right_labels(task):
    labels = list(range(task.outputs)) * 8
    out_of_fold, all_rows = learned(task, rows(task, texts_of(8, task.labels), labels))
    for logits in (out_of_fold, all_rows):
        assert logits.shape == (len(labels), task.outputs)
        assert logits.dtype == np.float32
        np.testing.assert_allclose(np.exp(logits).sum(1), 1, rtol=1e-4)
        assert (logits.argmax(1) == labels).all()


def test_of_several_labels_each_has_a_logit_of_its_own():
    labels = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]] * 8)
    texts = [
        " ".join(p for p, one in zip(PLACES, row, strict=True) if one) + f" day {i}" for i, row in enumerate(labels)
    ]
    out_of_fold, all_rows = learned(SEVERAL, rows(SEVERAL, texts, labels))
    for logits in (out_of_fold, all_rows):
        assert ((logits >= 0) == labels).all()


def test_numbers_are_scaled_to_the_range():
    values = [2.0, 5.0, 8.0] * 12
    out_of_fold, _ = learned(NUMBERS, rows(NUMBERS, texts_of(12), values))
    assert out_of_fold.shape == (36, 1)
    np.testing.assert_allclose(NUMBERS.kind.choices(NUMBERS, out_of_fold), values, atol=1)


def test_pairs_are_compared():
    texts = [f"the {a} {b}" for a in "abcdef" for b in PLACES]
    second = [*texts[:9], *reversed(texts[:9])]
    labels = [int(one == two) for one, two in zip(texts, second, strict=True)]
    _, all_rows = learned(PAIRS, rows(PAIRS, texts, labels, second))
    assert (all_rows.argmax(1) == labels).all()


def test_random_labels_are_known_by_heart_but_not_out_of_fold():
    rng = np.random.default_rng(0)
    texts, labels = [" ".join(rng.choice(list("abcdefghij"), 8)) for _ in range(200)], rng.integers(0, 2, 200)
    out_of_fold, all_rows = learned(TWO, rows(TWO, texts, labels))
    assert (all_rows.argmax(1) == labels).mean() > 0.75
    assert (out_of_fold.argmax(1) == labels).mean() < 0.6


def test_folds_have_equal_shares_of_each_label():
    labels = np.array([0] * 40 + [1] * 8 + [2])
    folds = assigned_folds(labels, 4, seed=1)
    assert np.bincount(folds[labels == 0]).tolist() == [10] * 4
    assert np.bincount(folds[labels == 1]).tolist() == [2] * 4
    assert (folds == assigned_folds(labels, 4, seed=1)).all()
    assert (folds != assigned_folds(labels, 4, seed=2)).any()


def test_a_class_of_one_row_is_absent_from_a_fold():
    labels = [0, 1] * 10 + [2]
    texts = [*texts_of(10, PLACES[:2]), "at the forest"]
    out_of_fold, all_rows = learned(LABELS, rows(LABELS, texts, labels))
    assert np.isfinite(out_of_fold).all()
    assert out_of_fold[-1].argmax() != 2
    assert all_rows[:-1].argmax(1).tolist() == labels[:-1]


def test_rows_without_a_label_have_the_answer_of_the_others():
    train = rows(LABELS, [*texts_of(8), "by the forest"], [*np.arange(24) % 3, -1])
    out_of_fold, _ = learned(LABELS, train)
    np.testing.assert_allclose(log_softmax(out_of_fold, 1), out_of_fold, atol=1e-5)
    assert out_of_fold[-1].argmax() == 2


def test_the_same_seed_has_the_same_logits():
    train = rows(LABELS, texts_of(8), np.arange(24) % 3)
    first, second = (learned(LABELS, train) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        assert (one == two).all()


def test_validation_calibrates_a_single_fit():
    train, noisy = (rows(LABELS, texts_of(8), labels) for labels in (np.arange(24) % 3, np.arange(24) // 8))
    right, doubtful = (fitted(LABELS, train, validation, TfIdf()) for validation in (train, noisy))
    confident, cautious = (np.exp(teacher.logits(train)).max(1).mean() for teacher in (right, doubtful))
    assert cautious < confident


def test_tags_and_few_rows_are_refused():
    with pytest.raises(UserError, match="names is of kind tags: linear and frozen teachers label whole texts"):
        cross_fitted(TAGS, rows(TAGS, [], []), TfIdf())
    with pytest.raises(UserError, match="places: 3 labelled rows cannot be divided into 4 folds"):
        cross_fitted(LABELS, rows(LABELS, texts_of(1), [0, 1, 2]), TfIdf())
    with pytest.raises(UserError, match="the texts have no words to learn from"):
        cross_fitted(LABELS, rows(LABELS, ["", " "] * 4, [0, 1] * 4), TfIdf())


def test_texts_without_known_words_have_an_answer():
    train = rows(LABELS, texts_of(8), np.arange(24) % 3)
    teacher = fitted(LABELS, train, train, TfIdf())
    answers = teacher.logits(dataclasses.replace(train, sentence1=["", "?", "完全"] * 8))
    np.testing.assert_allclose(log_softmax(answers, 1), answers, atol=1e-5)


def test_characters_that_no_two_texts_share_are_not_needed():
    train = rows(TWO, ["a b", "c d"] * 4, [0, 1] * 4)
    assert TfIdf().fit(rows(TWO, ["ab", "cd", "", "x"], [0, 1, 0, 1])).shape == (4, 3)
    assert (learned(TWO, train)[0].argmax(1) == train.labels).all()


def test_parts_of_words_are_left_out_of_much_text(monkeypatch):
    train = rows(LABELS, texts_of(8), np.arange(24) % 3)
    few, many = TfIdf(), TfIdf()
    few.fit(train)
    monkeypatch.setattr(linear, "_MANY_CHARACTERS", 100)
    many.fit(train)
    assert (len(few.counters), len(many.counters)) == (2, 1)
    assert many.counters[0].terms == few.counters[0].terms


def test_features_are_those_of_scikit_learn():
    texts = ["It's a FILM, a film!", "café  au\tlait", "films of the café", "x", ""]
    usual = {"sublinear_tf": True, "dtype": np.float32}
    vectorizers = (
        TfidfVectorizer(tokenizer=split_words, token_pattern=None, lowercase=False, ngram_range=(1, 2), **usual),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=2, **usual),
    )
    features, more = TfIdf(), ["a new café", "unknown", ""]
    train, expected = features.fit(rows(LABELS, texts, [0] * 5)), [v.fit_transform(texts) for v in vectorizers]
    np.testing.assert_allclose(train.toarray(), hstack(expected).toarray(), atol=1e-6)
    new, expected = features(rows(LABELS, more, [0] * 3)), [v.transform(more) for v in vectorizers]
    np.testing.assert_allclose(new.toarray(), hstack(expected).toarray(), atol=1e-6)
    (pair,) = features(rows(PAIRS, texts[:1], [0], texts[2:3])).toarray()
    u, v = train.toarray()[[0, 2]]
    np.testing.assert_allclose(pair, [*(u * v), u @ v, *abs(u - v)], atol=1e-6)
