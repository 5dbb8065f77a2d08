"""Expected calibration error by hand, and in the rows of students, teachers and packed files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shrunk import compressed
from stages import logits_of, score_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from common.training.calibration import fit_temperature
from compression.evaluation.calibration import (
    BINS,
    calibration_fields,
    expected_calibration_error,
    reliability_bins,
)
from compression.runtime import to_probabilities


def binary(*confidences):
    """Probabilities of two labels whose first one is predicted."""
    return np.array([[p, 1 - p] for p in confidences])


def test_the_error_by_hand():
    # Bins of a fifteenth: 0.55 is in (8/15, 9/15], 0.90 and 0.92 in (13/15, 14/15].
    bins = reliability_bins(binary(0.55, 0.55, 0.90, 0.92), np.array([0, 1, 0, 0]))
    assert len(bins) == BINS == 15
    filled = {index: bin_ for index, bin_ in enumerate(bins) if bin_[0]}
    assert filled == {8: [2, 0.55, 0.5], 13: [2, 0.91, 1.0]}
    assert expected_calibration_error(bins) == pytest.approx((2 * 0.05 + 2 * 0.09) / 4)


@pytest.mark.parametrize(("probability", "index"), [(9 / 15, 8), (0.6001, 9), (1.0, 14), (8.01 / 15, 8)])
def test_a_bin_holds_its_upper_end(probability, index):
    assert reliability_bins(binary(probability), np.array([0]))[index] == [1, round(probability, 6), 1.0]


def test_probabilities_that_are_right_as_often_as_they_say_have_no_error():
    assert expected_calibration_error(reliability_bins(binary(*[0.75] * 4), np.array([0, 0, 0, 1]))) == 0
    assert expected_calibration_error(reliability_bins(binary(1.0, 1.0), np.array([1, 1]))) == 1


@given(st.lists(st.tuples(st.floats(0.5, 1), st.integers(0, 1)), min_size=1, max_size=50))
def test_the_error_is_a_share_and_bins_hold_every_row(rows):
    confidences, labels = zip(*rows, strict=True)
    bins = reliability_bins(binary(*confidences), np.array(labels))
    assert sum(count for count, _, _ in bins) == len(rows)
    assert 0 <= expected_calibration_error(bins) <= 1
    accuracy = sum(count * share for count, _, share in bins) / len(rows)
    assert accuracy == pytest.approx(np.mean(binary(*confidences).argmax(1) == labels), abs=1e-5)


def test_fields_have_the_error_before_and_after():
    logits, labels = np.array([[3, 0], [2, 0]], np.float32), np.array([0, 1])
    plain = calibration_fields(logits, labels, None)
    assert set(plain["calibration"]) == {"bins"}
    fields = calibration_fields(logits, labels, 100.0)
    assert fields["calibration"]["temperature"] == 100
    assert fields["calibration"]["ece_before"] == plain["ece"] > 0.3
    assert fields["calibration"]["bins_before"] == plain["calibration"]["bins"]
    assert fields["ece"] == pytest.approx(to_probabilities(logits, 100.0).max(1).mean() - 0.5, abs=1e-6)


def test_rows_of_students_and_their_packed_files_have_the_same_temperature(workspace):
    student = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "epochs": 3}
    compressed(workspace, "distill", "pack", **student)
    row, packed = score_of(workspace, "s"), score_of(workspace, "s", packed=True)
    splits = [load_split(Workspace(workspace), load_task("sst-2"), name) for name in ("validation", "test")]
    validation, test = (logits_of(workspace / "models/sst-2/s", each) for each in splits)
    temperature = fit_temperature(validation, splits[0].labels)
    assert row["calibration"]["temperature"] == packed["calibration"]["temperature"] == temperature
    bins = reliability_bins(to_probabilities(test, temperature), splits[1].labels)
    assert row["ece"] == pytest.approx(expected_calibration_error(bins), abs=1e-5)
    assert packed["ece"] == pytest.approx(row["ece"], abs=1e-3)
    teacher = score_of(workspace, "tiny-bert")
    assert set(teacher["calibration"]) == {"bins"}
    assert 0 <= teacher["ece"] <= 1
