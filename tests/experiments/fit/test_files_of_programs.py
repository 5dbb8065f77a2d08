"""Files as programs write them: what fit reads of them, what it says about a guess, and errors of one line."""

import datetime
import itertools
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny

from common.data.readers.any_table import read_any
from common.errors import UserError
from compression.experiments.fit.contents.read import read_contents
from compression.experiments.fit.run import learnable
from compression.experiments.fit.settings import FitSettings

FIELD = tiny.ROOT / "tests" / "field"
WORDS = [text.replace(",", "").replace('"', "") for text, _ in tiny.sentences(200)]
ROWS = list(zip(WORDS[:120], itertools.cycle(["bad", "good"])))
LABELS = ("bad", "good")


def read(path, **flags):
    return read_contents(FitSettings(file=path, **flags))


def lines(header, rows, delimiter=",", end="\n"):
    return "".join(delimiter.join(cells) + end for cells in [*([header] if header else []), *rows])


TEXT, BOTH = {"text": ("text",)}, {"text": ("text",), "label": "label"}
FILES = {
    "class-ids.csv": (BOTH, 24, "24 numbers are taken as labels (--kind numbers predicts them)"),
    "comma-tags.csv": (TEXT | {"label": "tags"}, 22, "--kind multilabel --separator ', '"),
    "decimal-comma.csv": (TEXT | {"label": "score"}, 0, "Numbers such as 2,8 are read as 2.8 (--kind labels"),
    "far-future.parquet": (BOTH, 2, ""),
    "hierarchy.csv": (BOTH, 6, "joined by | (--kind labels"),
    "label-case.csv": (BOTH, 6, "are different labels: 'BAD', 'Bad', 'bad'; 'GOOD', 'Good', 'good'"),
    "part-label.csv": ({}, 4, ""),
    "plain.csv": ({}, 2, ""),
    "quoted-header.csv": ({"text": ("review (da, sv, no)",), "label": "verdict"}, 2, ""),
    "r-write-table.tsv": ({}, 2, ""),
    "space-after-comma.csv": (BOTH, 2, ""),
    "text-nan.jsonl": (BOTH, 2, "Rows without text, left out: "),
    "trailing-empty-columns.csv": ({"text": ("v2",), "label": "v1"}, 2, ""),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_it_is_meant(name):
    flags, labels, note = FILES[name]
    found = read(FIELD / name, **flags)
    assert len(found.labels) == labels
    assert labels != 2 or found.labels == LABELS
    assert note in " ".join(found.notes)
    assert bool(note) == bool(found.notes)


def test_lists_need_their_separator():
    flags = {**TEXT, "label": "tags", "kind": "multilabel"}
    with pytest.raises(UserError, match=r"no cell of column 'tags' has the separator '\|' .* --separator ', '"):
        read(FIELD / "comma-tags.csv", **flags)
    for separator in (", ", ","):
        found = read(FIELD / "comma-tags.csv", **flags, separator=separator)
        assert found.labels == ("food", "noise", "price", "staff", "view")
        assert found.kind == "multilabel"


def test_a_label_with_half_a_surrogate_is_named_with_its_row():
    with pytest.raises(UserError, match=r"label-surrogate\.jsonl row \d+: a label contains half of a surrogate pair"):
        read(FIELD / "label-surrogate.jsonl", **BOTH)


def test_a_label_of_parts_is_left_out_with_a_note():
    found, notes = learnable(read(FIELD / "part-label.csv"), FitSettings(file=Path("part-label.csv")))
    assert found.labels == ("bad", "complaint", "good")
    assert "'cancel'" in notes[0]
    assert not any(row[-1] == "cancel" for row in found.values)


# Other files of the same kinds. Each has the texts and labels of ROWS.
QUOTED = [(f'"{text}"', f'"{label}"') for text, label in ROWS]
SPACED = [(text, f" {label}") for text, label in ROWS]


def with_header(text, label, rows=ROWS, delimiter=","):
    """A CSV with these names of columns, and flags with the names as they are read: no quotes, single spaces."""
    names = [" ".join(name.strip('"').split()) for name in (text, label)]
    return "a.csv", lines((text, label), rows, delimiter), {"text": (names[0],), "label": names[1]}


SAME = {
    "Excel's first line": ("a.csv", "sep=;\r\n" + lines(("text", "label"), ROWS, ";", "\r\n"), {}),
    "Excel's first line with a tab": ("a.csv", "sep=\t\n" + lines(("text", "label"), ROWS, "\t"), {}),
    "Excel's first line and a mark": ("a.csv", '\ufeff"sep=|"\n' + lines(("text", "label"), ROWS, "|"), {}),
    "semicolons in a quoted header": with_header('"text; all of it"', '"label; one"', rows=QUOTED),
    "commas in a plain header": with_header("text (a, b)", "label", delimiter=";"),
    "bars and commas in a quoted header": ("a.csv", lines(('"text|a,b"', "label"), ROWS, "\t"), {}),
    "a newline in a header": with_header('"text\nof it"', "label"),
    "two newlines in a header": with_header('"the\r\n\r\ntext"', '"the\nlabel"'),
    "a newline in a key": (
        "a.jsonl",
        "".join(json.dumps({"the\ntext": text, "label": label}) + "\n" for text, label in ROWS),
        {"text": ("the text",), "label": "label"},
    ),
    "spaces and quotes": ("a.csv", lines(("text", ' "label"'), [(t, f' "{n}"') for t, n in ROWS]), BOTH),
    "spaces after semicolons": ("a.csv", lines(("text", " label"), SPACED, ";"), BOTH),
    "spaces in the cells alone": ("a.csv", lines(("text", "label"), [(t, f' "{n}"') for t, n in ROWS]), BOTH),
    "pandas with all quotes": ("a.tsv", lines(('"text"', '"label"'), QUOTED, "\t"), {}),
    "R with row numbers": (
        "a.tsv",
        lines(('"text"', '"label"'), [(f'"{i}"', *row) for i, row in enumerate(QUOTED, 1)], "\t"),
        {},
    ),
    "one column in quotes": ("a.tsv", lines(("text", "label"), [(f'"{t}"', n) for t, n in ROWS], "\t"), {}),
    "empty columns at the end": ("a.csv", lines(("text", "label", "", ""), [(*row, "", "") for row in ROWS]), {}),
    "cells that are missing at the end": ("a.csv", lines(("text", "label", "", ""), ROWS), {}),
    "too many empty cells": ("a.csv", lines(("text", "label"), [(*row, "", "") for row in ROWS]), {}),
    "unused columns of one name": (
        "a.tsv",
        lines(("id", "text", "id", "label"), [("1", row[0], "x y z w", row[1]) for row in ROWS], "\t"),
        {},
    ),
    "one array": ("a.json", json.dumps([{"text": text, "label": label} for text, label in ROWS]), {}),
    "an indented array": ("a.jsonl", json.dumps([{"text": t, "label": n} for t, n in ROWS], indent=2), {}),
    "an array with a mark": ("a.json", "\ufeff" + json.dumps([{"text": t, "label": n} for t, n in ROWS]), {}),
    "a mark before a CSV": ("a.csv", "\ufeff" + lines(("label", "text"), [row[::-1] for row in ROWS]), {}),
    "a mark before a TSV": ("a.tsv", "\ufeff" + lines(("label", "text"), [row[::-1] for row in ROWS], "\t"), {}),
    "a mark before JSON": (
        "a.ndjson",
        "\ufeff" + "".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in ROWS),
        {},
    ),
    "no header": ("a.csv", lines((), ROWS), {"header": False, "text": ("1",), "label": "2"}),
    "no header, guessed": ("a.csv", lines((), [row[::-1] for row in ROWS], ";"), {"header": False}),
    "no header in a TSV": ("a.tsv", lines((), ROWS, "\t"), {"header": False}),
    "an unusual delimiter": ("a.csv", lines(("text", "label"), ROWS, "^"), {"delimiter": "^"}),
    "a colon": ("a.csv", lines(("text", "label"), ROWS, ":"), {"delimiter": ":"}),
    "a TSV with bars": ("a.tsv", lines(("text", "label"), ROWS, "|"), {"delimiter": "|"}),
}


