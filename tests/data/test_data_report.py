"""The report on a task's files: exact counts, and the same as data, as text and on the command line."""

import json
import runpy
import sys

import numpy as np
import pytest
import tiny

from common.data.prepare import prepare
from common.data.report import as_text, make_report
from common.data.split import Split, read_report
from common.data.tasks import Task, load_task
from common.kinds.registry import NUMBERS
from common.store.workspace import Workspace

TASK = Task(name="moods", labels=("sad", "glad"), source={"files": {"train": "t.csv", "test": "e.csv"}})
STARS = Task(name="stars", kind="numbers", range=(0, 5), source={"files": {"train": "t.csv"}})


def split_of(*rows):
    """A split of (sentence, class or None)."""
    labels = np.array([-1 if label is None else label for _, label in rows])
    return Split([text for text, _ in rows], None, labels, np.arange(len(rows)))


TRAIN = split_of(("one two three", 0), ("One two", 1), ("one two", 0), ("", 1), ("👍🏽 שלום", None))
VALIDATION = split_of(("one two", 1), ("four", 0))
TEST = split_of(("ONE TWO", 1), ("five", 1), ("five", 1))
SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


@pytest.fixture
def report():
    return make_report(TASK, {"train": TRAIN, "test": TEST}, SPLITS, {"validation": 3, "repeated": 0}, {})


def test_counts_of_a_split(report):
    part = report["splits"]["train"]
    assert (part["rows"], part["unlabelled"], part["empty"]) == (5, 1, 1)
    assert part["repeated"] == 0  # the labels differ
    assert part["contradictory"] == 1  # whatever its case
    assert part["contradiction"] == ["'One two' -> 'glad'", "'one two' -> 'sad'"]
    assert report["splits"]["test"]["repeated"] == 1
    assert part["labels"] == {"sad": {"rows": 2, "share": 0.5}, "glad": {"rows": 2, "share": 0.5}}
    assert report["splits"]["test"]["labels"]["sad"] == {"rows": 0, "share": 0.0}


def test_lengths_are_those_of_rows(report):
    part = report["splits"]["train"]
    assert part["words"] == {"5": 0, "50": 2, "95": 3, "99": 3, "max": 3}
    assert part["characters"]["max"] == len("one two three")
    long = split_of(*((" ".join(["w"] * n), 0) for n in range(1, 101)))
    words = make_report(TASK, {}, {**SPLITS, "train": long}, {}, {})["splits"]["train"]["words"]
    assert words == {"5": 5, "50": 50, "95": 95, "99": 99, "max": 100}


def test_repeated_rows_without_a_label_contradict_nothing():
    split = split_of(("a", None), ("a", 0), ("a", None), ("a", 0))
    part = make_report(TASK, {}, {**SPLITS, "train": split}, {}, {})["splits"]["train"]
    assert (part["repeated"], part["contradictory"]) == (3, 0)


def test_a_file_that_is_a_split_is_described_once(report):
    assert report["read"] == {}
    assert list(report["splits"]) == ["train", "validation", "test"]
    carved = make_report(TASK, {"train": split_of(("a", 0)), "test": TEST}, SPLITS, {}, {})
    assert list(carved["read"]) == ["train"]


def test_rows_that_two_splits_share_are_counted_once(report):
    found = {(entry["split"], entry["of"]): entry["rows"] for entry in report["overlaps"]}
    assert found == {("train", "validation"): 2, ("train", "test"): 2, ("validation", "test"): 1}


def test_the_text_is_aligned_and_names_dropped_and_shared_rows(report):
    lines = as_text(report).splitlines()
    counts = next(line for line in lines if line.startswith("train "))
    assert counts.split()[1:6] == ["5", "1", "1", "0", "1"]
    assert "sad    2 (50.0 %)" in as_text(report)
    assert lines[-2:] == [
        "rows that left train: 3 overlapping validation",
        "rows still in two splits: 2 of train in validation, 2 of train in test, 1 of validation in test",
    ]


def test_scores_of_a_regression_have_no_balance():
    split = Split(["a", "b", "c"], None, np.float32([0.5, np.nan, 4]), np.arange(3), NUMBERS)
    report = make_report(STARS, {}, {"train": split, "validation": split, "test": split}, {}, {})
    assert report["splits"]["train"]["labels"] == {"lowest": 0.5, "mean": 2.25, "highest": 4.0}
    assert report["splits"]["train"]["unlabelled"] == 1
    assert "highest" in as_text(report)


def test_many_labels_and_no_labels_are_shown_briefly():
    many = Task(name="m", labels=[f"label {i}" for i in range(50)], source={"files": {"all": "a.csv"}})
    assert "... and 30 labels more" in as_text(make_report(many, {}, SPLITS, {}, {}))
    none = split_of(("a", None))
    text = as_text(make_report(TASK, {}, dict.fromkeys(SPLITS, none), {}, {}))
    assert "glad" not in text


def test_shipped_tasks_are_reported_on_too_and_reported_again(tmp_path, glue, capsys):
    task, paths = load_task("sst-2"), Workspace(tmp_path)
    splits = prepare(paths, task, glue, seed=1)
    output = capsys.readouterr().err
    report = read_report(paths, "sst-2")
    assert report["splits"]["train"]["rows"] == len(splits["train"])
    assert report["read"]["train"]["rows"] == 180
    left = 180 - len(splits["train"]) - len(splits["validation"])
    assert report["dropped"] == {"validation": left}
    assert as_text(report) in output
    prepare(paths, task, glue, seed=1)
    assert as_text(report) in capsys.readouterr().err


def test_preprocess_prints_the_report_as_json(tmp_path, glue, monkeypatch, capsys):
    words = ["--task", "qqp", "--data-dir", glue, "--workspace", tmp_path, "--no-loadbar", "--json"]
    monkeypatch.setattr(sys, "argv", ["preprocess.py", *map(str, words)])
    runpy.run_path(str(tiny.ROOT / "preprocess.py"), run_name="__main__")
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert printed["report"] == read_report(Workspace(tmp_path), "qqp")
    assert printed["rows"]["test"] == printed["report"]["splits"]["test"]["rows"] == 50
    assert "rows still in two splits" in captured.err
