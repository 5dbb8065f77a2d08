"""Labels before and after augmentation: table B.1."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny

from common.data.data import Split, load_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.logits import load_logits
from compression.augmentation.label_shift import LabelShare, label_table, recorded_labels, say_label_table
from compression.augmentation.preprocess import distillation_split, preprocess

MNLI = load_task("mnli")


def files(folder, labels, choices):
    train, logits = folder / "train.parquet", folder / "logits.parquet"
    write_split(train, Split(["a"] * len(labels), None, np.array(labels), np.arange(len(labels))), {})
    values = np.eye(3, dtype=np.float32)[choices]
    pq.write_table(pa.table({f"logit_{i}": values[:, i] for i in range(3)}), logits, row_group_size=3)
    return train, logits


def test_shares_are_of_labelled_rows_and_of_choices(tmp_path):
    train, logits = files(tmp_path, [0, 0, 1, -1, 2], [0, 1, 1, 2, 2, 2, 2, 2])
    shares = label_table(MNLI, train, logits)
    assert [share.label for share in shares] == list(MNLI.labels)
    assert [share.original for share in shares] == [0.5, 0.25, 0.25]
    assert [share.augmented for share in shares] == [0.125, 0.25, 0.625]


def test_without_labels_there_are_no_shares(tmp_path):
    shares = label_table(MNLI, *files(tmp_path, [-1, -1], [1, 1]))
    assert shares[1] == LabelShare(MNLI.labels[1], 0.0, 1.0)


def test_it_is_printed_as_a_table(tmp_path, capsys):
    say_label_table(MNLI, *files(tmp_path, [0, 0, 1, 2], [0, 1, 1, 1]))
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 4
    assert lines[1].split() == [MNLI.labels[0], "50.0%", "25.0%"]
    assert lines[2].split() == [MNLI.labels[1], "25.0%", "75.0%"]


def test_preprocess_prints_it_after_logits_of_augmented_rows(workspace, capsys):
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", generate_loss=("tinybert",)))
    printed = capsys.readouterr().err
    paths, task = Workspace(workspace), load_task("sst-2")
    train = load_split(paths, task, "train")
    chosen = load_logits(paths, task, "tiny-bert", "tinybert", distillation_split(paths, task, "tinybert")).argmax(1)
    for i, label in enumerate(task.labels):
        shares = [f"{np.mean(values == i):.1%}" for values in (train.labels, chosen)]
        assert any(line.split() == [label, *shares] for line in printed.splitlines())


@pytest.mark.parametrize("name", ["sst-2", "qqp"])
def test_shares_sum_to_one(prepared, name):
    paths = Workspace(prepared)
    shares = label_table(load_task(name), paths.split(name, "train"), paths.logits(name, "tiny-bert", "tinybert"))
    assert sum(share.original for share in shares) == pytest.approx(1)
    assert sum(share.augmented for share in shares) == pytest.approx(1)


def test_sets_of_augmented_rows_are_independent(workspace, glove):
    paths = Workspace(workspace)
    before = paths.augmented("sst-2", "tinybert").read_bytes()
    more = {"augment": "tinybert", "augmented": "more", "glove": glove, "variants": 3, "generate_loss": ("augmented",)}
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", **more))
    task = load_task("sst-2")
    rows = distillation_split(paths, task, "more")
    assert len(load_logits(paths, task, "tiny-bert", "more", rows)) == len(rows)
    assert paths.augmented("sst-2", "tinybert").read_bytes() == before
    counts = {shares.rows: shares.count for shares in recorded_labels(paths, {"sst-2": None}, "more")}
    assert counts["augmented"] == len(rows)
    with pytest.raises(UserError, match="'validation' is the name of other rows"):
        preprocess(tiny.prepare_settings(workspace, "sst-2", augment="tinybert", augmented="validation"))
    with pytest.raises(UserError, match=r"unknown rows 'tinybert'.*rows: processed, more"):
        preprocess(tiny.prepare_settings(workspace, "sst-2", augmented="more", generate_loss=("tinybert",)))
