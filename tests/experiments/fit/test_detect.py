"""What fit finds in a file, and its errors about files that nothing can be learned from."""

import itertools
import json
from collections import Counter
from pathlib import Path

import own_task
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from common.data.readers.any_table import Table, read_any
from common.data.readers.label_cells import FEWEST_OF_LABEL, usual_labels
from common.errors import UserError
from compression.experiments.fit.contents.detect import FEWEST_ROWS, detect
from compression.experiments.fit.settings import FitSettings
from compression.experiments.fit.task import draw

WORDS = [text for text, _ in tiny.sentences(400)]


def found(header, rows, **given):
    return detect(Table(Path("f.jsonl"), list(header), [list(row) for row in rows]), FitSettings(file="f", **given))


def reviews(count=100, labels=("bad", "good")):
    return list(zip(WORDS[:count], itertools.cycle(labels)))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_labels_are_read_from_files_of_every_kind(tmp_path, suffix):
    rows = own_task.labelled_rows(100, gaps=7)
    own_task.WRITERS[suffix](tmp_path / f"r.{suffix}", rows)
    what = detect(read_any(tmp_path / f"r.{suffix}", 1), FitSettings(file="x"))
    assert (what.texts, what.label, what.labels, what.range) == (("review",), "verdict", own_task.NAMES, None)
    assert what.values == [(text, label or None) for text, label in rows]
    assert what.notes == ("Rows without a label, only distilled on: 15.",)


def test_a_file_may_have_semicolons_and_json_of_numbers(tmp_path):
    (tmp_path / "a.csv").write_text(
        "text;stars\n" + "".join(f'"{text}; yes";{i % 3}\n' for i, text in enumerate(WORDS))
    )
    lines = (json.dumps({"text": text, "stars": float(i % 3)}) for i, text in enumerate(WORDS))
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    for name in ("a.csv", "b.jsonl"):
        what = detect(read_any(tmp_path / name, 1), FitSettings(file="x"))
        assert (what.texts, what.label, what.labels) == (("text",), "stars", ("0", "1", "2"))


def test_two_text_columns_are_pairs_and_many_numbers_a_regression():
    rows = [(a, b, f"{i % 24 / 10}") for i, (a, b) in enumerate(itertools.pairwise(WORDS[:150]))]
    what = found(("one", "two", "score"), rows, text=("one", "two"))
    assert what.pair
    assert what.label == "score"
    assert what.labels == ()
    assert what.range == (0.0, 2.3)
    few = found(("one", "two", "score"), rows, text=("one", "two"), kind="labels")
    assert len(few.labels) == 24
    assert few.labels[:3] == ("0.0", "0.1", "0.2")


def test_labels_that_are_numbers_are_in_their_order():
    assert found(("text", "n"), reviews(200, [str(n) for n in range(12)])).labels == tuple(map(str, range(12)))


def test_columns_are_guessed_only_where_it_is_plain():
    rows = [(str(i), text, "yes" if i % 2 else "no") for i, text in enumerate(WORDS[:100])]
    what = found(("id", "opinion", "answer"), rows)
    assert (what.texts, what.label) == (("opinion",), "answer")
    both = [(text, text, label) for text, label in reviews()]
    assert found(("a", "text", "label"), both).texts == ("text",)
    with pytest.raises(
        UserError, match=r"give the column of the texts with --text, or both columns of pairs .columns: a, b, label"
    ):
        found(("a", "b", "label"), both)
    with pytest.raises(UserError, match=r"give the column of the labels with --label .columns: text, c, d"):
        found(("text", "c", "d"), [(text, label, label) for text, label in reviews()])


def test_a_rare_label_is_left_out_with_a_note():
    rows = reviews(100) + [(text, "odd") for text in WORDS[100:103]]
    what = found(("text", "label"), rows)
    assert what.labels == ("bad", "good")
    assert len(what.values) == 100
    assert what.notes == ("Labels on fewer than 5 rows are left out: 'odd' (3 rows).",)


