"""benchmarks/board.py: methods on a small folder of sets, results that are not measured again, and the table."""

import csv
import dataclasses
import json
import shutil
import sys

import pytest
import tiny

sys.path.insert(0, str(tiny.ROOT / "benchmarks"))

import board
import board_methods

from common.errors import UserError


def write_set(folder, name, rows=40):
    """Write a set whose label is the text's second word; a fifth of test is labelled wrongly."""
    for split, wrong in (("train", 0), ("test", 5)):
        lines = [
            (f"number {word} {i}", "one" if split == "test" and i < wrong else word)
            for i in range(rows // 2)
            for word in ("one", "two")
        ]
        with (folder / f"{name}.{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *lines])


def run(monkeypatch, folder, *words):
    monkeypatch.setattr(sys, "argv", ["board.py", str(folder), "--output", str(folder / "board.json"), *words])
    board.main()
    return json.loads((folder / "board.json").read_text())


@pytest.mark.slow
def test_results_are_added_and_not_measured_again(tmp_path, monkeypatch, capsys):
    write_set(tmp_path, "first")
    peers = ["tf-idf-words", "tf-idf-characters"] + ["fasttext"] * bool(shutil.which("fasttext"))
    rows = run(monkeypatch, tmp_path, "--no-fit", "--peers", *peers)
    assert [row["method"] for row in rows] == peers
    for row in rows:
        assert row["accuracy"] == 87.5
        assert row["macro_f1"] == pytest.approx(100 * (8 / 9 + 6 / 7) / 2)
        assert row["bytes"] > 1000
    assert "| fasttext |" in capsys.readouterr().out or "fasttext" not in peers

    calls = []

    def fit(job):
        calls.append((job.train.name, job.budgets, job.minutes))
        if job.budgets == [1]:
            raise UserError("too small")
        return [board_methods.Outcome(["one"] * 40, 7999, 60 * job.minutes, budget=8000)]  # nothing fits into 1 byte

    monkeypatch.setattr(board, "FIT", dataclasses.replace(board.FIT, run=fit))
    write_set(tmp_path, "second")
    words = ("--peers", "--budgets", "1", "8000", "--minutes", "0.5")
    assert run(monkeypatch, tmp_path, *words)[: len(peers)] == rows
    assert calls == [(f"{name}.train.csv", [1, 8000], 0.5) for name in ("first", "second")]
    run(monkeypatch, tmp_path, *words, "--sets", "first")
    assert calls[2:] == [("first.train.csv", [1], 0.5)]
    assert "first, fit, 0.5 min: left out: too small" in capsys.readouterr().err
    lines = (tmp_path / "board.md").read_text().splitlines()
    assert lines[0] == "| accuracy | first | second | mean | macro F1 | bytes | seconds |"
    assert lines[2] == "| fit, 8,000 bytes, 0.5 min | 62.5 | 62.5 | 62.5 | 38.5 | 7,999 | 30 |"
    assert lines[3].startswith("| tf-idf-words | 87.5 |  |  |  |")  # no mean over fewer sets


def test_missing_files_are_named(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"no file NAME\.train\.csv"):
        run(monkeypatch, tmp_path)
    write_set(tmp_path, "first")
    with pytest.raises(UserError, match=r"third\.train\.csv: no such file"):
        run(monkeypatch, tmp_path, "--sets", "first", "third")
    (tmp_path / "first.test.csv").write_text("sentence,label\nno,one\n")
    with pytest.raises(UserError, match=r"first\.test\.csv: no column 'text'"):
        board.read_rows(tmp_path / "first.test.csv")
