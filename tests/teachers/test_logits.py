"""Teachers' logits and states: computed once, resumed by shards, and never used for other text or another teacher."""

import functools
import pickle
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
import torch

import common.data.split
import common.devices
import common.teachers.load
from common.data.prepare import prepare
from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.launch.launcher import Launcher
from common.launch.shards import run_part
from common.store.artifact import artifact_at, folder_of, read_manifest
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.load import load_teacher
from common.teachers.logits import generate, load_logits, open_teacher
from common.training.models import only_teacher
from compression.augmentation.preprocess import preprocess
from compression.distillation.distill import distill

SST = load_task("sst-2")
COMMAND = r"python preprocess\.py --task sst-2 --model-name tiny-bert --generate-loss processed"


@pytest.fixture
def paths(workspace):
    return Workspace(workspace)


@pytest.fixture
def target(paths):
    return paths.logits("sst-2", "tiny-bert", "train")


def teacher_of(paths, task="sst-2"):
    return load_teacher(paths.model(task, "tiny-bert"), torch.device("cpu"), torch.float32)


def loaded(paths):
    return load_logits(paths, SST, "tiny-bert", "train")


def generated(paths, precision="fp32", **given):
    about = {"launcher": Launcher(), "cpu": True, "force": False, "folds": None, **given}
    return generate(paths, SST, "tiny-bert", "train", precision, **about)


def test_logits_are_the_teachers_row_by_row(prepared):
    paths = Workspace(prepared)
    train, logits, teacher = load_split(paths, SST, "train"), loaded(paths), teacher_of(paths)
    assert logits.shape == (len(train), 2)
    assert logits.dtype == np.float32
    for row in (0, 7, len(train) - 1):
        assert np.allclose(teacher.logits(train.take(np.array([row])))[0], logits[row], atol=1e-5)


def test_logits_of_pairs_read_both_sentences(prepared):
    paths, task = Workspace(prepared), load_task("qqp")
    train = load_split(paths, task, "train")
    logits = load_logits(paths, task, "tiny-bert", "train")
    swapped = type(train)(train.sentence1, train.sentence1, train.labels, train.source_rows)
    assert not np.allclose(teacher_of(paths, "qqp").logits(swapped), logits, atol=1e-4)


@pytest.mark.parametrize("name", ["sst-2", "qqp"])
def test_states_are_one_padded_batch_and_leave_the_teacher_as_it_was(prepared, name):
    paths = Workspace(prepared)
    teacher, train = teacher_of(paths, name), load_split(paths, load_task(name), "train")
    before = teacher.logits(train)
    rows = train.take(np.array([3, 0, 40, 17]))
    states = teacher.states(rows)
    assert np.array_equal(teacher.logits(train), before)
    assert (len(states.hidden), len(states.attention)) == (2, 1)
    assert states.hidden[0].shape[:2] == (4, int(states.lengths.max()))
    for row, length in enumerate(states.lengths.tolist()):
        alone = teacher.states(rows.take(np.array([row])))
        assert alone.lengths.tolist() == [length]
        assert torch.allclose(states.hidden[-1][row, :length], alone.hidden[-1][0], atol=1e-5)
        attention = states.attention[0][row, :, :length, :length]
        assert torch.allclose(attention, alone.attention[0][0], atol=1e-5)
        assert torch.allclose(attention.sum(-1), torch.ones(()), atol=1e-5)


def test_for_missing_logits_the_command_is_named(paths, target):
    shutil.rmtree(target.parent)
    with pytest.raises(UserError, match=f"run: {COMMAND}"):
        loaded(paths)


def test_logits_of_other_rows_are_refused(paths, glue):
    logits = loaded(paths)
    prepare(paths, SST, glue, seed=tiny.SEED + 1)
    with pytest.raises(UserError, match=f"the rows changed after these logits were computed; run again: {COMMAND}"):
        loaded(paths)
    given = tiny.small(student_arch="ffn", embedding_type="hash", only_original_data=True)
    with pytest.raises(UserError, match="the rows changed"):
        distill(tiny.compress_settings(task="sst-2", workspace=paths.root, **given))
    prepare(paths, SST, glue, seed=tiny.SEED)
    assert np.array_equal(loaded(paths), logits)


def test_logits_of_another_teacher_are_refused(paths, encoder):
    finetune(tiny.finetune_settings(paths.root, "sst-2", encoder, max_epochs=1, force=True))
    with pytest.raises(UserError, match=f"tiny-bert changed after these logits were computed; run again: {COMMAND}"):
        loaded(paths)


def test_logits_of_another_precision_are_built_again(paths, target):
    first, exact = artifact_at(target).key, loaded(paths)
    generated(paths, "bf16")
    assert artifact_at(target).key != first
    assert not np.array_equal(loaded(paths), exact)
    assert np.abs(loaded(paths) - exact).max() < 0.05 * exact.std()
    generated(paths)
    assert artifact_at(target).key == first
    assert np.array_equal(loaded(paths), exact)


def precision_of(target):
    return read_manifest(folder_of(target)).settings["precision"]


def hardware(monkeypatch, bf16):
    """Let this machine multiply bf16, or not."""
    monkeypatch.setattr(common.devices, "_has_bf16", lambda device: bf16)


