"""Tables: any kind of file reads back as it was written, and mistakes are named with file and line."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_task import NAMES, WORLD, WRITERS, own_task, write_csv, write_parquet, write_yaml

from common.data.prepare import prepare
from common.data.readers.records import MAX_CHARACTERS
from common.data.readers.tables import read_source
from common.data.tasks import Source, load_task
from common.data.text import normalise
from common.errors import UserError
from common.store.workspace import Workspace


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=5))
def test_text_reads_back_as_it_was_written(tmp_path_factory, kind, texts):
    folder = tmp_path_factory.mktemp("own")
    texts = [*texts, 'a "quoted", one\nof\r\nlines\t', *WORLD]
    WRITERS[kind](folder / f"rows.{kind}", [(text, NAMES[i % 2]) for i, text in enumerate(texts)])
    split = read_source(folder / f"rows.{kind}", load_task(write_yaml(folder, {"all": f"rows.{kind}"})))
    assert split.sentence1 == [normalise(text) for text in texts]
    assert split.labels.tolist() == [i % 2 for i in range(len(texts))]
    assert split.source_rows.tolist() == list(range(len(texts)))
    shutil.rmtree(folder)


@pytest.fixture
def task_of(tmp_path):
    """Returns a task of the user's own with other settings."""
    return lambda **changed: load_task(write_yaml(tmp_path, {"all": "r.csv"}, **changed))


def test_a_text_file_has_a_sentence_a_line_and_needs_no_columns(tmp_path, task_of):
    (tmp_path / "lines.txt").write_text('\ufeffone, "two"\r\n\n' + "\n".join(WORLD), encoding="utf-8")
    split = read_source(tmp_path / "lines.txt", task_of(columns=None))
    assert split.sentence1 == ['one, "two"', *WORLD]
    assert not split.labelled.any()
    with pytest.raises(UserError, match=r"lines\.txt: a \.txt file has one sentence per line"):
        read_source(tmp_path / "lines.txt", task_of(columns={"sentence1": "a", "sentence2": "b"}))


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (["no", "yes"], ["no", "yes", None]),
        (["false", "true"], [False, True, None]),
        ([0, 1], [0, 1, None]),
        (["0", "1"], [0.0, 1.0, None]),
        (["1.5", "2"], [1.5, 2.0, None]),
    ],
)
def test_labels_may_be_text_numbers_or_booleans_and_may_be_missing(tmp_path, task_of, labels, values):
    rows = [{"review": f"text {i}", "verdict": value} for i, value in enumerate(values)]
    (tmp_path / "r.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")
    for name in ("r.jsonl", "r.parquet"):
        assert read_source(tmp_path / name, task_of(labels=labels)).labels.tolist() == [0, 1, -1]


def test_a_number_in_a_parquet_column_with_gaps_is_the_label_it_was(tmp_path, task_of):
    pq.write_table(pa.table({"review": ["a", "b"], "verdict": [1.0, float("nan")]}), tmp_path / "r.parquet")
    assert read_source(tmp_path / "r.parquet", task_of(labels=[0, 1])).labels.tolist() == [1, -1]


def test_scores_of_a_regression_may_be_missing_but_not_out_of_range(tmp_path, task_of):
    write_csv(tmp_path / "r.csv", [("a", "0.5"), ("b", ""), ("c", "5")])
    task = task_of(labels=None, kind="numbers", range=[0, 5])
    assert str(read_source(tmp_path / "r.csv", task).labels.tolist()) == "[0.5, nan, 5.0]"
    write_csv(tmp_path / "r.csv", [("a", "0.5"), ("b", "5.5")])
    with pytest.raises(UserError, match=r"line 3: unknown label '5\.5'; expected a number from 0 to 5"):
        read_source(tmp_path / "r.csv", task)


SST, QQP = load_task("sst-2"), load_task("qqp")
HEADER = "sentence\tlabel\n"

