"""A teacher's hidden states and attention maps, written once and read by rows."""

import json
import shutil

import numpy as np
import pytest
import tiny
import torch

import common.data.data
import common.teachers.states
from common.data.data import load_split, write_split
from common.data.tasks import load_task
from common.errors import UserError
from common.launch import Launcher
from common.store.workspace import Workspace
from common.teachers import load_teacher
from common.teachers.states import StatesWork, generate_states, load_states
from compression.augmentation.preprocess import preprocess

ROWS = [3, 0, 41, 17]


@pytest.fixture(params=["sst-2", "qqp"])
def task(request):
    return load_task(request.param)


@pytest.fixture
def paths(workspace, task, monkeypatch):
    """A workspace whose train split lies in parts of 20 rows, its states in files of 8."""
    monkeypatch.setattr(common.data.data, "PART_ROWS", 20)
    monkeypatch.setattr(common.teachers.states, "BLOCK_ROWS", 8)
    monkeypatch.setattr(common.teachers.states, "_BATCH", 3)
    paths = Workspace(workspace)
    write_split(paths.split(task.name, "train"), load_split(paths, task, "train"), {})
    return paths


def teacher_of(paths, task):
    return load_teacher(paths.model(task.name, "tiny-bert"), torch.device("cpu"), torch.float32)


def generated(paths, task, launcher=None, force=False):
    work = StatesWork(paths.model(task.name, "tiny-bert"), cpu=True, seed=tiny.SEED)
    source = paths.split(task.name, "train")
    return generate_states(paths, task, "processed", source, work, launcher or Launcher(), force)


def test_states_are_the_teachers(paths, task):
    train = load_split(paths, task, "train")
    assert generated(paths, task) == len(train)
    states = load_states(paths, task, "tiny-bert", "train", ROWS)
    expected = teacher_of(paths, task).states(train.take(np.array(ROWS)))
    assert states.lengths.tolist() == expected.lengths.tolist()
    assert len(states.hidden) == len(expected.hidden) == 2
    assert len(states.attention) == len(expected.attention) == 1
    for i, length in enumerate(expected.lengths.tolist()):
        for made, right in zip(states.hidden, expected.hidden, strict=True):
            assert torch.allclose(made[i, :length], right[i, :length], atol=5e-3)
            assert not made[i, length:].any()
        for made, right in zip(states.attention, expected.attention, strict=True):
            assert torch.allclose(made[i, :, :length, :length], right[i, :, :length, :length], atol=1e-3)
    assert states.attention[0].sum(-1)[1, :, : states.lengths[1]] == pytest.approx(1, abs=2e-3)


def test_asking_for_states_leaves_the_teacher_as_it_was(paths, task):
    teacher, train = teacher_of(paths, task), load_split(paths, task, "train")
    before = teacher.logits(train)
    teacher.states(train.take(np.arange(3)))
    assert np.array_equal(teacher.logits(train), before)


def test_a_stopped_run_goes_on_and_a_finished_one_is_kept(paths, task, monkeypatch):
    generated(paths, task)
    folder = paths.root / "data" / task.name / "states" / "tiny-bert" / "train"
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.rmtree(folder)
    written, write = [], common.teachers.states.save_file

    def failing(tensors, path):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        write(tensors, path)

    monkeypatch.setattr(common.teachers.states, "save_file", failing)
    with pytest.raises(KeyboardInterrupt):
        generated(paths, task)
    assert not folder.exists()
    monkeypatch.setattr(common.teachers.states, "save_file", lambda *given: written.append(0) or write(*given))
    generated(paths, task)
    assert len(written) == len(expected) - 1  # beside the blocks there is one record
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected
    assert [path.name for path in folder.parent.iterdir()] == ["train"]
    generated(paths, task)
    assert len(written) == len(expected) - 1


@pytest.mark.parametrize("task", ["sst-2"], indirect=True)
def test_another_process_writes_the_same_bytes(paths, task):
    generated(paths, task)
    folder = paths.root / "data" / task.name / "states" / "tiny-bert" / "train"
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    generated(paths, task, Launcher("processes", 1), force=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected


def test_missing_states_say_what_to_run(paths, task):
    with pytest.raises(UserError, match=r"run: python preprocess\.py .* --teacher-states train"):
        load_states(paths, task, "tiny-bert", "train", ROWS)


def test_states_of_another_teacher_or_text_are_made_anew(paths, task):
    generated(paths, task)
    record = paths.root / "data" / task.name / "states" / "tiny-bert" / "train" / "states.json"
    before = json.loads(record.read_text())
    train = load_split(paths, task, "train")
    write_split(paths.split(task.name, "train"), train.take(np.arange(30)), {})
    assert generated(paths, task) == 30
    after = json.loads(record.read_text())
    assert after["text"] != before["text"]
    assert after["teacher"] == before["teacher"]
    assert len(list(record.parent.iterdir())) == 1 + 3 + 2


def test_the_command_writes_them(workspace):
    given = tiny.prepare_settings(workspace, "sst-2", teacher_states=("validation",))
    rows = preprocess(given)
    paths, task = Workspace(workspace), load_task("sst-2")
    assert rows == {"--teacher-states validation": len(load_split(paths, task, "validation"))}
    states = load_states(paths, task, "tiny-bert", "validation", [0, 1])
    assert states.hidden[0].dtype == torch.float32
