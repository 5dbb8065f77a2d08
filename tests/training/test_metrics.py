"""Metrics worked out by hand, and the scales of scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from common.data.tasks import load_task
from common.errors import UserError
from common.kinds.ragged import padded
from common.kinds.registry import MULTILABEL
from common.kinds.registry import TAGS as TAGS_OF_WORDS
from common.training.metrics import agreement, main_score, score

TAGS = ("O", "B-a", "I-a", "B-b", "I-b")


def task_of(tags=TAGS, **changed):
    return load_task("ncbi-disease").model_copy(update={"labels": tags, **changed})


def test_scores_by_hand():
    task = task_of(metrics=("entity_f1", "entity_precision", "entity_recall", "accuracy"))
    labels = padded(np.array([1, 2, 0, 3, 0, 1]), np.array([5, 1]), -1)
    predicted = padded(np.array([1, 2, 0, 3, 4, 1]), np.array([5, 1]), -1)  # the second entity is too long
    logits = np.where((predicted >= 0)[..., None], np.eye(5, dtype=np.float32)[predicted], np.nan)
    expected = {"entity_f1": 2 / 3, "entity_precision": 2 / 3, "entity_recall": 2 / 3, "accuracy": 5 / 6}
    assert score(task, labels, logits) == pytest.approx(expected)
    wider = np.pad(labels, ((0, 0), (0, 3)), constant_values=-1)
    assert score(task, wider, logits) == pytest.approx(expected)


def test_confidence_is_the_probability_of_the_choice():
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]], np.float32))
    assert COLA.kind.confidence(COLA, logits + 100) == pytest.approx([0.75, 0.5, 0.9], abs=1e-5)
    several = COLA.model_copy(update={"kind": MULTILABEL})
    assert several.kind.confidence(several, np.log(np.array([[3, 1 / 4], [1, 9]], np.float32))) == pytest.approx(
        [0.75, 0.5]
    )
    words = np.stack([logits, np.full_like(logits, np.nan)])
    words[1, 0] = logits[2]
    assert TAGS_OF_WORDS.confidence(task_of(("O", "B-a")), words) == pytest.approx([0.5, 0.9])
    with pytest.raises(UserError, match="sts-b is a regression"):
        STS.kind.confidence(STS, logits[:, :1])


COLA, STS = load_task("cola"), load_task("sts-b")
MANY = load_task("mnli").model_copy(update={"metrics": ("f1_macro", "matthews")})


def as_logits(predictions, classes):
    return np.eye(classes, dtype=np.float32)[predictions]


def test_matthews_by_hand():
    # 2 true positives, 1 false one, 1 false negative, 2 true ones: (2 * 2 - 1 * 1) / sqrt(3 * 3 * 3 * 3).
    labels, predictions = np.array([1, 1, 1, 0, 0, 0]), [1, 1, 0, 1, 0, 0]
    assert score(COLA, labels, as_logits(predictions, 2)) == {"matthews": pytest.approx(1 / 3)}
    assert main_score(COLA, labels, as_logits(1 - np.array(predictions), 2)) == pytest.approx(-1 / 3)


def test_f1_macro_is_the_mean_over_classes():
    # Class 0: precision 1, recall 1/2; class 1: precision 1/2, recall 1; class 2: never found.
    found = score(MANY, np.array([0, 0, 1, 2]), as_logits([0, 1, 1, 0], 3))
    # precision of class 0 is 1/2: one of the two rows called 0 is a 2.
    assert found["f1_macro"] == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)


def test_correlations_by_hand():
    labels, logits = np.float32([1, 2, 3, 4]), np.float32([[0.1], [0.3], [0.2], [0.8]])
    found = score(STS, labels, logits)
    # Deviations -1.5 -0.5 0.5 1.5 and -0.25 -0.05 -0.15 0.45.
    assert found["pearson"] == pytest.approx(
        (0.375 + 0.025 - 0.075 + 0.675) / (5 * (0.0625 + 0.0025 + 0.0225 + 0.2025)) ** 0.5
    )
    assert found["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))  # two ranks differ by one


@pytest.mark.parametrize("task", [COLA, STS, MANY])
def test_constant_predictions_have_no_correlation(task):
    labels = np.float32([0, 2.5, 5]) if task is STS else np.array([0, 1, 1])
    found = score(task, labels, np.tile(np.eye(1, task.outputs, dtype=np.float32), (3, 1)))
    assert {found[name] for name in ("matthews", "pearson", "spearman") if name in found} == {0.0}


NUMBERS = st.integers(-800, 800).map(lambda number: number / 8)


@settings(max_examples=30)
@given(
    st.integers(3, 30).flatmap(lambda n: st.tuples(*[arrays.arrays(np.float32, n, elements=NUMBERS)] * 2)),
    st.floats(0.5, 4),
    st.floats(-10, 10),
)
def test_scaling_and_shifting_predictions_changes_no_correlation(columns, factor, shift):
    labels, predictions = columns
    before = score(STS, labels, predictions[:, None])
    after = score(STS, labels, (factor * predictions.astype(np.float64) + shift)[:, None])
    assert after["pearson"] == pytest.approx(before["pearson"], abs=1e-3)
    assert -1 - 1e-9 <= before["pearson"] <= 1 + 1e-9


def test_scores_are_learned_in_0_to_1_and_returned_in_their_range():
    labels = np.float32([0, 2.5, 5])
    assert STS.kind.targets(STS, labels).tolist() == [0, 0.5, 1]
    assert STS.kind.choices(STS, STS.kind.targets(STS, labels)[:, None]).tolist() == labels.tolist()
    assert (
        COLA.kind.targets(COLA, np.array([1, 0])).tolist()
        == COLA.kind.choices(COLA, as_logits([1, 0], 2)).tolist()
        == [1, 0]
    )


LISTS = COLA.model_copy(update={"kind": MULTILABEL, "labels": ("a", "b", "c"), "metrics": ()})


def test_scores_of_lists_of_labels_by_hand():
    labels = np.float32([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]])
    logits = np.float32([[2, -1, -3], [0, -2, 1], [-1, -1, -1], [-0.5, 3, -9]])  # chosen: a; a c; none; b
    found = score(LISTS, labels, logits)
    assert found == {
        "f1_micro": pytest.approx(2 * 3 / (4 + 4)),  # 3 of 4 chosen are right, 3 of 4 are found
        "f1_macro": pytest.approx((1 + 2 / 3 + 0) / 3),  # c is never a label
        "subset_accuracy": pytest.approx(3 / 4),
    }
    assert main_score(LISTS, labels, logits) == found["f1_micro"]
    assert main_score(LISTS, np.zeros((2, 3), np.float32), -np.ones((2, 3), np.float32)) == 0


def test_a_label_is_chosen_from_a_probability_of_one_half():
    assert LISTS.kind.choices(LISTS, np.float32([[0.1, 0, -0.1]])).tolist() == [[1, 1, 0]]
    assert LISTS.kind.targets(LISTS, np.float32([[1, 0, np.nan]])).tolist()[0][:2] == [1, 0]


def test_agreement_on_lists_of_labels_is_of_all_labels_of_a_row():
    teacher = np.float32([[1, -1, 1], [-1, -1, -1]])
    assert agreement(LISTS, teacher, teacher * 3) == {"agreement": 1}
    assert agreement(LISTS, teacher, np.float32([[1, -1, -1], [-2, -1, -1]])) == {"agreement": 0.5}


def test_agreement_is_of_the_students_choices_with_the_teachers():
    teacher, student = as_logits([0, 1, 1, 0], 2), as_logits([0, 1, 0, 0], 2)
    assert agreement(COLA, teacher, 7 * student) == {"agreement": pytest.approx(3 / 4)}
    assert agreement(STS, teacher[:, :1], 3 * teacher[:, :1] + 1) == {"agreement_pearson": pytest.approx(1)}
