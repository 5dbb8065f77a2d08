"""Files of logits that one workspace exports and another imports: of the same texts and labels, and undamaged."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from answer_files import GOOD, answers, exported, imported, prepared_task, random_logits, write
from own_task import NAMES, labelled_rows, own_task

from common.data.prepare import prepare
from common.data.split import load_split
from common.errors import UserError
from common.teachers.logits import load_logits


def test_files_of_several_rows_hold_them_in_their_order(tmp_path):
    paths, task = prepared_task(tmp_path)
    names = ("test", "processed", "validation")
    logits = {name: random_logits(paths, task, "train" if name == "processed" else name) for name in names}
    for name, values in logits.items():
        of = {f"logit_{label}": values[:, i] for i, label in enumerate(task.labels)}
        row = "train" if name == "processed" else name
        given = answers(paths, task, lambda i, of=of: {n: float(v[i]) for n, v in of.items()}, row)
        imported(paths, task, write(tmp_path / f"{name}.jsonl", given), rows=(name,))
    file = exported(paths, task, tmp_path / "all.parquet", rows=names)
    imported(paths, task, file, "copy", rows=("validation", "test"))
    for name in ("validation", "test"):
        assert np.array_equal(load_logits(paths, task, "copy", name), logits[name].astype(np.float32))
    with pytest.raises(
        UserError, match=r"train\.parquet: no such file; run: .*--generate-loss processed --logits-from"
    ):
        load_logits(paths, task, "copy", "train")


def test_an_exported_file_is_of_the_same_texts_and_labels(tmp_path):
    paths, task = prepared_task(tmp_path)
    imported(paths, task, write(tmp_path / "a.csv", answers(paths, task, lambda i: GOOD)))
    file = exported(paths, task, tmp_path / "api.parquet")
    count = len(load_split(paths, task, "train"))
    held = rf"has logits for the rows train \({count}\) of mine, but not for the present \d+ rows of "
    with pytest.raises(UserError, match=held + "test;"):
        imported(paths, task, file, rows=("test",))
    prepare(paths, task, None, tiny.SEED + 1)
    with pytest.raises(UserError, match=held + r"train; were they prepared from other files"):
        imported(paths, task, file)
    turned = own_task(tmp_path / "turned", labelled_rows(60), "turned", labels=NAMES[::-1])
    prepare(paths, turned, None, tiny.SEED)
    with pytest.raises(
        UserError, match="logits of the labels thumbs down, thumbs up; turned has thumbs up, thumbs down"
    ):
        imported(paths, turned, file)


def damage(file, **changed):
    """Write a file again with other columns or another description."""
    table = pq.read_table(file)
    about = {**json.loads(table.schema.metadata[b"featherweight.logits"]), **changed.pop("about", {})}
    for name, column in changed.items():
        table = table.set_column(table.column_names.index(name), name, column(table[name]))
    pq.write_table(table.replace_schema_metadata({"featherweight.logits": json.dumps(about)}), file)


@pytest.mark.parametrize(
    "changed",
    [
        {"logit_0": lambda column: pa.array(column.to_numpy() * np.float16(np.nan))},
        {"logit_0": lambda column: pa.array([None, *column.to_pylist()[1:]], pa.float16())},
        {"logit_1": lambda column: column.cast(pa.float32())},
        {"about": {"parts": []}},
        {"about": {"parts": [{"rows": "train", "count": 10**12, "fingerprint": "0" * 16}]}},
        {"about": {"parts": 3}},
        {"about": {"labels": None}},
    ],
)
def test_damaged_files_are_refused(tmp_path, changed):
    paths, task = prepared_task(tmp_path)
    imported(paths, task, write(tmp_path / "a.csv", answers(paths, task, lambda i: GOOD)))
    file = exported(paths, task, tmp_path / "api.parquet")
    damage(file, **changed)
    with pytest.raises(UserError, match=r"api\.parquet: "):
        imported(paths, task, file, "copy")
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"api\.parquet: damaged"):
        imported(paths, task, file, "copy")


def test_a_count_of_the_wrong_rows_is_refused(tmp_path):
    paths, task = prepared_task(tmp_path)
    imported(paths, task, write(tmp_path / "a.csv", answers(paths, task, lambda i: GOOD)))
    file = exported(paths, task, tmp_path / "api.parquet")
    split = load_split(paths, task, "train")
    part = {"rows": "train", "count": len(split) + 1, "fingerprint": split.text_fingerprint}
    damage(file, about={"parts": [part]})
    with pytest.raises(
        UserError, match=rf"damaged, or not logits of mine \(expected {len(split) + 1} rows of 2 columns"
    ):
        imported(paths, task, file, "copy")


def test_counts_of_parts_that_differ_from_their_rows_are_refused(tmp_path):
    paths, task = prepared_task(tmp_path)
    rows = ("train", "validation")
    texts = [*answers(paths, task, lambda i: GOOD), *answers(paths, task, lambda i: GOOD, "validation")]
    imported(paths, task, write(tmp_path / "a.csv", texts), rows=rows)
    file = exported(paths, task, tmp_path / "api.parquet", rows=rows)
    train, validation = (load_split(paths, task, name) for name in rows)
    counts = ((train, len(train) - 1), (validation, len(validation) + 1))
    parts = [{"rows": "train", "count": n, "fingerprint": split.text_fingerprint} for split, n in counts]
    damage(file, about={"parts": parts})
    with pytest.raises(UserError, match=rf"{len(train) - 1} rows of logits for {len(train)} texts"):
        imported(paths, task, file, "copy")


def test_a_teacher_of_overlapping_rows_is_refused(tmp_path):
    paths, task = prepared_task(tmp_path)
    imported(paths, task, write(tmp_path / "a.csv", answers(paths, task, lambda i: GOOD)))
    file = exported(paths, task, tmp_path / "api.parquet")
    damage(file, about={"trained_on": ["mine"]})
    other = own_task(tmp_path / "other", labelled_rows(60), "other", overlaps=["mine"])
    prepare(paths, other, None, tiny.SEED)
    with pytest.raises(
        UserError, match="refused: the model was trained on mine, whose sentences overlap those of other"
    ):
        imported(paths, other, file, "copy")