@pytest.mark.parametrize("case", SAME)
def test_forms_of_one_file(tmp_path, case):
    name, content, flags = SAME[case]
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    found = read(tmp_path / name, **flags)
    assert found.labels == LABELS
    assert found.values == [(" ".join(text.split()), label) for text, label in ROWS]
    assert found.notes == ()


def as_fasttext(rows):
    return "\n".join(f"{' '.join(f'__label__{name}' for name in names)} {text} \n" for text, names in rows)


def test_a_text_file_may_have_fasttexts_form(tmp_path):
    path = tmp_path / "a.TXT"
    path.write_text("\ufeff\n " + as_fasttext((text, [label]) for text, label in ROWS))
    found = read(path)
    assert (found.texts, found.label, found.kind) == (("text",), "label", "labels")
    assert found.values == [(" ".join(text.split()), label) for text, label in ROWS]
    path.write_text(as_fasttext((text, [label, "all"] if i % 2 else [label]) for i, (text, label) in enumerate(ROWS)))
    found = read(path)
    assert (found.kind, found.labels) == ("multilabel", ("all", "bad", "good"))
    path.write_text(as_fasttext((text, [label] * (i > 0)) for i, (text, label) in enumerate(ROWS)).lstrip())
    with pytest.raises(UserError, match=r"a word and its tag .*, or labels and a text on each line"):
        read(path)
    path.write_text(as_fasttext((text, [label] * (i != 3)) for i, (text, label) in enumerate(ROWS)))
    assert read(path).values[3] == (" ".join(ROWS[3][0].split()), None)
    for flags in ({"delimiter": ";"}, {"header": False}):
        with pytest.raises(UserError, match="is for CSV and TSV files"):
            read(path, **flags)