LONG_CELL = 'review,verdict\n"' + (2**10 + 1) * ("x" * (2**14 - 1) + "\n") + '",thumbs up\n'
"""One cell of many lines."""
BAD_FILES = [
    ("r.csv", "review,verdict\na,thumbs up\nb\n", "line 3: expected 2 columns, found 1"),
    ("r.csv", "review,verdict\nwell, well,thumbs up\n", "line 2: expected 2 columns, found 3 (a cell with a comma"),
    ("r.csv", 'review,verdict\n"a\nb",thumbs up\n"open,thumbs up\nc,thumbs up\n', "line 4: malformed CSV"),
    ("r.csv", 'review,verdict\n"a" b,thumbs up\n', "line 2: malformed CSV"),
    (
        "r.csv",
        "review,verdict\na,thumbs upp\n",
        "line 2: unknown label 'thumbs upp'; expected thumbs down, thumbs up; did",
    ),
    (
        "r.csv",
        "reviews,verdict\na,thumbs up\n",
        "line 1: no column 'review' (found reviews, verdict); did you mean reviews?",
    ),
    ("r.csv", "review,verdict,review\na,thumbs up,b\n", "line 1: column 'review' appears 2 times"),
    ("r.csv", f"review,verdict\n{'x' * 2**25},thumbs up\n", "line 2: longer than 16,777,216 bytes"),
    ("r.csv", LONG_CELL, "malformed CSV (field larger than field limit"),
    ("r.csv", "review,verdict\na\0b,thumbs up\n", "line 2: a sentence contains a NUL byte"),
    ("r.csv", b"review,verdict\na,thumbs up\ncaf\xe9,thumbs up\n", "line 3: not UTF-8"),
    ("r.csv", "review,verdict\na,thumbs up\n".encode("utf-16"), "line 1: not UTF-8"),
    ("r.csv", "", "an empty file"),
    ("r.csv", "review,verdict\n", "no rows of data"),
    ("r.tsv", "review\tverdict\na\tthumbs up\tb\n", "line 2: expected 2 columns, found 3 (no cell may hold a tab)"),
    ("r.tsv", "", "an empty file"),
    ("r.txt", "\n\n", "no rows of data"),
    ("r.txt", b"fine\n\xff\n", "line 2: not UTF-8"),
    ("r.jsonl", '{"review": "a", "verdict": "thumbs up"}\n{"review": \n', "line 2: not JSON"),
    ("r.jsonl", "[" * 100_000, "line 1: not JSON"),
    ("r.jsonl", '\n["a", "thumbs up"]\n', "line 2: not a JSON object"),
    (
        "r.jsonl",
        '{"reviw": "a", "verdict": "thumbs up"}\n',
        "line 1: no key 'review' (found reviw, verdict); did you mean",
    ),
    ("r.jsonl", '{"review": {"en": "a"}, "verdict": "thumbs up"}\n', "line 1: a sentence is of type dict, not text"),
    ("r.jsonl", '{"review": 7, "verdict": "thumbs up"}\n', "line 1: a sentence is of type int, not text (7)"),
    ("r.jsonl", '{"review": "a", "verdict": ["thumbs up"]}\n', "line 1: a label is of type list, not text or a number"),
    ("r.jsonl", '{"review": "a \\ud83d", "verdict": "thumbs up"}\n', "line 1: a sentence contains half of a surrogate"),
    ("r.jsonl", "", "no rows of data"),
    ("r.parquet", "review,verdict\n", "damaged, or not a Parquet file"),
    ("r.xlsx", "PK", "unknown kind of file; save it as one of .csv, .tsv, .jsonl, .json, .parquet, .txt (UTF-8)"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES, ids=[f"{n}: {m}" for n, _, m in BAD_FILES])
def test_a_bad_file_is_named_with_the_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        prepare(Workspace(tmp_path / "w"), load_task(write_yaml(tmp_path, {"all": name})), None, seed=1)
    assert str(error.value).startswith(str(tmp_path / name))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"reviews": ["a"], "verdict": ["thumbs up"]},
            "no column 'review' (found reviews, verdict); did you mean reviews?",
        ),
        ({"review": [1], "verdict": ["thumbs up"]}, "row 1: a sentence is of type int, not text (1)"),
        ({"review": ["a", "b"], "verdict": ["thumbs up", "up"]}, "row 2: unknown label 'up'"),
        ({"review": ["a"], "verdict": [["thumbs up"]]}, "row 1: a label is of type list"),
    ],
)
def test_a_bad_parquet_file_is_named_with_the_row(tmp_path, task_of, table, message):
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    with pytest.raises(UserError) as error:
        read_source(tmp_path / "r.parquet", task_of())
    assert message in str(error.value)


@pytest.mark.parametrize("cut", [10, 300, -5])
def test_a_damaged_parquet_file_is_named(tmp_path, task_of, cut):
    write_parquet(tmp_path / "r.parquet", [(f"text {i}", NAMES[0]) for i in range(100)])
    whole = (tmp_path / "r.parquet").read_bytes()
    (tmp_path / "r.parquet").write_bytes(whole[:cut])
    with pytest.raises(UserError, match=r"r\.parquet: damaged, or not a Parquet file"):
        read_source(tmp_path / "r.parquet", task_of())


def test_a_long_sentence_is_cut_with_a_note(tmp_path, capsys):
    task = own_task(tmp_path, [("x" * MAX_CHARACTERS, NAMES[0]), ("y" * 2**20, NAMES[1])])
    assert list(map(len, read_source(tmp_path / "rows.csv", task).sentence1)) == [MAX_CHARACTERS] * 2
    assert "rows.csv: texts cut at 200,000 characters: 1 (is a quote not closed?)" in capsys.readouterr().err