BAD = {
    "one class": (("text", "label"), reviews(100, ["good"]), {}, "every row has the label 'good'"),
    "three rows": (("text", "label"), reviews(3), {}, f"3 rows with a label; fit needs {FEWEST_ROWS} or more"),
    "no labels": (("text", "label"), reviews(100, [""]), {}, "column 'label' is empty"),
    "an id": (("text", "label"), reviews(400, [str(i) for i in range(900, 1300)]), {}, "is it an id"),
    "names as labels": (("text", "label"), reviews(400, [f"user{i}" for i in range(400)]), {}, "is it an id"),
    "numbers as texts": (
        ("text", "label"),
        [(str(i), "a") for i in range(99)],
        {"text": ("text",)},
        "contains numbers",
    ),
    "missing column": (("text", "label"), reviews(), {"label": "lable"}, "no column 'lable' .*did you mean label?"),
    "missing text": (("text", "label"), reviews(), {"text": ("txt",)}, "--text: .*no column 'txt' .*mean text?"),
    "words as numbers": (("text", "label"), reviews(), {"kind": "numbers"}, "'bad' is not a number"),
    "objects": (("text", "label"), [(t, {}) for t in WORDS[:99]], {"label": "label"}, "row 1: a label is of type dict"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_line(case):
    header, rows, settings, message = BAD[case]
    with pytest.raises(UserError, match=message) as error:
        found(header, rows, **settings)
    assert "\n" not in str(error.value)


def test_ten_thousand_values_are_no_labels():
    with pytest.raises(UserError, match=r"has 10,000 different values .labels: at most 500.; is it an id"):
        usual_labels(Counter({f"n{i}": 9 for i in range(10_000)}), "f.csv")


def test_text_columns_that_contradict_are_refused():
    for flags in ({"text": ("a", "a")}, {"text": ("a", "b", "c")}, {"text": ("a",), "label": "a"}):
        with pytest.raises(ValueError, match=r"--text|--label"):
            FitSettings(file="f.csv", **flags)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_large_file_is_sampled_from_many_places(tmp_path, suffix, monkeypatch):
    """The label is the row's number: rows are from all over the file, and whole."""
    monkeypatch.setattr("common.data.readers.any_table._BLOCK", 2000)
    texts = [f'row {i} said:\n"quoted, text"' for i in range(9000)]
    texts = texts if suffix in ("csv", "jsonl") else [text.replace("\n", " ") for text in texts]
    path = tmp_path / f"large.{suffix}"
    if suffix == "parquet":
        table = pa.table({"review": texts, "verdict": [str(i) for i in range(9000)]})
        pq.write_table(table, path, row_group_size=100, compression="none")
    else:
        own_task.WRITERS[suffix](path, [(text, str(i)) for i, text in enumerate(texts)])
    sample = read_any(path, 1, most_bytes=20_000)
    numbers = [int(n) for n in sample.column("verdict")]
    assert 50 < len(numbers) < 8000
    assert max(numbers) - min(numbers) > 2000
    for text, number in zip(sample.column("review"), numbers, strict=True):
        assert " ".join(text.split()) == " ".join(texts[number].split())
    assert "are sampled:" in sample.sampled
    assert read_any(path, 1).sampled == ""
    assert len(read_any(path, 1).rows) == 9000


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_no_row_of_a_large_file_is_read_twice(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("common.data.readers.any_table._BLOCK", 2000)
    path = tmp_path / f"r.{suffix}"
    own_task.WRITERS[suffix](path, [(f"row {number}", "a") for number in range(5000)])
    for seed in range(5):
        texts = read_any(path, seed, most_bytes=path.stat().st_size * 3 // 4).column("review")
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("lines", [1, 3, 9])
def test_rows_of_a_large_file_are_whole(tmp_path, suffix, lines, monkeypatch):
    """Blocks begin anywhere: in a quoted cell of several lines, too."""
    monkeypatch.setattr("common.data.readers.any_table._BLOCK", 1000)
    path, end = tmp_path / f"r.{suffix}", {"csv": ",", "tsv": "\t"}[suffix]
    cells = [(f"said {row}\n" * lines + f'""so""{end} they', f"{row}") for row in range(500)]
    path.write_text("".join(f'"{text}"{end}"{label}"\n' for text, label in [("text", "label"), *cells]))
    whole = {tuple(row) for row in read_any(path, 1).rows}
    for seed in range(5):
        rows = {tuple(row) for row in read_any(path, seed, most_bytes=path.stat().st_size // 2).rows}
        assert rows <= whole
        assert len(rows) > 60


def test_a_sparse_file_of_20_gb_is_not_read_whole(tmp_path):
    path = tmp_path / "sparse.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "a", "label": "b"}\n' * 100)
        file.truncate(20 * 10**9)
    with pytest.raises(UserError, match="no rows of data"):  # nothing but NUL bytes where it is sampled
        read_any(path, 1, most_bytes=2_000_000)


@pytest.mark.parametrize("name", ["missing.csv", "data.xlsx", "empty.csv"])
def test_files_that_cannot_be_read(tmp_path, name):
    (tmp_path / "data.xlsx").write_text("x")
    (tmp_path / "empty.csv").write_text("text,label\n")
    with pytest.raises(UserError, match=r"no such file|unknown kind of file|no rows of data"):
        read_any(tmp_path / name, 1)


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=300), st.integers(1, 400))
def test_drawn_rows_keep_their_order_and_some_of_each_label(labels, most):
    values = [(f"text {i}", label) for i, label in enumerate(labels)]
    drawn = draw(values, most, 1)
    assert drawn == [row for row in values if row in set(drawn)]
    assert len(drawn) == min(most, len(values))
    if most >= 5 * 20:
        before, after = Counter(labels), Counter(label for _, label in drawn)
        assert all(after[label] >= min(count, FEWEST_OF_LABEL) for label, count in before.items())