def test_a_large_file_of_fasttext_is_sampled(tmp_path):
    rows = [(" ".join(f"{text} {i}".split()), label) for i in range(20) for text, label in ROWS]
    (tmp_path / "a.txt").write_text(as_fasttext((text, [label]) for text, label in rows))
    table = read_any(tmp_path / "a.txt", 1, most_bytes=20_000)
    assert 50 < len(table.rows) < 1000
    assert {(text, label) for (label,), text in table.rows} <= {*rows}
    assert "are sampled" in table.sampled


def test_a_first_line_that_may_be_a_row_is_noted(tmp_path):
    (tmp_path / "a.csv").write_text(lines((), ROWS))
    found = read(tmp_path / "a.csv")
    assert found.notes == (
        "The first line is the columns' names, but 'bad' is also a label (--no-header: it is a row).",
    )
    assert len(found.values) == len(ROWS) - 1


def test_a_first_line_of_numbers_is_noted(tmp_path):
    rows = [(text, f"{n / 2}") for n, (text, _) in enumerate(ROWS)]
    (tmp_path / "a.csv").write_text(lines((), rows))
    assert "but '0.0' is a number (--no-header: it is a row)" in read(tmp_path / "a.csv").notes[0]
    rows = [(f"{n % 2}", f"{text} again", text) for n, (text, _) in enumerate(ROWS)]
    (tmp_path / "a.csv").write_text(lines((), rows))
    with pytest.raises(UserError, match=r"give the column of the texts .*; --no-header if these are a row\)"):
        read(tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"\(columns: 1, 2, 3\)"):
        read(tmp_path / "a.csv", header=False)


def test_texts_with_different_labels_are_counted(tmp_path):
    twice = [(text, label) for text, _ in ROWS[:3] for label in LABELS]
    (tmp_path / "a.csv").write_text(lines(("text", "label"), [*ROWS, *twice]))
    assert read(tmp_path / "a.csv").notes == ("Texts that occur with different labels: 3.",)
    (tmp_path / "a.csv").write_text(lines(("text", "label"), [*ROWS, *twice[:2]]))
    assert read(tmp_path / "a.csv").notes == ()  # fewer than one of a hundred


def test_cells_in_quotes_may_hold_tabs_and_newlines(tmp_path):
    rows = [(f'"{text}\tand\n""so"""', label) for text, label in ROWS]
    (tmp_path / "a.tsv").write_text(lines(("text", "label"), rows, "\t"))
    assert read(tmp_path / "a.tsv").values[0] == (f'{" ".join(ROWS[0][0].split())} and "so"', "bad")
    rows = [(f'"{text} \\"so\\""', f'"{label}"') for text, label in ROWS]  # R's write.table
    (tmp_path / "a.tsv").write_text(lines(('"text"', '"label"'), rows, "\t"))
    assert read(tmp_path / "a.tsv").values[0] == (f'{" ".join(ROWS[0][0].split())} "so"', "bad")


def test_a_quoted_cell_that_lies_across_the_examined_lines_is_read(tmp_path):
    rows = [(f'"{text} {i}"', label) for i in range(9) for text, label in ROWS][:998]
    rows += [('"one more\ntext of two lines"', "good"), ('"the last of all texts"', "bad")]
    (tmp_path / "a.tsv").write_text(lines(("text", "label"), rows, "\t"))
    assert [row[0] for row in read(tmp_path / "a.tsv").values[-2:]] == [
        "one more text of two lines",
        "the last of all texts",
    ]


