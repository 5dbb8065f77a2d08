"""Transformer students that start from a teacher's layers: with all of them, they are the teacher."""

import json

import numpy as np
import pytest
import tiny
import torch
from compression.students.teacher_start import layers_to_copy, start_from_teacher

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.load import load_teacher
from common.training.models import read_config
from compression.distillation.distill import distill
from compression.students.scoring import encode_split
from compression.students.settings import StudentSettings
from compression.students.student import Student
from compression.tokenizers.wordpiece import teacher_vocabulary

CPU = torch.device("cpu")


@pytest.fixture
def teacher(prepared):
    return prepared / "models/sst-2/tiny-bert"


def shape(teacher, **more):
    config = json.loads((teacher / "huggingface/config.json").read_text())
    own = {"encoder_hidden_dim": config["hidden_size"], "embedding_dim": config["hidden_size"], "dropout": 0.0}
    own |= {"heads": config["num_attention_heads"], "intermediate_dim": config["intermediate_size"], "max_tokens": 40}
    return {**own, "layers": config["num_hidden_layers"], "embedding_type": "wordpiece", "cls_hidden_dim": 5, **more}


def started(teacher, arch, layers, pair=False, **more):
    tokenizer = teacher_vocabulary(teacher).tokenizer(40)
    settings = StudentSettings(**shape(teacher, vocab_size=len(tokenizer.pieces), **more))
    torch.manual_seed(1)
    student = Student(arch, settings, 2, pair).eval()
    start_from_teacher(student, settings, layers, teacher)
    return student, tokenizer


def traced(student, tokenizer, split):
    with torch.no_grad():
        return student.traced(encode_split(tokenizer, split).batch(np.arange(len(split)), CPU))[1]


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_with_all_its_layers_a_student_is_the_teacher(prepared, task):
    folder = prepared / "models" / task / "tiny-bert"
    split = load_split(Workspace(prepared), load_task(task), "test").take(np.arange(9))
    theirs = load_teacher(folder, CPU, torch.float32).states(split)
    depth = len(theirs.attention)
    student, tokenizer = started(folder, "transformer", range(depth), task == "qqp")
    ours = traced(student, tokenizer, split)
    assert torch.equal(ours.lengths, theirs.lengths)
    mask = torch.arange(int(ours.lengths.max())) < ours.lengths[:, None]
    for one, other in zip(ours.hidden, theirs.hidden, strict=True):
        assert torch.allclose(one[mask], other[mask], atol=1e-5)
    for one, other in zip(ours.attention, theirs.attention, strict=True):
        assert torch.allclose(one.transpose(1, 2)[mask], other.transpose(1, 2)[mask], atol=1e-5)


def test_a_full_rank_factorisation_is_the_embedding_itself(teacher, prepared):
    """One dimension short of full, little is lost; a recursive student has the one layer it was given."""
    width = shape(teacher)["encoder_hidden_dim"]
    split = load_split(Workspace(prepared), load_task("sst-2"), "test").take(np.arange(5))
    whole = traced(*started(teacher, "recursive", [0], iterations=1), split).hidden[-1]
    less = traced(*started(teacher, "recursive", [0], iterations=1, embedding_dim=width - 1), split).hidden[-1]
    rank_1 = traced(*started(teacher, "recursive", [0], iterations=1, embedding_dim=1), split).hidden[-1]
    assert (less - whole).abs().mean() < 0.3 * (rank_1 - whole).abs().mean()


def test_maps_of_layers(tmp_path):
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface/config.json").write_text('{"num_hidden_layers": 6}')
    assert layers_to_copy(["first"], 2, tmp_path) == [0, 1]
    assert layers_to_copy(["last"], 2, tmp_path) == [4, 5]
    assert layers_to_copy(["every-other"], 3, tmp_path) == [0, 2, 4]
    assert layers_to_copy(["5", "0"], 2, tmp_path) == [5, 0]
    for how, depth, message in (
        (["every-other"], 4, "3 of the teacher's 6 layers for 4 of the student's"),
        (["last"], 7, "layers for 7 of the student's"),
        (["6"], 1, "1 of the teacher's 6 layers for 1"),
        (["middle"], 1, "or numbers of layers"),
    ):
        with pytest.raises(UserError, match=message):
            layers_to_copy(how, depth, tmp_path)


def distilled(workspace, **given):
    values = {"student_arch": "transformer", "init_from_teacher": ["first"], "batch_size": 16, "lr": 1e-30, "epochs": 1}
    return distill(tiny.compress_settings(task="sst-2", workspace=workspace, **{**values, **given}))


def test_distilling_starts_there_and_says_what_does_not_fit(workspace, teacher):
    right = shape(teacher, layers=1)
    config = read_config(distilled(workspace, **right))
    assert config.student["vocab_size"] == len(teacher_vocabulary(teacher).tokenizer(40).pieces)
    for wrong, message in (
        ({"student_arch": "ffn"}, "a ffn has no layers"),
        ({"embedding_type": "char"}, "needs the teacher's word pieces"),
        ({"heads": 1}, "set --heads"),
        ({"encoder_hidden_dim": 2 * right["encoder_hidden_dim"]}, "set --hidden-dim"),
        ({"alpha": 1.0, "only_original_data": True}, "no teacher takes part"),
    ):
        with pytest.raises(UserError, match=message):
            distilled(workspace, **{**right, **wrong, "model_name": "other"})
