"""The result of a fit: its interval, and what it says about a bad one."""

import pytest
from fit_results import packed, result

from compression.experiments.fit.result import wilson
from compression.experiments.fit.settings import Baseline


def fitted(score, baselines=(), sizes=(32_000,), epochs=15):
    scored = [
        Baseline(name=name, metrics={"accuracy": value} if value else {}, details="", seconds=1)
        for name, value in baselines
    ]
    files = (packed(size, score, epochs=epochs) for size in sizes)
    return result(*files, baselines=tuple(scored), majority=0.5)


def test_the_interval_is_wilsons():
    """Values of the Wilson interval in Brown, Cai and DasGupta (2001) and of statsmodels."""
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


@pytest.mark.parametrize(
    ("score", "baselines", "warned"),
    [
        (0.9, [("fastText", 0.91), ("tf-idf", 0.0)], []),
        (0.8, [("fastText", 0.91), ("tf-idf", 0.95)], ["behind tf-idf (95.0)"]),
        (0.51, [], ["no better than always the same label (50.0)"]),
        (0.4, [("fastText", 0.9)], ["no better than always the same label (50.0)", "behind fastText (90.0)"]),
    ],
)
def test_a_bad_result_says_so(score, baselines, warned):
    bad = fitted(score, baselines=baselines)
    assert len(bad.warnings) == len(warned)
    for warning, words in zip(bad.warnings, warned, strict=True):
        assert words in warning
        assert warning in bad.text()
    assert len(bad.text().splitlines()) <= 15


def test_a_student_of_too_few_epochs_says_so():
    assert fitted(0.9, epochs=3).warnings == []
    assert "few epochs of training (2)" in fitted(0.9, epochs=2).warnings[0]


def test_words_are_not_explained():
    assert "--explain" in result(packed(8000)).commands[1]
    assert not any("--explain" in command for command in result(packed(8000), explains=False).commands)


def test_several_sizes_have_a_line_each_and_a_recommendation():
    text = fitted(0.9, sizes=(8000, 32_000)).text()
    assert text.count("Student: ") == 2
    assert "Recommended: 7,991 bytes (8000.fwt)." in text
