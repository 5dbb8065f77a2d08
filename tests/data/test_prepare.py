"""Splits from the user's own files: carved without leaks, rebuilt when files or seeds change."""

import numpy as np
import pytest
import tiny
from own_task import NAMES, WORLD, labelled_rows, own_task, write_csv, write_yaml

from common.data.overlap import duplicates, text_keys
from common.data.prepare import prepare
from common.data.readers.tables import read_source
from common.data.split import load_split, read_report
from common.data.tasks import load_task
from common.errors import UserError
from common.store.artifact import artifact_at
from common.store.workspace import Workspace
from compression.augmentation.preprocess import preprocess


def test_a_label_with_too_few_rows_for_every_split_is_left_out(tmp_path, capsys):
    rows = labelled_rows(40)
    with pytest.raises(UserError, match=r"rows\.csv: label 'hmm' never appears"):
        prepare(Workspace(tmp_path), own_task(tmp_path, rows, labels=[*NAMES, "hmm"]), None, seed=1)
    splits = prepare(
        Workspace(tmp_path), own_task(tmp_path, [*rows, ("so", "hmm")], labels=[*NAMES, "hmm"]), None, seed=1
    )
    assert not any((split.labels == 2).any() for split in splits.values())
    assert "labels left out, because train keeps no row besides validation and test: 'hmm' (1 rows)" in (
        capsys.readouterr().err
    )


def test_a_label_whose_rows_are_parts_of_others_is_left_out_of_all_splits(tmp_path):
    rows = labelled_rows(60)
    rows += [(" ".join(text.split()[:6]), "hmm") for text, _ in rows]
    splits = prepare(Workspace(tmp_path), own_task(tmp_path, rows, labels=[*NAMES, "hmm"]), None, seed=1)
    present = {name: (split.labels == 2).any() for name, split in splits.items()}
    assert present["train"] or not any(present.values())


def test_a_tenth_each_is_carved_by_default(tmp_path):
    splits = prepare(Workspace(tmp_path / "w"), own_task(tmp_path, labelled_rows(160)), None, seed=1)
    assert 14 <= len(splits["test"]) <= 18
    assert 12 <= len(splits["validation"]) <= 18
    other = own_task(tmp_path, labelled_rows(160), validation={"rows": 40}, test={"rows": 30})
    splits = prepare(Workspace(tmp_path / "w"), other, None, seed=1)
    assert 30 <= len(splits["test"]) <= 32
    assert 40 <= len(splits["validation"]) <= 42


def test_only_labelled_rows_are_carved_and_unlabelled_ones_do_not_leak(tmp_path):
    rows = labelled_rows(120, gaps=3)
    rows += [(text.upper(), "") for text, label in rows if label]  # every labelled row once more, without its label
    splits = prepare(Workspace(tmp_path / "w"), own_task(tmp_path, rows), None, seed=1)
    assert splits["test"].labelled.all()
    assert splits["validation"].labelled.all()
    held_out = {text.lower() for name in ("test", "validation") for text in splits[name].sentence1}
    assert not held_out & {text.lower() for text in splits["train"].sentence1}
    unlabelled = [rows[row][0] for row in splits["train"].source_rows[~splits["train"].labelled]]
    assert set(unlabelled) <= {text for text, label in rows[:120] if not label}  # of two equal rows the labelled stays


def test_rows_of_the_unlabelled_file_join_train_whatever_its_columns(tmp_path):
    rows = labelled_rows(80)
    (tmp_path / "more.txt").write_text(f"a sentence all of its own\n{rows[0][0]}\n")
    write_csv(tmp_path / "rows.csv", rows)
    task = load_task(write_yaml(tmp_path, {"train": "rows.csv", "unlabelled": "more.txt"}))
    train = prepare(Workspace(tmp_path / "w"), task, None, seed=1)["train"]
    assert train.sentence1[-1] == "a sentence all of its own"
    assert (train.labelled == (np.arange(len(train)) < len(train) - 1)).all()
    assert train.source_rows[-1] == 80
    write_csv(tmp_path / "more.csv", [["only this"]], header=["review"])
    task = load_task(write_yaml(tmp_path, {"train": "rows.csv", "unlabelled": "more.csv"}))
    assert prepare(Workspace(tmp_path / "w"), task, None, seed=1)["train"].sentence1[-1] == "only this"


def test_files_given_for_validation_and_test_stay_whole_and_their_rows_leave_train(tmp_path):
    rows = labelled_rows(120)
    phrase = " ".join(rows[100][0].split()[2:9])
    write_csv(tmp_path / "train.csv", [*rows[:100], (rows[100][0].upper(), NAMES[0]), (phrase, NAMES[0]), rows[119]])
    write_csv(tmp_path / "dev.csv", rows[100:110])
    write_csv(tmp_path / "test.csv", [*rows[110:], rows[119]])
    files = {"train": "train.csv", "validation": "dev.csv", "test": "test.csv"}
    splits = prepare(Workspace(tmp_path / "w"), load_task(write_yaml(tmp_path, files)), None, seed=1)
    assert splits["validation"].sentence1 == [text for text, _ in rows[100:110]]
    assert splits["test"].sentence1 == [text for text, _ in [*rows[110:], rows[119]]]
    assert splits["train"].sentence1 == [text for text, _ in rows[:100]]
    report = read_report(Workspace(tmp_path / "w"), "mine")
    assert report["dropped"] == {"validation": 2, "test": 1}
    assert [entry["rows"] for entry in report["overlaps"]] == [0, 0, 0]