def test_quotes_that_are_text_stay(tmp_path):
    texts = ['"so" good, they said', 'he said "no"', '"an open quote', "no quote"]
    rows = [(f"{text} {i}", label) for i, (text, (_, label)) in enumerate(zip(itertools.cycle(texts), ROWS))]
    (tmp_path / "a.tsv").write_text(lines(("text", "label"), rows, "\t"))
    assert read(tmp_path / "a.tsv").values == rows


def with_labels(path, labels, rows=None, **flags):
    """What fit reads of a JSONL file with these labels in turn."""
    objects = [{"text": text, "label": label} for text, label in zip(WORDS[:rows], itertools.cycle(labels))]
    path.write_text("".join(json.dumps(fields) + "\n" for fields in objects))
    return read(path, **BOTH, **flags)


@pytest.mark.parametrize(
    ("labels", "number", "note"),
    [
        ([str(n) for n in range(1, 31)], 30, "30 numbers are taken as labels (--kind numbers"),
        (list(range(-12, 13)), 25, "25 numbers are taken as labels (--kind numbers"),
        ([float(n) for n in range(25)], 25, "25 numbers are taken as labels (--kind numbers"),
        ([1, 2, 3], 3, "3 numbers are taken as labels (--kind numbers"),
        ([2 * n for n in range(25)], 0, "numbers to predict (--kind labels"),
        ([n / 2 for n in range(25)], 0, "numbers to predict (--kind labels"),
        ([*range(24), 1000], 0, "numbers to predict (--kind labels"),
        ([f"{n},5" for n in range(25)], 0, "Numbers such as 0,5 are read as 0.5 (--kind labels"),
        ([f"1.{n:03},5" for n in range(25)], 0, "Numbers such as 1.000,5 are read as 1000.5 (--kind labels"),
        ([*map(str, range(24)), "1,234"], 0, "Numbers such as 1,234 are read as 1234 (--kind labels"),
        (["1,5", "2,0", "2,5"], 3, "3 numbers are taken as labels (--kind numbers"),
        ([f"{n}%" for n in range(25)], 25, "Numbers such as 0% are taken as labels (without the sign or unit"),
        ([f"{n} kg" for n in range(25)], 25, "Numbers such as 0 kg are taken as labels (without"),
        ([f"{n}/25" for n in range(25)], 25, "Numbers such as 0/25 are taken as labels (without"),
        ([*["bad", "good"] * 9, "nan", "N/A"], 4, "Taken as labels: 'nan', 'N/A'. An empty cell means"),
        ([f"$ {n},000.50" for n in range(25)], 25, "Numbers such as $ 0,000.50 are taken as labels (without"),
    ],
)
def test_numbers_are_guessed_aloud(tmp_path, labels, number, note):
    found = with_labels(tmp_path / "a.jsonl", labels)
    assert len(found.labels) == number
    assert note in " ".join(found.notes)


def test_decimal_commas_of_the_test_file_are_read_too(tmp_path):
    for name, end in (("a.csv", 5), ("b.csv", 7)):
        (tmp_path / name).write_text(
            lines(("text", "label"), [(t, f"{i % 25},{end}") for i, t in enumerate(WORDS)], ";")
        )
    data = read_contents(FitSettings(file=tmp_path / "a.csv", test=tmp_path / "b.csv"))
    assert data.range == (0.5, 24.7)
    assert data.test[1][-1] == "1.7"


@pytest.mark.parametrize("strange", ["NA", "inf", "-"])
def test_a_word_among_numbers_does_not_make_labels_of_them(tmp_path, strange):
    numbers = [*(n / 4 for n in range(25)), strange]
    with pytest.raises(UserError, match=rf"column 'label': '{strange}' is not a number, but most values are; leave"):
        with_labels(tmp_path / "a.jsonl", numbers)
    assert len(with_labels(tmp_path / "a.jsonl", numbers, kind="labels").labels) == 26
    assert len(with_labels(tmp_path / "a.jsonl", [*range(25), strange]).labels) == 26


