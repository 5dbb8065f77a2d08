"""Leave-one-out with a model that counts words, so that every drop is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kinds.registry import LABELS, NUMBERS
from compression.inference import explain
from compression.inference.classifier import Classifier
from compression.inference.explain import MOST_WORDS, leave_one_out
from compression.inference.writers import explanation_lists, explanation_text

WEIGHTS = {"good": 0.25, "great": 0.5, "bad": -0.125}


def score(text):
    return sum(WEIGHTS.get(word, 0) for sentence in text for word in sentence.split())


def counting(labels=(), pair=False, sizes=None):
    """A regression that adds the weights of words; or two labels, the first as probable as the score says."""

    def values(texts):
        if sizes is not None:
            sizes.append(len(texts))
        scores = np.array([score(text) for text in texts], np.float32)
        return np.stack([scores, 1 - scores], 1) if labels else scores[:, None]

    return Classifier("m", "t", labels, pair, LABELS if labels else NUMBERS, values)


def drops(model, *texts):
    return leave_one_out(model, texts, model.probabilities(texts).tolist())


def test_every_word_has_its_own_drop():
    (found,) = drops(counting(), ("a good good bad film",))
    assert found == [[("a", 0), ("good", 0.25), ("good", 0.25), ("bad", -0.125), ("film", 0)]]
    assert drops(counting(), ("",), ("great",)) == [[[]], [[("great", 0.5)]]]


def test_the_answer_that_is_followed_is_the_models_own():
    first, second = drops(counting(("yes", "no")), ("great good",), ("good",))
    assert first == [[("great", 0.5), ("good", 0.25)]]  # yes at 0.75
    assert second == [[("good", -0.25)]]  # no at 0.75: without the word it is certain


def test_both_texts_of_a_pair():
    (found,) = drops(counting(pair=True), ("good film", "bad"))
    assert found == [[("good", 0.25), ("film", 0)], [("bad", -0.125)]]
    assert explanation_lists(found) == [[["good", 0.25], ["film", 0]], [["bad", -0.125]]]
    assert explanation_text(found) == "good +0.2500  film +0.0000 | bad -0.1250"


def test_long_texts_are_explained_by_their_first_words():
    (found,) = drops(counting(), ("good " * MOST_WORDS + "great",))
    assert found == [[("good", 0.25)] * MOST_WORDS]


def test_a_text_shows_the_words_that_moved_the_answer_most():
    (found,) = drops(counting(), ("x " * 20 + "bad great",))
    assert explanation_text(found).startswith("great +0.5000  bad -0.1250  x +0.0000")
    assert len(explanation_text(found).split("  ")) == 10
    assert len(explanation_lists(found)) == 22


@given(st.lists(st.lists(st.sampled_from(["good", "bad", "x"]), max_size=9).map(" ".join), max_size=6))
def test_drops_do_not_depend_on_batches_which_are_bounded(texts):
    rows, sizes = [(text,) for text in texts], []
    whole = drops(counting(), *rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "VARIANTS", 4)
        patch.setattr(explain, "CHARACTERS", 20)
        assert drops(counting(sizes=sizes), *rows) == whole
    assert max(sizes[1:], default=0) <= 4
