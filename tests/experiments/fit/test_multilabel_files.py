"""Files of texts with any number of labels: what fit finds in them, draws of them and writes as a task."""

import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
import tiny_labels
from hypothesis import given
from hypothesis import strategies as st
from own_task import write_csv, write_tsv

from common.data.readers.any_table import read_any
from common.data.readers.label_cells import labels_of, read_rows
from common.data.readers.tables import read_source
from common.errors import UserError
from common.kinds.registry import MULTILABEL
from compression.experiments.fit.contents.detect import detect
from compression.experiments.fit.contents.read import read_contents, with_test
from compression.experiments.fit.run import in_words
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.task import draw, write_task

TEXTS = [text for text, _ in tiny.sentences(400)]


def write(path, rows):
    """Texts and lists of labels (or None) as one kind of file."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"review": text, "verdict": labels}) + "\n" for text, labels in rows))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([{"review": t, "verdict": labels} for t, labels in rows]), path)
    else:
        writer = write_csv if path.suffix == ".csv" else write_tsv
        writer(path, [(t, "|".join(labels) if isinstance(labels, list) else labels) for t, labels in rows])
    return path


def found(path, rows, **given):
    return detect(read_any(write(path, rows), 1), FitSettings(file=path, **given))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_lists_of_labels_are_read_from_files_of_every_kind(tmp_path, suffix):
    rows = tiny_labels.labelled(200)
    if suffix in ("jsonl", "parquet"):  # only lists can be missing
        rows = [(text, labels if i % 7 else None) for i, (text, labels) in enumerate(rows)]
    what = found(tmp_path / f"r.{suffix}", rows)
    assert what.kind == "multilabel"
    assert (what.texts, what.label, what.range) == (("review",), "verdict", None)
    assert what.labels == tuple(sorted(tiny_labels.LABELS))
    assert what.values == [(text, None if labels is None else tuple(labels)) for text, labels in rows]
    none = sum(labels == [] for _, labels in rows)
    assert f"Rows with none of the labels: {none}." in what.notes
    joined = "Labels of a row are joined by | (--kind labels takes each text as one label)."
    assert (joined in what.notes) == (suffix in ("csv", "tsv"))
    assert ("Rows without a label, only distilled on: 29." in what.notes) == (suffix in ("jsonl", "parquet"))


def test_the_task_that_is_written_reads_back(tmp_path):
    rows = tiny_labels.labelled(200)
    what = found(tmp_path / "r.jsonl", rows)
    task = write_task(tmp_path, "mine", what)
    assert task.kind is MULTILABEL
    assert task.all_metrics[0] == "f1_micro"
    split = read_source(tmp_path / "rows.parquet", task)
    expected = [[label in labels for label in task.labels] for _, labels in rows]
    np.testing.assert_array_equal(split.labels, np.array(expected, np.float32))


def test_lists_of_one_label_are_labels(tmp_path):
    rows = [(text, [label]) for text, label in zip(TEXTS[:100], itertools.cycle(["bad", "good"]))]
    what = found(tmp_path / "r.jsonl", rows)
    assert what.kind == "labels"
    assert what.labels == ("bad", "good")
    assert what.values == [(text, labels[0]) for text, labels in rows]
    assert what.notes == ("Every list has one label: a text has one of the labels, not any number of them.",)
    assert found(tmp_path / "r.jsonl", rows, kind="multilabel").kind == "multilabel"
    assert found(tmp_path / "r.jsonl", [*rows, (TEXTS[100], [])]).kind == "multilabel"


def test_a_bar_joins_labels_only_where_they_are_seen_elsewhere_too(tmp_path):
    def labels(cells, **given):
        rows = [(text, cell) for text, cell in zip(TEXTS[:120], itertools.cycle(cells))]
        what = found(tmp_path / "r.csv", rows, **given)
        return what.kind == "multilabel", what.labels

    assert labels(["a", "b|a", "b", ""]) == (True, ("a", "b"))
    assert labels(["a|b", "c"]) == (False, ("a|b", "c"))
    assert labels(["a|", "a", "|"]) == (False, ("a", "a|", "|"))
    assert labels(["a|b", "a"], kind="labels") == (False, ("a", "a|b"))
    assert labels(["a|b", "c"], kind="multilabel") == (True, ("a", "b", "c"))


def test_a_rare_label_is_left_out_of_lists_and_of_the_test_file(tmp_path):
    rows = [(text, ["a", "b"][: 1 + i % 2]) for i, text in enumerate(TEXTS[:100])]
    rows += [(TEXTS[100], ["a", "odd"]), (TEXTS[101], ["odd"])]
    what = found(tmp_path / "r.jsonl", rows)
    assert what.labels == ("a", "b")
    assert what.values[-1] == (TEXTS[100], ("a",))
    assert len(what.values) == 101
    assert what.notes == ("Labels on fewer than 5 rows are left out: 'odd' (2 rows).",)
    held_out = [(TEXTS[102], ["odd", "b"]), (TEXTS[103], []), (TEXTS[104], ["odd"]), (TEXTS[105], None)]
    path = write(tmp_path / "t.jsonl", held_out)
    test = with_test(read_rows(read_any(path, 1), what.texts, what.label, what.kind), what, path).test
    assert test == [(TEXTS[102], ("b",)), (TEXTS[103], ())]
    with pytest.raises(UserError, match="label 'c' is not one of a, b"):
        with_test([(TEXTS[0], ("a", "c"))], what, path)


COLUMNS = ("login", "billing", "bug")


def with_columns(path, yes, no, changed=()):
    """A file with a column for each label, whose cells say yes or no, and the labels that it gives each text."""
    answers = [[i % 2 == 0, i % 3 == 0, i % 5 == 0] for i in range(100)]
    cells = [[yes if answer else no for answer in row] for row in answers]
    for row, column, cell in changed:
        cells[row][column] = cell
    values = [(text, *row) for text, row in zip(TEXTS[:100], cells, strict=True)]
    rows = [dict(zip(("review", *COLUMNS), row, strict=True)) for row in values]
    if path.suffix == ".csv":
        write_csv(path, values, ("review", *COLUMNS))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return [tuple(name for name, answer in zip(COLUMNS, row, strict=True) if answer) for row in answers]


@pytest.mark.parametrize(
    ("name", "yes", "no"),
    [
        ("a.csv", "1", "0"),
        ("a.csv", "Yes", "no"),
        ("a.csv", "x", ""),
        ("a.csv", "1.0", "0.0"),
        ("a.jsonl", True, False),
        ("a.jsonl", 1, None),
        ("a.parquet", 1.0, 0.0),
    ],
)
def test_columns_of_yes_and_no_are_a_label_each(tmp_path, name, yes, no):
    expected = with_columns(tmp_path / name, yes, no)
    what = read_contents(FitSettings(file=tmp_path / name, label=COLUMNS))
    assert what.kind == "multilabel"
    assert what.texts == ("review",)
    assert what.labels == ("billing", "bug", "login")
    assert [row[-1] for row in what.values] == expected
    assert what.notes == (f"Rows with none of the labels: {expected.count(())}.",)
    assert "any number of 3 labels (label columns: billing, bug, login)" in in_words(what)
    task = write_task(tmp_path, "mine", what)
    assert read_source(tmp_path / "rows.parquet", task).labels.sum(0).tolist() == [34, 20, 50]


def test_columns_of_labels_are_read_from_the_test_file_too(tmp_path):
    with_columns(tmp_path / "a.csv", "1", "0")
    expected = with_columns(tmp_path / "b.csv", "yes", "no")
    what = read_contents(FitSettings(file=tmp_path / "a.csv", test=tmp_path / "b.csv", label=COLUMNS))
    assert [row[-1] for row in what.test] == expected


def test_a_row_without_a_word_for_yes_or_no_has_unknown_labels(tmp_path):
    with_columns(tmp_path / "a.csv", "1", "0", [(1, column, "") for column in range(3)])
    what = read_contents(FitSettings(file=tmp_path / "a.csv", label=COLUMNS))
    assert what.values[1][-1] is None
    assert "Rows without a label, only distilled on: 1." in what.notes


@pytest.mark.parametrize("no", ["0", ""])
def test_columns_that_never_say_yes_are_refused(tmp_path, no):
    with_columns(tmp_path / "a.csv", no, no)
    with pytest.raises(UserError, match="columns 'login', 'billing', 'bug' say yes nowhere: no row has a label"):
        read_contents(FitSettings(file=tmp_path / "a.csv", label=COLUMNS))


def test_a_column_that_never_says_yes_is_left_out_with_a_note(tmp_path):
    with_columns(tmp_path / "a.csv", "1", "0", [(row, 2, "0") for row in range(100)])
    what = read_contents(FitSettings(file=tmp_path / "a.csv", label=COLUMNS))
    assert what.labels == ("billing", "login")
    assert "Labels on fewer than 5 rows are left out: 'bug' (0 rows)." in what.notes


@pytest.mark.parametrize(("no", "cell"), [("0", "maybe"), ("0", "2"), ("0", ""), ("", "no idea")])
def test_a_cell_that_says_neither_yes_nor_no_is_named(tmp_path, no, cell):
    with_columns(tmp_path / "a.csv", "1", no, [(6, 2, cell)])
    with pytest.raises(UserError, match=rf"a\.csv row 7: column 'bug' has '{cell}', which says neither yes nor no"):
        read_contents(FitSettings(file=tmp_path / "a.csv", label=COLUMNS))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"label": ("bug", "bug")}, "--label takes one column, or several different ones"),
        ({"separator": ";"}, "--separator is for one column of --label; several are a label each"),
        ({"kind": "numbers"}, "--kind numbers is for one column of --label"),
        ({"text": ("bug",)}, "--label: bug is the column of --text"),
        ({"label": ("login", "bag")}, "no column 'bag' .* did you mean bug"),
    ],
)
def test_flags_that_contradict_columns_of_labels_are_refused(tmp_path, flags, message):
    with_columns(tmp_path / "a.csv", "1", "0")
    with pytest.raises((UserError, ValueError), match=message):
        read_contents(FitSettings(file=tmp_path / "a.csv", **{"label": COLUMNS, **flags}))


def some(lists):
    return list(zip(TEXTS[:100], itertools.cycle(lists)))


BAD = {
    "one label": ("jsonl", some([["a"], []]), {}, "column 'verdict': 'a' is the only label; give a column with two"),
    "no label": ("jsonl", some([[], []]), {}, "column 'verdict' is empty: no row has a label"),
    "three rows": ("jsonl", some([["a", "b"]])[:3], {}, "3 rows with a label; fit needs 50 or more"),
    "ids": ("jsonl", [(t, [f"u{i}", f"v{i}"]) for i, t in enumerate(TEXTS)], {}, r"0 of 800 labels on 5 rows or more"),
    "too many": ("jsonl", some([[str(i) for i in range(501)]]), {}, "has 501 different values .labels: at most 500."),
    "an empty label": ("jsonl", some([["a", "b"], ["a", ""]]), {}, r"row 2: an empty label \(\['a', ''\]\)"),
    "a null": ("jsonl", some([["a", None]]), {}, "row 1: an empty label"),
    "text": ("jsonl", some([["a", "b"], "a"]), {}, r"row 2: the labels are of type str, not a list \(a\)"),
    "lists in lists": ("jsonl", some([["a", ["b"]]]), {}, "row 1: a label is of type list"),
    "a bar": ("jsonl", some([["a|b", "c"]]), {}, r"label 'a\|b' contains \|, which joins labels in predictions"),
    "several": (
        "jsonl",
        some([["a"], ["a", "b"]]),
        {"kind": "labels"},
        "row 2: a list of 2 labels where a row has one",
    ),
    "numbers": ("jsonl", some([[1, 2]]), {"kind": "numbers"}, "row 1: a list of 2 labels where a row has one"),
    "lists as text": (
        "csv",
        some(["['a', 'b']", "['a']"]),
        {},
        r"contains lists as text, such as \['a', 'b'\]; join the",
    ),
    "one list as text": ("csv", some(["['a']", "['b']"]), {}, r"contains lists as text, such as \['a'\]; join"),
    "places": (
        "jsonl",
        some([[0, 1, 0], [1, 1, 0]]),
        {},
        r"has 0 or 1 for each of 3 labels, such as \[0, 1, 0\]; save",
    ),
    "asked places": ("jsonl", some([[0, 1.0], [True, 0]]), {"kind": "multilabel"}, "has 0 or 1 for each of 2 labels"),
    "empty parts": ("csv", some(["a|b", "a||b"]), {"kind": "multilabel"}, r"row 2: an empty label \(a\|\|b\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_lists_give_one_line(tmp_path, case):
    suffix, rows, settings, message = BAD[case]
    with pytest.raises(UserError, match=message) as error:
        found(tmp_path / f"r.{suffix}", rows, label="verdict", **settings)
    assert "\n" not in str(error.value)


@given(st.lists(st.none() | st.sets(st.sampled_from("abcde")), min_size=1, max_size=300), st.integers(1, 400))
def test_drawn_rows_have_some_of_each_label(lists, most):
    values = [(f"text {i}", None if labels is None else tuple(sorted(labels))) for i, labels in enumerate(lists)]
    drawn = draw(values, most, 1)
    assert drawn == [row for row in values if row in set(drawn)]
    assert len(drawn) == min(most, len(values))
    if most >= 6 * 20:
        before, after = (Counter(itertools.chain(*map(labels_of, rows))) for rows in (values, drawn))
        assert all(after[label] >= min(count, 20) for label, count in before.items())
