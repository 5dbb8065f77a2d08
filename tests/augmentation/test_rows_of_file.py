"""Rows of the user's own for a shipped task: --augment file."""

import few_pairs
import numpy as np
import pytest
import tiny
from few_pairs import augmented, splits

from common.data.split import read_split
from common.errors import UserError
from common.store.workspace import Workspace

PAIRS = tiny.pairs(40)


@pytest.fixture
def paths(tmp_path):
    """A workspace of QQP."""
    return few_pairs.prepared(tmp_path, PAIRS[:24], PAIRS[24:30])


def write(folder, rows, header=("extra", "question2", "question1")):
    return tiny.write_tsv(folder / "more.tsv", list(header), [list(row) for row in rows])


def test_rows_of_a_file_are_those_that_are_new(paths, tmp_path):
    train, (validation, test) = splits(paths)
    new = [("snli", "a  second text", "a first text"), ("n/a", "another", "one")]
    leaking = [("", validation.sentence1[0], "something"), ("", "anything", test.sentence2[1].upper())]
    known = [("", train.sentence2[0], train.sentence1[0]), ("", train.sentence1[1], train.sentence2[1])]
    repeated = [("", "A FIRST text.", "a second text"), ("", "?", "wordless"), ("", "the same", "the same !")]
    found = augmented(paths, "file", augment_file=write(tmp_path, [*leaking, *known, *new, *repeated]))
    assert list(zip(*found.sentences(), strict=True)) == [("a first text", "a second text"), ("one", "another")]
    assert found.source_rows.tolist() == found.labels.tolist() == [-1, -1]


def test_other_contents_of_the_file_give_other_rows(paths, tmp_path):
    augmented(paths, "file", augment_file=write(tmp_path, [("", "a", "b")]))
    found = augmented(paths, "file", augment_file=write(tmp_path, [("", "a", "c")]))
    assert found.sentence1 == ["c"]
    assert read_split(paths.augmented("qqp", "file")).sentence1 == ["c"]


def test_columns_may_have_our_names(paths, tmp_path):
    file = write(tmp_path, [("one", "another")], ("sentence1", "sentence2"))
    assert list(zip(*augmented(paths, "file", augment_file=file).sentences(), strict=True)) == [("one", "another")]


def test_texts_inside_held_out_ones_are_left_out(glue, tmp_path):
    few_pairs.preprocess(tiny.prepare_settings(tmp_path, "cola", data_dir=glue))
    paths = Workspace(tmp_path)
    held_out = read_split(paths.split("cola", "test")).sentence1
    part = " ".join(max(held_out, key=len).split()[:6])
    file = tmp_path / "more.txt"  # CoLA's own files have no header line, and a column for the mark of what is wrong
    file.write_text(f"{part}\nnobody has ever said this before\n")
    assert augmented(paths, "file", task="cola", augment_file=file).sentence1 == ["nobody has ever said this before"]


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (("question1", "b"), [("x", "y")], r"no column 'question2' of texts \(found question1, b\)"),
        (("question1", "question2"), [], "no rows of data"),
        (("question1", "question2"), [("same", "same")], "qqp: no new rows"),
    ],
)
def test_a_wrong_file_is_refused(paths, tmp_path, header, rows, message):
    with pytest.raises(UserError, match=message):
        augmented(paths, "file", augment_file=write(tmp_path, rows, header))
    assert not paths.augmented("qqp", "file").exists()


def test_a_missing_file_and_rows_of_words_are_refused(paths, glue, tmp_path):
    with pytest.raises(UserError, match=r"none\.tsv: no such file"):
        augmented(paths, "file", augment_file=tmp_path / "none.tsv")
    few_pairs.preprocess(tiny.prepare_settings(tmp_path, "ncbi-disease", data_dir=glue))
    with pytest.raises(UserError, match="does not support tasks of kind tags"):
        augmented(Workspace(tmp_path), "file", task="ncbi-disease", augment_file=write(tmp_path, [("", "a", "b")]))


def test_rows_without_a_source_row_have_an_own_number_and_no_label(paths, tmp_path):
    rows = [("", f"other {i}", f"text {i}") for i in range(5000)]  # more than a row group
    found = augmented(paths, "file", augment_file=write(tmp_path, rows))
    assert len(found) == 5000
    assert np.array_equal(found.source_rows, np.full(5000, -1))
