"""Exact match and F1 of answers, worked out by the rules of SQuAD's evaluation script."""

import numpy as np
import pytest

from common.config import build
from common.data.tasks import Task
from common.kinds.answers import exact_match, overlap_f1, row_scores
from common.training.metrics import agreement, score

TASK = build(Task, {"name": "q", "kind": "answers", "unanswerable": True, "source": {"files": {"all": "a.json"}}})


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("The  Film!", "film", 1, 1),  # case, punctuation, articles and spaces do not count
        ("U.S.", "us", 1, 1),  # punctuation goes before words are divided
        ("U S", "us", 0, 0),
        ("theatre", "atre", 0, 0),  # articles are whole words
        ("a-b", "ab", 1, 1),  # what punctuation leaves is one word, and not an article
        ("“film”", "film", 0, 0),  # punctuation is ASCII's
        ("the red red car", "red car car", 0, 2 * (2 / 3 * 2 / 3) / (2 / 3 + 2 / 3)),  # red and car once each
        ("in 1990", "1990", 0, 2 * (1 / 2 * 1) / (1 / 2 + 1)),
        ("blue", "red", 0, 0),
        ("", "", 1, 1),
        ("the", "", 1, 1),
        ("red", "", 0, 0),
        ("", "red", 0, 0),
    ],
)
def test_two_answers_by_hand(answer, gold, exact, f1):
    assert exact_match(answer, gold) == exact
    assert overlap_f1(answer, gold) == pytest.approx(f1)


def test_a_row_has_the_best_over_its_gold_answers():
    gold = [["red car", "car"], ["red car", "big red car"], [""], ["the", "film"], ["the"]]
    found = row_scores(["the car", "red", "red", "", ""], gold)
    assert found[:, 0].tolist() == [1, 0, 0, 0, 1]
    assert found[:, 1] == pytest.approx([1, 2 / 3, 0, 0, 1])


def test_scores_are_means_over_questions():
    contexts = ["the red car stops", "a blue car", "nothing"]
    labels = np.array([[[4, 11], [8, 11]], [[2, 6], [-1, -1]], [[0, 0], [-1, -1]]])
    # "car", "blue car", and no answer.
    logits = np.full((3, 5, 2), np.nan, np.float32)
    for row, (words, first, last) in enumerate([(4, 3, 3), (3, 2, 3), (1, 0, 0)]):
        logits[row, : words + 1] = 0
        logits[row, first, 0] = logits[row, last, 1] = 3
    assert score(TASK, labels, logits, contexts) == pytest.approx(
        {"answer_f1": (1 + 2 / 3 + 1) / 3, "exact_match": 2 / 3}
    )
    assert agreement(TASK, logits, logits[:, ::1]) == {"agreement": 1}
    other = logits.copy()
    other[0, 1] = 9
    assert agreement(TASK, logits, other) == {"agreement": pytest.approx(2 / 3)}
