"""What fit reads of a file of texts and numbers, and of its --test file."""

import pytest
from own_task import write_csv

from common.data.readers import any_table
from common.errors import UserError
from compression.experiments.fit.contents.read import read_contents
from compression.experiments.fit.settings import FitSettings

NUMBERS = "Column 'verdict' has numbers to predict (--kind labels takes each as a label)."


def contents(folder, labels_of_test):
    write_csv(folder / "train.csv", [(f"some words here {i}", f"{i / 8}") for i in range(60)])
    write_csv(folder / "test.csv", [(f"other words here {i}", label) for i, label in enumerate(labels_of_test)])
    return read_contents(FitSettings(file=folder / "train.csv", test=folder / "test.csv"))


def test_a_sample_of_the_test_file_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(any_table, "MOST_ROWS", 60)
    read = contents(tmp_path, ["1.5"] * 70)
    assert len(read.test) == 60
    assert read.notes == (NUMBERS, "test.csv: 70 rows, of which 60 are drawn at random.")
    assert contents(tmp_path, ["1.5"] * 60).notes == (NUMBERS,)


@pytest.mark.parametrize("cell", ["nan", "inf", "1_000", "good"])
def test_numbers_of_the_test_file_are_finite(tmp_path, cell):
    with pytest.raises(UserError, match=rf"test\.csv: column 'verdict': '{cell}' is not a number"):
        contents(tmp_path, ["1.5", cell])


def test_numbers_of_the_test_file_widen_the_range(tmp_path):
    assert contents(tmp_path, ["-2", "1.5"]).range == (-2, 7.375)
