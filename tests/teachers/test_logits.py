"""Teacher logits: computed once, resumed by shards, and never used for other text or another teacher."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
import torch

import common.data.split
import common.teachers.load
from common.data.prepare import prepare
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.launch.launcher import Launcher
from common.store.artifact import artifact_at, folder_of, read_manifest
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.load import load_teacher
from common.teachers.logits import generate, load_logits
from common.training.models import only_teacher
from compression.augmentation.preprocess import preprocess
from compression.distillation.distill import distill

SST = load_task("sst-2")


@pytest.fixture
def paths(workspace):
    return Workspace(workspace)


def teacher_of(paths, task="sst-2"):
    return load_teacher(paths.model(task, "tiny-bert"), torch.device("cpu"), torch.float32)


def test_logits_are_the_teachers_row_by_row(paths):
    train = load_split(paths, SST, "train")
    logits = load_logits(paths, SST, "tiny-bert", "train")
    assert logits.shape == (len(train), 2)
    assert logits.dtype == np.float32
    teacher = teacher_of(paths)
    for row in (0, 7, len(train) - 1):
        alone = teacher.logits(train.take(np.array([row])))[0]
        assert np.allclose(alone, logits[row], atol=1e-5)


def test_logits_of_pairs_read_both_sentences(paths):
    task = load_task("qqp")
    train = load_split(paths, task, "train")
    logits = load_logits(paths, task, "tiny-bert", "train")
    swapped = type(train)(train.sentence1, train.sentence1, train.labels, train.source_rows)
    assert not np.allclose(teacher_of(paths, "qqp").logits(swapped), logits, atol=1e-4)


def test_missing_logits_say_what_to_run(paths):
    shutil.rmtree(paths.logits("sst-2", "tiny-bert", "train").parent)
    command = r"python preprocess\.py --task sst-2 --model-name tiny-bert --generate-loss processed"
    with pytest.raises(UserError, match=command):
        load_logits(paths, SST, "tiny-bert", "train")


COMMAND = r"run again: python preprocess\.py --task sst-2 --model-name tiny-bert --generate-loss processed"


def test_logits_of_other_rows_are_refused(paths, glue):
    logits = load_logits(paths, SST, "tiny-bert", "train")
    prepare(paths, SST, glue, seed=tiny.SEED + 1)
    with pytest.raises(UserError, match=f"logits of other rows than there are now; {COMMAND}"):
        load_logits(paths, SST, "tiny-bert", "train")
    prepare(paths, SST, glue, seed=tiny.SEED)
    assert np.array_equal(load_logits(paths, SST, "tiny-bert", "train"), logits)


def test_logits_of_another_teacher_are_refused(paths, encoder):
    finetune(tiny.finetune_settings(paths.root, "sst-2", encoder, max_epochs=1, force=True))
    with pytest.raises(UserError, match=f"logits of another teacher than tiny-bert is now; {COMMAND}"):
        load_logits(paths, SST, "tiny-bert", "train")


def test_distilling_refuses_stale_logits(workspace, paths, glue):
    prepare(paths, SST, glue, seed=tiny.SEED + 1)
    given = tiny.small(student_arch="ffn", embedding_type="hash", only_original_data=True)
    with pytest.raises(UserError, match="logits of other rows"):
        distill(tiny.compress_settings(task="sst-2", workspace=workspace, **given))


def test_logits_of_another_precision_are_built_again(paths):
    target = paths.logits("sst-2", "tiny-bert", "train")
    first, exact = artifact_at(target).key, load_logits(paths, SST, "tiny-bert", "train")
    generate(paths, SST, "tiny-bert", "train", "bf16", cpu=True)
    assert artifact_at(target).key != first
    assert not np.array_equal(load_logits(paths, SST, "tiny-bert", "train"), exact)
    generate(paths, SST, "tiny-bert", "train", "fp32", cpu=True)
    assert artifact_at(target).key == first
    assert np.array_equal(load_logits(paths, SST, "tiny-bert", "train"), exact)


def test_logits_can_be_used_where_the_teacher_is_not(workspace, paths):
    before = load_logits(paths, SST, "tiny-bert", "train")
    shutil.rmtree(workspace / "models")
    assert np.array_equal(load_logits(paths, SST, "tiny-bert", "train"), before)


class Counting:
    """A teacher that counts rows and can be stopped."""

    def __init__(self, teacher, stop_at=None):
        self.teacher, self.rows, self.stop_at = teacher, 0, stop_at

    def logits(self, split, advance):
        if self.stop_at is not None and self.rows >= self.stop_at:
            raise KeyboardInterrupt
        self.rows += len(split)
        return self.teacher.logits(split, advance)


@pytest.fixture
def row_groups_of_twenty(paths, glue, monkeypatch):
    monkeypatch.setattr(common.data.split, "ROW_GROUP_ROWS", 20)
    prepare(paths, SST, glue, seed=tiny.SEED, force=True)


def generated(paths, **given):
    return generate(paths, SST, "tiny-bert", "train", **{"precision": "fp32", "cpu": True, **given})


def test_a_stopped_generation_resumes(paths, row_groups_of_twenty, monkeypatch):
    train = load_split(paths, SST, "train")
    target = paths.logits("sst-2", "tiny-bert", "train")
    expected = pq.read_table(target)
    shutil.rmtree(target.resolve().parent)
    teachers = [Counting(teacher_of(paths), stop_at=40), Counting(teacher_of(paths)), Counting(teacher_of(paths))]
    waiting = iter(teachers)
    monkeypatch.setattr(common.teachers.load, "load_teacher", lambda *given: next(waiting))
    with pytest.raises(KeyboardInterrupt):
        generated(paths)
    assert not target.exists()
    assert len(list(tiny.work_folder(paths.root).glob("*.parquet"))) == 2
    generated(paths)
    assert teachers[1].rows == len(train) - 40
    table = pq.read_table(target)
    assert table.num_rows == len(train)
    for name in expected.column_names:
        assert np.allclose(table[name], expected[name], atol=1e-5)
    assert not list((paths.root / "store").glob("*.work"))
    generated(paths)
    assert list(waiting) == teachers[2:]  # up to date: no teacher was loaded
    assert load_logits(paths, SST, "tiny-bert", "train").shape == (len(train), 2)


def test_other_workers_write_the_same_bytes(paths, row_groups_of_twenty):
    expected = generated(paths, force=True).read_bytes()
    assert generated(paths, force=True, launcher=Launcher("processes", 2)).read_bytes() == expected


def test_a_damaged_logits_file_is_named_and_computed_again(paths, workspace):
    target = paths.logits("sst-2", "tiny-bert", "train")
    whole = target.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"train\.parquet: damaged"):
        load_logits(paths, SST, "tiny-bert", "train")
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", generate_loss=("processed",)))
    assert target.read_bytes() == whole


def test_the_manifest_names_rows_and_teacher(paths):
    manifest = read_manifest(folder_of(paths.logits("sst-2", "tiny-bert", "train")))
    assert manifest.inputs["rows"] == artifact_at(paths.splits("sst-2")).key
    assert manifest.inputs["teacher"] == artifact_at(paths.model("sst-2", "tiny-bert")).key


def test_a_student_gives_no_logits(workspace):
    given = tiny.small(student_arch="ffn", embedding_type="hash", model_name="s")
    distill(tiny.compress_settings(task="sst-2", workspace=workspace, **given))
    with pytest.raises(UserError, match="s is a student"):
        preprocess(tiny.prepare_settings(workspace, "sst-2", generate_loss=("processed",), model_name="s"))


def test_of_several_teachers_one_must_be_named(paths):
    assert only_teacher(paths, SST) == "tiny-bert"
    paths.model("sst-2", "other").symlink_to("tiny-bert")
    with pytest.raises(UserError, match=r"several teachers for sst-2 \(other, tiny-bert\)"):
        only_teacher(paths, SST)


def test_without_a_teacher_finetune_is_named(tmp_path):
    with pytest.raises(UserError, match=r"run: python finetune\.py --task sst-2"):
        only_teacher(Workspace(tmp_path), SST)