@pytest.mark.parametrize(
    ("labels", "separator"),
    [(["a;b", "a", "b;c"], ";"), (["a, b", "b, c", "c"], ", "), (["x y,z", "z", "x y"], ",")],
)
def test_joined_labels_are_noted(tmp_path, labels, separator):
    assert f"--kind multilabel --separator {separator!r}" in " ".join(with_labels(tmp_path / "a.jsonl", labels).notes)
    assert with_labels(tmp_path / "a.jsonl", labels, separator=separator).kind == "multilabel"
    assert with_labels(tmp_path / "a.jsonl", labels, kind="labels").notes == ()
    with pytest.raises(UserError, match="has the separator '#' of several labels; give it with --separator"):
        with_labels(tmp_path / "a.jsonl", labels, separator="#")
    assert with_labels(tmp_path / "a.jsonl", ["a, b", "c"]).notes == ()


@pytest.mark.parametrize(
    "labels", [["no", "No "], ["yes", "ye\u00ads"], ["yes", "\u200byes"], ["a b", "ab"], ["1", "1.0"]]
)
def test_labels_that_look_alike_are_shown(tmp_path, labels):
    (note,) = with_labels(tmp_path / "a.jsonl", [*labels, "other"]).notes
    assert all(ascii(label.strip()) in note for label in labels)


@pytest.mark.parametrize("missing", ["", None, float("nan")])
def test_rows_without_a_text_are_left_out(tmp_path, missing):
    objects = [{"text": missing if i % 7 == 0 else text, "label": label} for i, (text, label) in enumerate(ROWS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(fields) + "\n" for fields in objects))
    assert read(tmp_path / "a.jsonl", **BOTH).notes == ("Rows without text, left out: 18.",)


def test_words_for_a_missing_text_are_counted(tmp_path):
    rows = [("NA" if i % 7 == 0 else text, label) for i, (text, label) in enumerate(ROWS)]
    (tmp_path / "a.csv").write_text(lines(("text", "label"), rows))
    note = "Texts that are only 'NA', not left out as an empty cell would be: 18."
    assert note in read(tmp_path / "a.csv", **BOTH).notes


@pytest.mark.parametrize("form", ["columns", "split", "index"])
def test_one_object_of_all_rows_is_refused(tmp_path, form):
    (tmp_path / "a.json").write_text(pd.DataFrame(ROWS, columns=["text", "label"]).to_json(orient=form))
    with pytest.raises(UserError, match=r"a\.json: one object of all rows, .*orient='records'"):
        read(tmp_path / "a.json", **(BOTH if form == "columns" else {}))


def test_json_over_several_lines_needs_an_array(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"text": "a", "label": "b"}, indent=1))
    with pytest.raises(UserError, match=r"line 1: not JSON .*; each line has one object, or the file is one array"):
        read(tmp_path / "a.json")


def write_dataset(path, names, column):
    """A Parquet file as the library datasets writes it, with names of labels in its metadata."""
    label = {"names": names, "_type": "ClassLabel"}
    if isinstance(column[0], list):
        label = {"feature": label, "_type": "Sequence"}
    info = {"info": {"features": {"text": {"dtype": "string", "_type": "Value"}, "old": [label], "label": label}}}
    table = pa.table({"text": [text for text, _ in ROWS], "label": column})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(info)}), path)
    return path


def test_labels_of_a_dataset_have_their_names(tmp_path):
    numbers = [-1 if n % 10 == 0 else n % 2 for n in range(len(ROWS))]
    rows = read(write_dataset(tmp_path / "a.parquet", LABELS, numbers), **BOTH)
    assert rows.labels == LABELS
    assert [row[-1] for row in rows.values] == [None if n < 0 else LABELS[n] for n in numbers]
    several = read(write_dataset(tmp_path / "b.parquet", LABELS, [[n % 2] * (n % 3 > 0) for n in range(len(ROWS))]))
    assert (several.kind, several.labels) == ("multilabel", LABELS)
    pq.write_table(
        pa.table({"text": WORDS[:120], "label": numbers}).replace_schema_metadata({"huggingface": "[]"}),
        tmp_path / "c.parquet",
    )
    assert read(tmp_path / "c.parquet").labels == ("-1", "0", "1")


def test_the_file_itself_is_no_test_file(tmp_path):
    (tmp_path / "a.csv").write_text(lines(("text", "label"), ROWS))
    (tmp_path / "b.csv").symlink_to("a.csv")
    with pytest.raises(UserError, match=r"--test .*b\.csv: fit learns from this file"):
        read(tmp_path / "a.csv", test=tmp_path / "b.csv")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_a_long_text_is_cut_with_a_note(tmp_path, suffix):
    rows = [("x " * 150_000, "bad"), *ROWS]
    content = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    if suffix != "jsonl":
        content = lines(("text", "label"), rows, "," if suffix == "csv" else "\t")
    (tmp_path / f"a.{suffix}").write_text(content)
    found = read(tmp_path / f"a.{suffix}", **BOTH)
    assert len(found.values) == len(rows)
    assert found.notes == (f"a.{suffix}: texts cut at 200,000 characters: 1 (is a quote not closed?).",)


