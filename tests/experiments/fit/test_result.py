"""The result of a fit: its interval, and what it says about a bad one."""

import pytest

from compression.experiments.fit.result import FitResult, Packed, wilson
from compression.experiments.fit.settings import Baseline


def result(score, majority=0.5, baselines=(), sizes=(32_000,), epochs=15):
    packed = [
        Packed(
            max_bytes=size,
            student="words",
            model="words",
            epochs=epochs,
            validation=score,
            metrics={"accuracy": score},
            packed=f"{size}.fwt",
            output=f"{size}.fwt",
            bytes=size - 9,
            sha256="",
        )
        for size in sizes
    ]
    scored = [
        Baseline(name=name, metrics={"accuracy": value} if value else {}, details="", seconds=1)
        for name, value in baselines
    ]
    words = {"name": "a", "file": "a.csv", "task": "texts", "teacher": "linear", "report": "", "metric": "accuracy"}
    numbers = {"seconds": 60, "minutes": 1, "chosen": 0, "stages": {}, "majority": majority}
    rows = {"train": 800, "validation": 100, "test": 400}
    several = {"notes": (), "tried": (), "texts": ("text",), "example": ("a text",)}
    return FitResult(sizes=tuple(packed), baselines=tuple(scored), rows=rows, **words, **numbers, **several)


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
    bad = result(score, baselines=baselines)
    assert len(bad.warnings) == len(warned)
    for warning, words in zip(bad.warnings, warned, strict=True):
        assert words in warning
        assert warning in bad.text()
    assert len(bad.text().splitlines()) <= 15


def test_a_student_of_too_few_epochs_says_so():
    assert result(0.9, epochs=3).warnings == []
    assert "few epochs of training (2)" in result(0.9, epochs=2).warnings[0]


def test_several_sizes_have_a_line_each_and_a_recommendation():
    text = result(0.9, sizes=(8000, 32_000)).text()
    assert text.count("Student: ") == 2
    assert "Recommended: 7,991 bytes (8000.fwt)." in text
