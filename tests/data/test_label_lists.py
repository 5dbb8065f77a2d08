"""Texts with any number of labels: every kind of file reads back as it was written, and mistakes are named."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from own_task import write_csv, write_tsv

from common.data.prepare import prepare
from common.data.readers.tables import read_source
from common.data.report import as_text
from common.data.split import Split, definition_of, load_split, read_report, read_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.kinds.registry import LABELS as ONE_LABEL
from common.kinds.registry import MULTILABEL
from common.store.workspace import Workspace

LABELS = ["war", "art", "1"]
KINDS = ("csv", "tsv", "jsonl", "parquet")


def task_of(folder, **changed):
    columns = {"sentence1": "review", "label": "verdict"}
    path = tiny_labels.write_task(folder, [], **{"labels": LABELS, "columns": columns, **changed})
    return load_task(str(path))


def write(path, rows, separator="|"):
    """Texts and lists of labels (or None) as one kind of file."""
    kind = path.suffix[1:]
    if kind in ("csv", "tsv"):
        {"csv": write_csv, "tsv": write_tsv}[kind](path, [(text, separator.join(labels)) for text, labels in rows])
    elif kind == "jsonl":
        lines = (json.dumps({"review": text, "verdict": labels}) + "\n" for text, labels in rows)
        path.write_text("".join(lines))
    else:
        pq.write_table(pa.Table.from_pylist([{"review": t, "verdict": labels} for t, labels in rows]), path)


def as_row(labels):
    return [float("nan")] * len(LABELS) if labels is None else [float(label in labels) for label in LABELS]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.data(), st.sampled_from(["|", ";", ", ", " "]))
def test_lists_read_back_as_they_were_written(tmp_path_factory, kind, data, separator):
    folder = tmp_path_factory.mktemp("lists")
    some = st.permutations(LABELS).flatmap(lambda names: st.integers(0, 3).map(lambda count: names[:count]))
    some = some if kind in ("csv", "tsv") else st.none() | some  # only lists can be missing
    lists = [*data.draw(st.lists(some, max_size=5)), ["art"]]
    write(folder / f"r.{kind}", [(f"text {i}", labels) for i, labels in enumerate(lists)], separator)
    split = read_source(folder / f"r.{kind}", task_of(folder, label_separator=separator))
    assert split.labels.dtype == np.float32
    np.testing.assert_array_equal(split.labels, [as_row(labels) for labels in lists])
    assert split.labelled.tolist() == [labels is not None for labels in lists]
    write_split(folder / "split.parquet", split, {})
    again = read_split(folder / "split.parquet")
    np.testing.assert_array_equal(again.labels, split.labels)
    assert again.fingerprint() == split.fingerprint()
    assert again.kind is MULTILABEL


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["war", "peace"], r"unknown label 'peace'; expected war, art, 1"),
        (["wart"], r"unknown label 'wart'.*did you mean war"),
        (["art", "art"], r"label 'art' is repeated"),
        ([1, "1"], r"label '1' is repeated"),
        ("war", r"the labels are of type str, not a list \(war\); \[\] means that a row has no labels, null"),
        (1, r"the labels are of type int, not a list \(1\)"),
        ({"war": 1}, r"the labels are of type dict, not a list"),
        ([["war"]], r"a label is of type list"),
        ([None], r"unknown label ''"),
    ],
)
def test_what_is_no_list_of_labels_is_refused_with_its_line(tmp_path, value, message):
    rows = [{"review": "fine", "verdict": ["war"]}, {"review": "so", "verdict": value}]
    (tmp_path / "r.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(UserError, match=rf"r\.jsonl line 2: {message}"):
        read_source(tmp_path / "r.jsonl", task_of(tmp_path))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("war|peace", "unknown label 'peace'"),
        ("war||art", "unknown label ''"),
        ("art|war|art", "label 'art' is repeated"),
        ("war;art", "unknown label 'war;art'"),
    ],
)
def test_a_cell_of_wrong_labels_is_refused_with_its_line(tmp_path, cell, message):
    write_csv(tmp_path / "r.csv", [("fine", " war | art "), ("so", cell)])
    with pytest.raises(UserError, match=rf"r\.csv line 3: {message}"):
        read_source(tmp_path / "r.csv", task_of(tmp_path))


def test_columns_of_text_in_parquet_and_rows_without_the_key_are_refused(tmp_path):
    pq.write_table(pa.table({"review": ["a"], "verdict": ["war|art"]}), tmp_path / "r.parquet")
    with pytest.raises(UserError, match=r"r\.parquet row 1: the labels are of type str, not a list \(war\|art\)"):
        read_source(tmp_path / "r.parquet", task_of(tmp_path))
    (tmp_path / "r.jsonl").write_text('{"review": "a"}\n')
    with pytest.raises(UserError, match=r"line 1: no key 'verdict'"):
        read_source(tmp_path / "r.jsonl", task_of(tmp_path))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": ["a", "b|c"]}, "label 'b|c' is empty or contains the label_separator"),
        ({"labels": ["a", "b|c"], "label_separator": ";"}, "label 'b|c': predictions are joined by"),
        ({"labels": ["a", ""]}, "label '' is empty"),
        ({"labels": ["a", "b;c"], "label_separator": ";"}, "label 'b;c' is empty or contains"),
        ({"labels": [], "range": [0, 1]}, "range is for tasks of kind numbers"),
        ({"labels": ["a"]}, "give two or more labels"),
        ({"metrics": ["accuracy"]}, r"metric accuracy is not one of this kind of task \(f1_micro, f1_macro, subset_a"),
        ({"kind": "labels", "label_separator": ";"}, "label_separator is for tasks of kind multilabel"),
        ({"kind": "labels", "metrics": ["f1_micro"]}, "metric f1_micro is not one of this kind of task"),
    ],
)
def test_contradictory_settings_are_refused(tmp_path, changed, message):
    with pytest.raises(UserError, match=message):
        task_of(tmp_path, **changed)


def test_a_label_may_have_another_name_in_the_files(tmp_path):
    write(tmp_path / "r.csv", [("a", ["b|c"]), ("b", ["x", "b|c"])], ";")
    task = task_of(tmp_path, labels=["x", "both"], label_values=["x", "b|c"], label_separator=";")
    assert read_source(tmp_path / "r.csv", task).labels.tolist() == [[0, 1], [1, 1]]


def test_the_default_metrics_and_outputs(tmp_path):
    task = task_of(tmp_path)
    assert task.all_metrics == ("f1_micro", "f1_macro", "subset_accuracy")
    assert task_of(tmp_path, metrics=["f1_macro"]).all_metrics == ("f1_macro",)
    assert (task.kind, task.outputs) == (MULTILABEL, 3)


def test_only_the_splits_of_multilabel_tasks_depend_on_the_separator(tmp_path):
    assert "label_separator" in definition_of(task_of(tmp_path))
    assert "label_separator" not in definition_of(load_task("sst-2"))


def test_splits_do_not_leak_and_the_report_counts_labels(tmp_path):
    rows = tiny_labels.labelled(120)
    rows = [(text, None if i % 10 == 0 else labels) for i, (text, labels) in enumerate(rows)]
    rows += [(rows[1][0].upper(), [] if rows[1][1] else ["work"]), (rows[2][0], None)]
    task = load_task(str(tiny_labels.write_task(tmp_path, rows)))
    splits = prepare(Workspace(tmp_path / "w"), task, None, seed=3)
    known = {text.lower(): labels for text, labels in rows[:-2]}
    for split in splits.values():
        for text, row in zip(split.sentence1, split.labels, strict=True):
            labels = rows[-2][1] if text == rows[-2][0] else known[text.lower()]
            expected = [np.nan] * 3 if labels is None else [label in labels for label in tiny_labels.LABELS]
            np.testing.assert_array_equal(row, np.float32(expected))
    assert all(splits[name].labelled.all() for name in ("validation", "test"))
    texts = [{text.lower() for text in split.sentence1} for split in splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts))
    report = read_report(Workspace(tmp_path / "w"), "topics")
    whole, train = report["read"]["all"], report["splits"]["train"]
    own = splits["train"].labels[splits["train"].labelled]
    assert (whole["unlabelled"], whole["contradictory"], whole["repeated"]) == (13, 1, 1)
    assert train["labels"]["praise"] == {"rows": own[:, 0].sum(), "share": round(own[:, 0].mean(), 4)}
    assert train["labels_a_row"] == pytest.approx(own.sum(1).mean(), abs=1e-4)
    assert train["none"] == (own.sum(1) == 0).sum() > 0
    last = {line[:18].strip(): line[18:].split()[0] for line in as_text(report).splitlines() if line[18:].strip()}
    assert last["none of these"] == str(train["none"])
    assert last["labels a row, mean"] == f"{train['labels_a_row']:.2f}"


def test_a_label_without_a_row_is_named(tmp_path):
    task = load_task(str(tiny_labels.write_task(tmp_path, tiny_labels.labelled(60), labels=[*tiny_labels.LABELS, "x"])))
    with pytest.raises(UserError, match=r"rows\.jsonl: label 'x' never appears"):
        prepare(Workspace(tmp_path / "w"), task, None, seed=1)


def test_pairs_and_a_file_of_unlabelled_texts(tmp_path):
    lines = [
        json.dumps({"a": text, "b": f"is {i} it", "label": labels})
        for i, (text, labels) in enumerate(tiny_labels.labelled(60))
    ]
    columns = {"sentence1": "a", "sentence2": "b", "label": "label"}
    files = {"files": {"all": "rows.jsonl", "unlabelled": "more.jsonl"}}
    path = tiny_labels.write_task(tmp_path, [], columns=columns, source=files)
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    (tmp_path / "more.jsonl").write_text('{"a": "one of its own", "b": "and another one"}\n')
    prepare(Workspace(tmp_path / "w"), load_task(str(path)), None, seed=1)
    train = load_split(Workspace(tmp_path / "w"), load_task(str(path)), "train")
    assert (train.sentence1[-1], train.sentence2[-1]) == ("one of its own", "and another one")
    assert train.labelled.tolist() == [True] * (len(train) - 1) + [False]


def test_counts_of_labels():
    lists = np.float32([[1, 0], [1, 1], [np.nan, np.nan]])
    two = SimpleNamespace(labels=("a", "b"))
    assert MULTILABEL.counts(lists, two).tolist() == [2, 1]
    assert ONE_LABEL.counts(np.array([1, -1, 1]), two).tolist() == [0, 2]
    split = Split(["a"] * 3, None, lists, np.arange(3), MULTILABEL)
    assert split.labelled.tolist() == [True, True, False]
    assert split.take(np.array([2])).labelled.tolist() == [False]
