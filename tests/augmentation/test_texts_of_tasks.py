"""Texts of other tasks: --augment tasks."""

import shutil

import pytest
import tiny
from few_pairs import augmented

from common.data.split import read_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from compression.augmentation.preprocess import preprocess
from compression.shrinking.chain import compress


@pytest.fixture
def paths(glue, tmp_path):
    """A workspace with the splits of four tasks."""
    for task in ("sst-2", "qqp", "mrpc", "cola"):
        preprocess(tiny.prepare_settings(tmp_path, task, data_dir=glue))
    return Workspace(tmp_path)


def train_of(paths, task):
    return read_split(paths.split(task, "train"))


def test_a_task_of_single_texts_reads_both_texts_of_pairs(paths):
    found = augmented(paths, "tasks", task="cola", augment_tasks=("qqp", "sst-2"))
    theirs = [*train_of(paths, "qqp").sentence1, *train_of(paths, "qqp").sentence2, *train_of(paths, "sst-2").sentence1]
    assert set(found.sentence1) <= set(theirs)
    assert len(set(found.sentence1)) == len(found) > 10
    assert not set(found.sentence1) & {
        text for name in ("train", "test") for text in read_split(paths.split("cola", name)).sentence1
    }
    assert set(found.labels.tolist()) == set(found.source_rows.tolist()) == {-1}
    assert found.sentence1 == sorted(found.sentence1, key=theirs.index)


def test_a_task_of_pairs_reads_pairs_of_tasks_that_are_prepared_first(glue, tmp_path):
    paths = Workspace(tmp_path)
    preprocess(tiny.prepare_settings(tmp_path, "mrpc", data_dir=glue))
    found = augmented(paths, "tasks", task="mrpc", augment_tasks=("mrpc", "qqp"), data_dir=glue)
    theirs = set(zip(*train_of(paths, "qqp").sentences(), strict=True))
    assert len(found) > 5
    assert set(zip(*found.sentences(), strict=True)) <= theirs


@pytest.mark.parametrize(
    ("task", "others", "message"),
    [
        ("qqp", ("sst-2",), "qqp reads pairs, but a row of sst-2 is a single text"),
        ("qqp", ("qqp",), "name other tasks than qqp"),
        ("sst-2", ("rotten-tomatoes",), "rotten-tomatoes has sentences of sst-2's validation and test"),
        ("ncbi-disease", ("sst-2",), "those of sst-2 are not"),
        ("sst-2", ("ax",), "ax has no training rows"),
        ("sst-2", ("none",), "unknown task 'none'"),
    ],
)
def test_other_tasks_that_do_not_suit_are_refused(paths, glue, task, others, message):
    if task == "ncbi-disease":
        preprocess(tiny.prepare_settings(paths.root, task, data_dir=glue))
    with pytest.raises(UserError, match=message):
        augmented(paths, "tasks", task=task, augment_tasks=others)


@pytest.mark.slow
def test_words_of_other_texts_are_tagged_by_the_teacher(glue, tmp_path, encoder):
    source = load_task("bc2gm").source
    shutil.copytree(glue / source.folder, tmp_path / "other" / source.folder)
    for file in source.files.values():  # the tiny corpora have the same sentences: these get another word at each end
        path = tmp_path / "other" / source.folder / file
        path.write_text(path.read_text().replace("\n\n", "\nwhatever\tO\n\n"))
    for task, folder in (("ncbi-disease", glue), ("bc2gm", tmp_path / "other")):
        preprocess(tiny.prepare_settings(tmp_path, task, data_dir=folder))
    paths = Workspace(tmp_path)
    finetune(tiny.finetune_settings(tmp_path, "ncbi-disease", encoder, max_epochs=1))
    found = augmented(
        paths, "tasks", task="ncbi-disease", augment_tasks=("bc2gm",), generate_loss=("processed", "augmented")
    )
    assert set(found.sentence1) <= set(train_of(paths, "bc2gm").sentence1)
    assert found.labels.shape[1] == 0
    given = {"student_arch": "bilstm", "embedding_type": "hash", "augmented": ("tasks",), "epochs": 1, "alpha": 0.5}
    (folder, *_) = compress(tiny.compress_settings(task="ncbi-disease", workspace=tmp_path, **tiny.small(**given)))
    assert folder.exists()