UNREADABLE = [
    ("a\ud800", "a label contains half of a surrogate pair"),
    ("\udfff", "a label contains half of a surrogate pair"),
    ("a\0b", "a label contains a NUL byte"),
]


@pytest.mark.parametrize(("label", "message"), UNREADABLE)
def test_labels_that_are_no_text_are_named_with_their_row(tmp_path, label, message):
    for labels, flags in (([label, "b"], {}), ([[label, "b"], ["b"]], {"kind": "multilabel"})):
        with pytest.raises(UserError, match=rf"a\.jsonl row 1: {message}"):
            with_labels(tmp_path / "a.jsonl", labels, **flags)


def test_a_name_of_a_column_with_half_a_surrogate_is_one_line(tmp_path):
    objects = ({"text\ud800": text, "label": label} for text, label in ROWS)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(fields) + "\n" for fields in objects))
    with pytest.raises(UserError, match="the name of a column contains half of a surrogate pair"):
        read(tmp_path / "a.jsonl", label="label")


@pytest.mark.parametrize(
    "unused",
    [
        pa.array([2**42] * len(ROWS), pa.timestamp("s")),
        pa.array([datetime.timedelta(days=1)] * len(ROWS), pa.duration("s")).cast(pa.int64()).view(pa.date64()),
        pa.array([[2**60]] * len(ROWS), pa.list_(pa.timestamp("us"))),
    ],
    ids=["seconds", "dates", "lists"],
)
def test_unused_columns_of_parquet_may_hold_anything(tmp_path, unused):
    texts, labels = map(list, zip(*ROWS, strict=True))
    pq.write_table(
        pa.Table.from_arrays([texts, unused, labels, unused], ["text", "when", "label", "when"]), tmp_path / "a.parquet"
    )
    for flags in ({}, BOTH):
        assert read(tmp_path / "a.parquet", **flags).labels == LABELS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lines(("text", "label"), ROWS).encode("utf-16"), "line 1: not UTF-8 text; it looks like UTF-16: save it as"),
        (lines(("text", "label"), ROWS).encode("utf-16-le"), "line 1: not UTF-8 text; it looks like UTF-16"),
        (
            lines(("text", "label"), [*ROWS, ("ein schöner Film für uns", "good")]).encode("cp1252"),
            "like windows-1252: give --encoding windows-1252",
        ),
        (
            lines(("text", "label"), [*ROWS, ("un film “très” long", "good")]).encode("cp1252"),
            "like windows-1252: give --encoding windows-1252",
        ),
        (
            lines(("text", "label"), [*ROWS, ("这家店的窗户和早餐", "好")]).encode("gbk"),
            r"byte\); give its --encoding, or save it as UTF-8$",
        ),
    ],
)
def test_other_encodings_are_named(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("encoding", ["cp1252", "gbk", "shift_jis"])
def test_files_in_other_encodings_are_read(tmp_path, encoding):
    word = {"cp1252": "sch\u00f6n", "gbk": "\u65e9\u9910", "shift_jis": "\u8868\u80fd"}[encoding]
    rows = [(f"{text} {word}", label) for text, label in ROWS]
    (tmp_path / "a.csv").write_bytes(lines(("text", "label"), rows).encode(encoding))
    (tmp_path / "more.csv").write_bytes(lines(("text", "label"), rows[:20]).encode(encoding))
    contents = read(tmp_path / "a.csv", encoding=encoding, test=tmp_path / "more.csv")
    assert all(word in text for text, _ in [*contents.values, *contents.test])


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("a.jsonl", {"delimiter": ";"}, "--delimiter is for CSV and TSV files"),
        ("a.parquet", {"header": False}, "--no-header is for CSV and TSV files"),
    ],
)
def test_flags_of_tables_are_refused_elsewhere(tmp_path, name, flags, message):
    (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match=message):
        read(tmp_path / name, **flags)
    with pytest.raises(ValueError, match="--separator is for --kind multilabel"):
        FitSettings(file=tmp_path / name, separator=";", kind="labels")