def glue_file(tmp_path, content):
    path = tmp_path / "train.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


SEPARATORS = ["\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"]
GLUE_FILES = {
    "normalised, in order": (
        HEADER + " a  fine\u00a0film . \t1\nno good\t0\ncafe\u0301\t1\n",
        ["a fine film .", "no good", "caf\u00e9"],
        [1, 0, 1],
    ),
    "empty sentences": (HEADER + "one\t1\n\t0\n  \t1\ntwo\t0\n", ["one", "", "", "two"], [1, 0, 1, 0]),
    "quotes": (HEADER + '"an open quote\t1\nshe said "no"\t0\n', ['"an open quote', 'she said "no"'], [1, 0]),
    "Windows": (b"\xef\xbb\xbfsentence\tlabel\r\none\t1\r\ntwo\t0\r\n", ["one", "two"], [1, 0]),
    "no newline at the end": (HEADER + "one\t1\ntwo\t0", ["one", "two"], [1, 0]),
    **{repr(s): (HEADER + f"one{s}half\t1\ntwo\t0\n", ["one half", "two"], [1, 0]) for s in SEPARATORS},
}


@pytest.mark.parametrize("kind", GLUE_FILES)
def test_rows_of_glue_are_kept_in_place(tmp_path, kind):
    content, sentences, labels = GLUE_FILES[kind]
    split = read_source(glue_file(tmp_path, content), SST)
    assert (split.sentence1, split.sentence2) == (sentences, None)
    assert split.labels.tolist() == labels
    assert split.source_rows.tolist() == list(range(len(labels)))


def test_an_empty_second_sentence_does_not_shift_the_label(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    split = read_source(glue_file(tmp_path, header + "0\t1\t2\twhat ?\t\t1\n1\t3\t4\t\twhy ?\t0\n"), QQP)
    assert (split.sentence1, split.sentence2) == (["what ?", ""], ["", "why ?"])
    assert split.labels.tolist() == [1, 0]


def test_a_missing_label_is_an_error_in_a_file_of_glue(tmp_path):
    path = glue_file(tmp_path, HEADER + "one\t1\n\t\ntwo\t0\n")
    with pytest.raises(UserError, match=f"{path} line 3: unknown label ''; expected 0, 1"):
        read_source(path, SST)


def test_a_bad_byte_far_into_the_file_is_found(tmp_path):
    rows = "".join(f"row {i}\t1\n" for i in range(5000))
    path = glue_file(tmp_path, (HEADER + rows).encode() + b"\xff\t1\n" + rows.encode())
    with pytest.raises(UserError, match="line 5002: not UTF-8"):
        read_source(path, SST)


def test_rows_of_other_sources_are_left_out_but_rows_keep_their_numbers(tmp_path, task_of):
    task = task_of(source={"files": {"all": "r.csv"}, "where": {"from": "mine"}}, label_values=["neg", "pos"])
    (tmp_path / "r.csv").write_text("from,verdict,review\nmine,pos,a\nother,what,b\nmine,neg,c\n")
    split = read_source(tmp_path / "r.csv", task)
    assert split.sentence1 == ["a", "c"]
    assert split.labels.tolist() == [1, 0]
    assert split.source_rows.tolist() == [0, 2]


def test_files_in_another_encoding(tmp_path):
    text = "review,verdict\ncaf\u00e9 \u201cfine\u201d,thumbs up\n"
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode("windows-1252"))
    task = own_task(tmp_path, [("fine", NAMES[0])])
    with pytest.raises(UserError, match=r"line 2: not UTF-8 .*: give --encoding windows-1252, or save it as UTF-8"):
        read_source(path, task)
    for name in ("windows-1252", "CP1252"):
        source = Source(files={}, encoding=name)
        (read,) = read_source(path, task.model_copy(update={"source": source})).sentence1
        assert read == "caf\u00e9 \u201cfine\u201d"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert len(read_source(path, task.model_copy(update={"source": Source(files={}, encoding="UTF-8")}))) == 1
    path.write_bytes(b"review,verdict\n\x81,thumbs up\n")
    with pytest.raises(UserError, match="line 2: not cp1252 text"):
        read_source(path, task.model_copy(update={"source": Source(files={}, encoding="windows-1252")}))


@pytest.mark.parametrize(
    ("name", "message"), [("utf-16", "convert others, such as UTF-16"), ("latin-15x", "not an encoding of texts")]
)
def test_encodings_that_cannot_be_read(name, message):
    with pytest.raises(ValueError, match=message):
        Source(files={}, encoding=name)
