"""The files of a report: tables in three forms, pages and pictures."""

import csv
import statistics
from pathlib import Path

import pytest
from pivot_rows import ALPHA_0, NO_DISTIL, SMALL, record, scored, teacher, values

from compression.experiments.report import write_report

STUDENT = {"student_arch": values("bilstm", axis="student_arch")}


@pytest.mark.slow
def test_files(tmp_path: Path):
    rows = [teacher({"accuracy": 0.93}), *scored(NO_DISTIL, 0.78, 0.80), *scored(ALPHA_0, 0.81, 0.82, 0.83, 0.84)]
    paths = write_report(tmp_path, rows, SMALL)
    assert {"table.md", "table.csv", "table.tex", "report.md", "report.html", "skyline.png"} <= set(paths)
    line = "| bilstm | 400,000 | 1.600 | 56 | 79.00 ± 1.41 (2/4) | **82.50 ± 1.29** |"
    assert line in paths["table.md"].read_text(encoding="utf-8")
    report = paths["report.md"].read_text(encoding="utf-8")
    assert report.index(line) < report.index("| **bilstm, alpha 0** |")
    first, second = csv.DictReader(paths["table.csv"].open(encoding="utf-8", newline=""))
    assert (first["kind"], first["student_arch"], first["bytes"]) == ("teacher", "minilm", "90000000.0")
    assert second["no distil · accuracy, mean"] == repr(statistics.fmean([0.78, 0.80]))
    assert second["no distil · accuracy, n"] == "2"
    assert r"\textbf{82.50 $\pm$ 1.29}" in paths["table.tex"].read_text(encoding="utf-8")


def test_lines_of_a_summary_are_escaped_once(tmp_path: Path):
    small = SMALL.model_copy(update={"summary": ("reviews[1]: a*b",)})
    report = write_report(tmp_path, [], small)["report.md"].read_text(encoding="utf-8")
    assert "- reviews\\[1\\]: a\\*b\n" in report


def test_each_of_several_tables_has_its_files(tmp_path: Path):
    axes = {"task": values("sst-2", "qqp", axis="task"), **STUDENT}
    paths = write_report(tmp_path, [], record(axes, columns=["student_arch"]))
    assert sorted(name for name in paths if "table" in name) == [
        f"table-{task}.{kind}" for task in ("qqp", "sst-2") for kind in ("csv", "md", "tex")
    ]
    assert "skyline.png" not in paths