@pytest.mark.parametrize(("bf16", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_the_machines_precision_where_there_are_no_logits(paths, target, monkeypatch, bf16, expected):
    shutil.rmtree(target.resolve().parent)
    hardware(monkeypatch, bf16)
    generated(paths, "auto")
    assert precision_of(target) == expected


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_auto_keeps_logits_that_are_there_whatever_the_machine(paths, target, monkeypatch, precision):
    generated(paths, precision)
    key = artifact_at(target).key
    hardware(monkeypatch, precision != "bf16")
    generated(paths, "auto")
    assert artifact_at(target).key == key


def test_auto_finds_logits_whose_name_is_gone(paths, target, monkeypatch):
    key = artifact_at(target).key
    target.unlink()
    hardware(monkeypatch, True)
    generated(paths, "auto")
    assert artifact_at(target).key == key


def test_a_stopped_generation_goes_on_in_its_precision_on_another_machine(paths, target, glue, monkeypatch):
    monkeypatch.setattr(common.data.split, "ROW_GROUP_ROWS", 20)
    prepare(paths, SST, glue, seed=tiny.SEED, force=True)
    shutil.rmtree(target.resolve().parent)
    generated(paths, "bf16")
    expected = target.read_bytes()
    shutil.rmtree(target.resolve().parent)
    hardware(monkeypatch, True)
    with monkeypatch.context() as patch:
        patch.setattr(common.teachers.load, "load_teacher", lambda *given: Counting(load_teacher(*given), stop_at=40))
        with pytest.raises(KeyboardInterrupt):
            generated(paths, "auto")
    hardware(monkeypatch, False)
    generated(paths, "auto")
    assert precision_of(target) == "bf16"
    assert target.read_bytes() == expected
    assert not list((paths.root / "store").glob("*.work"))


class Elsewhere:
    """A launcher that keeps the jobs, as if another machine did them."""

    def run(self, function, jobs, advance):
        self.jobs = list(jobs)
        raise KeyboardInterrupt


def test_the_machine_of_the_command_need_not_have_the_precision_of_its_workers(paths, target):
    launcher = Elsewhere()
    with pytest.raises(KeyboardInterrupt):
        generated(paths, "fp16", launcher=launcher)
    assert {job.work.args[-1] for job in launcher.jobs} == {"fp16"}
    with pytest.raises(UserError, match=r"fp16 needs a GPU; give --precision bf16 or fp32$"):
        run_part(launcher.jobs[0], lambda rows: None)


def test_logits_can_be_used_where_the_teacher_is_not(paths):
    before = loaded(paths)
    shutil.rmtree(paths.root / "models")
    assert np.array_equal(loaded(paths), before)


class Counting:
    """A teacher that counts rows and can be stopped."""

    def __init__(self, teacher, stop_at=None):
        self.teacher, self.rows, self.stop_at = teacher, 0, stop_at

    def logits(self, split, advance):
        if self.stop_at is not None and self.rows >= self.stop_at:
            raise KeyboardInterrupt
        self.rows += len(split)
        return self.teacher.logits(split, advance)


def test_a_stopped_generation_resumes(paths, target, glue, monkeypatch):
    monkeypatch.setattr(common.data.split, "ROW_GROUP_ROWS", 20)
    prepare(paths, SST, glue, seed=tiny.SEED, force=True)
    count, expected = len(load_split(paths, SST, "train")), pq.read_table(target)
    shutil.rmtree(target.resolve().parent)
    teachers = [Counting(teacher_of(paths), stop_at=40), Counting(teacher_of(paths))]
    waiting = iter(teachers)
    monkeypatch.setattr(common.teachers.load, "load_teacher", lambda *given: next(waiting))
    with pytest.raises(KeyboardInterrupt):
        generated(paths)
    assert not target.exists()
    assert len(list(tiny.work_folder(paths.root).glob("*.parquet"))) == 2
    generated(paths)
    assert teachers[1].rows == count - 40
    table = pq.read_table(target)
    assert table.num_rows == count
    for name in expected.column_names:
        assert np.allclose(table[name], expected[name], atol=1e-5)
    assert not list((paths.root / "store").glob("*.work"))
    generated(paths)  # up to date: a third teacher would be missing
    assert loaded(paths).shape == (count, 2)


def test_work_travels_to_other_processes(prepared):
    paths = Workspace(prepared)
    train = load_split(paths, SST, "train")
    work = functools.partial(open_teacher, paths.model("sst-2", "tiny-bert").resolve(), True, "fp32")
    table = pickle.loads(pickle.dumps(work))()(train, 0, lambda rows: None)
    assert table.equals(pq.read_table(paths.logits("sst-2", "tiny-bert", "train")))


def test_a_damaged_logits_file_is_named_and_computed_again(paths, target):
    whole = target.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"logits\.parquet: damaged"):
        loaded(paths)
    preprocess(tiny.prepare_settings(paths.root, "sst-2", precision="fp32", generate_loss=("processed",)))
    assert target.read_bytes() == whole


def test_the_manifest_names_rows_and_teacher(prepared):
    paths = Workspace(prepared)
    inputs = read_manifest(folder_of(paths.logits("sst-2", "tiny-bert", "train"))).inputs
    assert inputs["rows"] == artifact_at(paths.splits("sst-2")).key
    assert inputs["teacher"] == artifact_at(paths.model("sst-2", "tiny-bert")).key


def test_a_student_has_no_logits(workspace):
    given = tiny.small(student_arch="ffn", embedding_type="hash", model_name="s", epochs=1)
    distill(tiny.compress_settings(task="sst-2", workspace=workspace, **given))
    with pytest.raises(UserError, match="s is a student"):
        preprocess(tiny.prepare_settings(workspace, "sst-2", generate_loss=("processed",), model_name="s"))


def test_of_several_teachers_one_must_be_named(paths, tmp_path):
    assert only_teacher(paths, SST) == "tiny-bert"
    paths.model("sst-2", "other").symlink_to("tiny-bert")
    with pytest.raises(UserError, match=r"several teachers for sst-2 \(other, tiny-bert\)"):
        only_teacher(paths, SST)
    with pytest.raises(UserError, match=r"run: python finetune\.py --task sst-2"):
        only_teacher(Workspace(tmp_path / "empty"), SST)