def test_only_a_task_with_a_test_file_does_without_validation(tmp_path):
    rows = labelled_rows(60)
    with pytest.raises(UserError, match="--no-validation: mine needs a file for test, and none for validation"):
        prepare(Workspace(tmp_path / "w"), own_task(tmp_path, rows), None, seed=1, validation=False)
    write_csv(tmp_path / "test.csv", rows[50:])
    task = load_task(write_yaml(tmp_path, {"train": "rows.csv", "test": "test.csv"}))
    splits = prepare(Workspace(tmp_path / "w"), task, None, seed=1, validation=False)
    assert {name: len(split) for name, split in splits.items()} == {"train": 50, "test": 10}


def test_a_train_file_that_is_all_leak_is_refused(tmp_path):
    write_csv(tmp_path / "a.csv", labelled_rows(20))
    files = {"train": "a.csv", "validation": "a.csv", "test": "a.csv"}
    with pytest.raises(UserError, match="every row of train overlaps validation or test"):
        prepare(Workspace(tmp_path / "w"), load_task(write_yaml(tmp_path, files)), None, seed=1)


def test_texts_of_symbols_alone_differ(tmp_path):
    rows = [(text, NAMES[i % 2]) for i, text in enumerate(WORLD)]
    split = read_source(tmp_path / "rows.csv", own_task(tmp_path, [*rows, ("😀 ", ""), ("...", ""), ("…", "")]))
    assert split.sentence1[: len(WORLD)] == WORLD
    assert duplicates(split, text_keys(split)).tolist() == [len(WORLD), len(WORLD) + 2]


def test_two_tasks_of_one_name_are_never_mixed(tmp_path):
    first = own_task(tmp_path / "a", labelled_rows(60))
    second = own_task(tmp_path / "b", labelled_rows(80))
    paths = Workspace(tmp_path / "w")
    train = prepare(paths, first, None, seed=1)["train"]
    for refused in (lambda: prepare(paths, second, None, seed=1), lambda: load_split(paths, second, "train")):
        with pytest.raises(UserError, match=r"a.mine\.yaml; give one of them another name"):
            refused()
    with pytest.raises(UserError, match="give one of them another name"):
        preprocess(tiny.prepare_settings(paths.root, second.file, augment="tinybert"))
    assert load_split(paths, first, "train").fingerprint() == train.fingerprint()
    assert len(prepare(paths, second, None, seed=1, force=True)["train"]) > len(train)
    with pytest.raises(UserError, match="give one of them another name"):
        load_split(paths, first, "train")


def test_changed_files_and_seeds_are_noticed_and_a_moved_folder_is_not(tmp_path):
    task, paths = own_task(tmp_path / "a", labelled_rows(60)), Workspace(tmp_path / "w")
    prepare(paths, task, None, seed=1)
    first = artifact_at(paths.splits("mine")).key
    (tmp_path / "a").rename(tmp_path / "b")
    moved = load_task(str(tmp_path / "b/mine.yaml"))
    with pytest.raises(UserError, match=r"preprocess\.py --task"):
        load_split(paths, moved, "train")
    prepare(paths, moved, None, seed=1)
    assert artifact_at(paths.splits("mine")).key == first
    assert len(load_split(paths, moved, "train"))
    prepare(paths, moved, None, seed=2)
    seeds = artifact_at(paths.splits("mine")).key
    own_task(tmp_path / "b", labelled_rows(70))
    prepare(paths, moved, None, seed=2)
    assert len({first, seeds, artifact_at(paths.splits("mine")).key}) == 3


def test_a_changed_definition_is_noticed(tmp_path):
    task, paths = own_task(tmp_path, labelled_rows(60)), Workspace(tmp_path / "w")
    prepare(paths, task, None, seed=1)
    changed = own_task(tmp_path, labelled_rows(60), validation={"rows": 20})
    with pytest.raises(UserError, match=r"has changed since the data of mine were prepared; run: python preprocess"):
        load_split(paths, changed, "train")
    assert len(prepare(paths, changed, None, seed=1)["validation"]) == len(load_split(paths, changed, "validation"))


@pytest.mark.parametrize("data_dir", [None, "elsewhere"])
def test_files_are_next_to_the_yaml_file_or_in_data_dir(tmp_path, data_dir):
    task = own_task(tmp_path, labelled_rows(60))
    if data_dir:
        (tmp_path / data_dir).mkdir()
        (tmp_path / "rows.csv").rename(tmp_path / data_dir / "rows.csv")
    splits = prepare(Workspace(tmp_path / "w"), task, data_dir and tmp_path / data_dir, seed=1)
    assert all(len(splits[name]) for name in ("train", "validation", "test"))
