"""Labels before and after augmentation: table B.1."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny

from common.data.split import Split, load_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.logits import load_logits
from compression.augmentation.label_shift import augmented_shares, recorded_labels, say_label_table, split_shares
from compression.augmentation.preprocess import preprocess

MNLI = load_task("mnli")


def files(folder, labels, choices, sources):
    """Files of train, of logits over augmented rows, and of these, whose labels are `sources`."""
    train, logits = folder / "train.parquet", folder / "logits.parquet"
    write_split(train, Split(["a"] * len(labels), None, np.array(labels), np.arange(len(labels))), {})
    values = np.eye(3, dtype=np.float32)[choices]
    pq.write_table(pa.table({f"logit_{i}": values[:, i] for i in range(3)}), logits, row_group_size=3)
    rows = folder / "rows.parquet"
    write_split(rows, Split(["a"] * len(choices), None, np.array(sources), np.arange(len(choices))), {})
    return train, logits, rows


@pytest.mark.parametrize(
    ("labels", "choices", "sources", "original", "augmented", "agreement"),
    [
        (
            [0, 0, 1, -1, 2],
            [0, 1, 1, 2, 2, 2, 2, 2],
            [0, 0, -1, 2, 2, 2, 1, -1],
            [0.5, 0.25, 0.25],
            [0.125, 0.25, 0.625],
            4 / 6,
        ),
        ([-1, -1], [1, 1], [-1, -1], [0, 0, 0], [0, 1, 0], None),
    ],
)
def test_shares_are_of_labelled_rows_and_of_choices(tmp_path, labels, choices, sources, original, augmented, agreement):
    train, logits, rows = files(tmp_path, labels, choices, sources)
    before, after = split_shares(MNLI, "train", train), augmented_shares(MNLI, logits, rows)
    assert list(before.shares) == list(after.shares) == list(MNLI.labels)
    assert list(before.shares.values()) == original
    assert list(after.shares.values()) == augmented
    assert (before.count, after.count) == (sum(label >= 0 for label in labels), len(choices))
    assert (before.agreement, after.agreement) == (None, agreement)


@pytest.mark.parametrize(
    ("sources", "last"),
    [
        ([0, 1, 2, -1], "4 augmented rows; agreement with the source row's label 66.7%"),
        ([-1, -1, -1, -1], "4 augmented rows, without labels of their own"),
    ],
)
def test_shares_are_printed_as_a_table(tmp_path, capsys, sources, last):
    say_label_table(MNLI, *files(tmp_path, [0, 0, 1, 2], [0, 1, 1, 1], sources))
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 5
    assert lines[1].split() == [MNLI.labels[0], "50.0%", "25.0%"]
    assert lines[2].split() == [MNLI.labels[1], "25.0%", "75.0%"]
    assert lines[4] == last


def test_preprocess_prints_the_table_after_logits_of_augmented_rows(workspace, capsys):
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", generate_loss=("tinybert",)))
    printed = capsys.readouterr().err
    paths, task = Workspace(workspace), load_task("sst-2")
    train = load_split(paths, task, "train")
    chosen = load_logits(paths, task, "tiny-bert", "tinybert").argmax(1)
    for i, label in enumerate(task.labels):
        shares = [f"{np.mean(values == i):.1%}" for values in (train.labels, chosen)]
        assert any(line.split() == [label, *shares] for line in printed.splitlines())


def test_sets_of_augmented_rows_are_kept_separately(workspace, glove):
    paths = Workspace(workspace)
    before = paths.augmented("sst-2", "tinybert").read_bytes()
    more = {"augment": "tinybert", "augmented": "more", "glove": glove, "variants": 3, "generate_loss": ("augmented",)}
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", **more))
    task = load_task("sst-2")
    rows = load_split(paths, task, "more")
    assert len(load_logits(paths, task, "tiny-bert", "more")) == len(rows)
    assert paths.augmented("sst-2", "tinybert").read_bytes() == before
    counts = {shares.rows: shares.count for shares in recorded_labels(paths, {"sst-2": None}, ("more",))}
    assert counts["augmented"] == len(rows)
    with pytest.raises(UserError, match="the name 'validation' is reserved"):
        preprocess(tiny.prepare_settings(workspace, "sst-2", augment="tinybert", augmented="validation"))
    with pytest.raises(UserError, match=r"unknown rows 'mre'; did you mean more\? \(rows: processed, tinybert, more, "):
        preprocess(tiny.prepare_settings(workspace, "sst-2", generate_loss=("mre",)))
    # Rows that are there need not be named twice.
    given = {"precision": "fp32", "generate_loss": ("more",)}
    assert preprocess(tiny.prepare_settings(workspace, "sst-2", **given)) == {"--generate-loss more": len(rows)}
