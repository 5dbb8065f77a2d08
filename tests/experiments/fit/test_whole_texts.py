"""Rows that are parts of longer ones: fit holds out whole texts."""

import numpy as np

from common.data.overlap import FEW_WORDS, near_keys, whole_rows
from common.data.prepare import make_splits
from common.data.readers.tables import read_source
from compression.experiments.fit.contents.detect import FileContents
from compression.experiments.fit.task import whole_texts, write_task


def found(texts, columns=("text",), gaps=1000):
    values = [(*[text] * len(columns), None if i % gaps == gaps - 1 else "ab"[i % 2]) for i, text in enumerate(texts)]
    return FileContents(columns, "label", ("a", "b"), values)


def sentences(count):
    words = np.random.default_rng(1).integers(0, 10_000, (count, 12))
    return [" ".join(f"w{word}" for word in row) for row in words]


def with_parts(count, parts):
    """Sentences, and parts of some of them."""
    whole = sentences(count)
    return whole + [" ".join(text.split()[2:9]) + "!" for text in whole[:parts]]


def test_whole_texts_are_held_out_where_many_rows_are_parts(tmp_path):
    rows = found(with_parts(300, 250))
    whole = whole_texts(rows)
    assert whole == 300
    task = write_task(tmp_path, "mine", rows, whole=whole)
    assert task.validation.whole_sentences
    assert task.test.whole_sentences
    assert task.validation.rows == task.test.rows == 60  # as of a file of 300 rows
    splits, *_ = make_splits({"all": read_source(tmp_path / "rows.parquet", task)}, task, 1)
    keys = {name: near_keys(split)[0] for name, split in splits.items()}
    for name in ("validation", "test"):
        assert len(keys[name]) == 60
        assert all(len(key.split()) == 12 for key in keys[name])
        assert not any(part in text for text in keys[name] for part in keys["train"])
    assert len(keys["train"]) > 300


def test_few_parts_short_rows_pairs_and_large_files_are_drawn_from_as_usual(tmp_path, monkeypatch):
    assert whole_texts(found(with_parts(300, 60))) is None
    assert whole_texts(found(with_parts(300, 90))) == 300
    short = [" ".join(text.split()[: FEW_WORDS - 1]) for text in sentences(300)]
    assert whole_texts(found(sentences(300) + short)) is None
    assert whole_texts(found(with_parts(300, 250), ("one", "two"))) is None
    assert whole_texts(found(with_parts(40, 40))) is None  # too few to hold out
    assert whole_texts(found(with_parts(300, 250), gaps=2)) == 150  # those with a label
    monkeypatch.setattr("compression.experiments.fit.task._MOST_WORDS", 1000)
    assert whole_texts(found(with_parts(300, 250))) is None
    task = write_task(tmp_path, "mine", found(with_parts(300, 250)))
    assert not task.validation.whole_sentences
    assert task.validation.rows == 100


def test_a_tenth_of_whole_texts_leaves_most_rows_in_train(tmp_path):
    """Each of 1,000 sentences has several parts, as SST-2's have."""
    whole = sentences(1000)
    texts = whole + [" ".join(text.split()[start : start + 6]) for text in whole for start in range(0, 6)]
    task = write_task(tmp_path, "mine", found(texts), whole=whole_texts(found(texts)))
    splits, *_ = make_splits({"all": read_source(tmp_path / "rows.parquet", task)}, task, 1)
    assert len(splits["validation"]) == len(splits["test"]) == 100
    assert len(splits["train"]) >= 0.8 * len(texts)
    assert len(whole_rows(near_keys(splits["train"])[0])) == 800
