"""Calibration errors and reliability diagrams in reports, from rows with bins."""

from pathlib import Path

import page_rows
import pivot_rows
import pytest

from compression.experiments.report import terminal_report, write_report
from compression.experiments.report.columns import models_table
from compression.experiments.report.pictures import MOST_DIAGRAMS, calibrated_groups, calibration_text, draw_reliability
from compression.experiments.report.record import ExperimentRecord
from compression.experiments.report.results import group_rows, mean_over_splits

EMPTY = [0, 0.0, 0.0]
RECORD = ExperimentRecord(name="chain", title="A title", kind="chain", definition="x")


def row(model="ffn-s1", seed=1, bins=((10, 0.75, 0.6),), ece=0.15, before=0.25, **changes):
    """A student's row with one filled bin or two."""
    filled = [EMPTY] * 10 + [list(each) for each in bins]
    calibration = {"bins": filled}
    if before is not None:
        calibration |= {"temperature": 2.0, "ece_before": before, "bins_before": filled}
    sizes = {"parameters": 10, "bytes_model": 4000, "bytes_gzip": 2000, "bytes_packed": 1000, "stage": "distilled"}
    own = {"model": model, "ece": ece, "calibration": calibration, "rows": 10, **sizes}
    return {**pivot_rows.row(None, seed, {"accuracy": 0.8}), **own, **changes}


def texts(rows, terminal=False):
    (results,) = group_rows(rows)
    table = models_table(results, terminal)
    heads = [head.levels[0] for head in table.heads]
    return [dict(zip(heads, [entry.text for entry in line.entries], strict=True)) for line in table.lines]


def test_the_table_has_the_error_before_and_after():
    rows = [row(), row("ffn-s2", 2, ece=0.05), row("other-s1", ece=0.1, before=None)]
    first, second = texts(rows)
    assert (first["ECE, %"], first["ECE before calibration, %"]) == ("10.00 ± 7.07 (2)", "25.00 ± 0.00 (2)")
    assert (second["ECE, %"], second["ECE before calibration, %"]) == ("10.00 (1)", "–")
    assert "ECE, %" not in texts(rows, terminal=True)[0]
    assert "ECE" not in terminal_report(rows, RECORD)
    plain = {key: value for key, value in row().items() if key not in ("ece", "calibration")}
    assert "ECE, %" not in texts([plain])[0]


def points(figure):
    """The points of each diagram, by name of the series."""
    return [{c.get_label(): c.get_offsets().tolist() for c in axes.collections} for axes in figure.axes]


def test_seeds_are_drawn_together_weighted_by_their_rows():
    rows = [row(bins=((10, 0.75, 0.6), (0, 0, 0))), row("ffn-s2", 2, bins=((30, 0.79, 1.0), (5, 0.9, 0.8)))]
    (results,) = group_rows(rows)
    (drawn,) = points(draw_reliability(results))
    assert drawn["with temperature"] == [pytest.approx([78, 90]), pytest.approx([90, 80])]
    assert drawn["softmax"] == drawn["with temperature"]
    assert calibration_text(results.groups[0]) == "ECE 25.00 → 15.00 %"


@pytest.mark.parametrize("models", [1, 2, 3, 4])
def test_all_text_is_inside_the_picture(models):
    (results,) = group_rows([row(f"ffn{i}", i) | {"config_hash": str(i)} for i in range(models)])
    figure = draw_reliability(results)
    figure.draw_without_rendering()
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert min(*box.min) >= -1
        assert (box.max <= figure.bbox.max + 1).all()


def test_without_a_temperature_there_is_one_line():
    (results,) = group_rows([row(before=None)])
    assert list(points(draw_reliability(results))[0]) == ["softmax"]
    assert calibration_text(results.groups[0]) == "ECE 15.00 %"


def test_teachers_and_models_without_probabilities_have_no_diagram():
    plain = {key: value for key, value in row().items() if key not in ("ece", "calibration")}
    (results,) = group_rows([row("bert", stage="teacher"), plain])
    assert draw_reliability(results) is None


def test_of_many_students_the_best_are_drawn():
    accuracies = [0.5, 0.9, 0.6, 0.7, 0.8, 0.65, 0.75, 0.55]
    rows = [
        row(f"m{i}-s1", bytes_packed=1000 * (i + 1), bytes_gzip=1000 * (i + 1), metrics={"accuracy": accuracy})
        for i, accuracy in enumerate(accuracies)
    ]
    (results,) = group_rows(rows)
    assert len(rows) > MOST_DIAGRAMS
    assert [group.name for group in calibrated_groups(results)] == ["m0", "m1"]
    (results,) = group_rows(rows[:MOST_DIAGRAMS])
    assert len(calibrated_groups(results)) == MOST_DIAGRAMS


def test_reports_show_the_diagram(tmp_path: Path):
    paths = write_report(tmp_path, [row(), row(split="validation", before=None)], RECORD)
    assert {"reliability-1.png", "reliability-2.png"} <= set(paths)
    assert paths["reliability-1.png"].read_bytes().startswith(b"\x89PNG")
    text = paths["report.md"].read_text()
    assert "![Reliability on sst-2, test (10 rows)](reliability-1.png)" in text
    assert "Guo et al., 2017" in text
    html = paths["report.html"].read_text()
    assert html.count('<figure class="reliability">') == 2
    assert "ECE before calibration" in html
    assert '<figure class="reliability">' not in page_rows.page(*page_rows.sweep())


def test_a_mean_over_splits_has_the_mean_error_and_no_bins():
    rows = [row(split="test_a", ece=0.1), row(split="test_b", ece=0.3)]
    mean = mean_over_splits(rows, ("test_a", "test_b"))
    assert (mean["ece"], mean["calibration"]) == (pytest.approx(0.2), None)
    assert mean_over_splits(rows[:1], ("test_a",))["calibration"] == rows[0]["calibration"]
