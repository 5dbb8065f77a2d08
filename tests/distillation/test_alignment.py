"""Layer-to-layer distillation: what is compared with what, and training that aligns."""

import json

import numpy as np
import pytest
import tiny
import torch
from stops import stopped_in_step

from common.data.data import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.distillation.alignment import Aligner, InsideTeacher, aligned_layers
from compression.distillation.distill import distill, own_settings
from compression.settings import CompressSettings
from compression.students.scoring import encode_split
from compression.students.student import Student
from compression.students.teacher_start import start_from_teacher
from compression.tokenizers.teacher_vocabulary import teacher_vocabulary

CPU = torch.device("cpu")
TOKENS = 40


@pytest.fixture
def teacher(prepared):
    return prepared / "models/sst-2/tiny-bert"


def shape(folder, **more):
    told = json.loads((folder / "huggingface/config.json").read_text())
    own = {"encoder_hidden_dim": told["hidden_size"], "embedding_dim": told["hidden_size"], "dropout": 0.0}
    own |= {"heads": told["num_attention_heads"], "intermediate_dim": told["intermediate_size"], "max_tokens": TOKENS}
    own |= {"student_arch": "transformer", "layers": told["num_hidden_layers"], "embedding_type": "wordpiece"}
    return {**own, "cls_hidden_dim": 5, **more}


def settings_of(**given):
    return CompressSettings(**{"task": "sst-2", "align_hidden": 1.0, **given})


def test_layers_may_be_numbers():
    assert settings_of(layer_map=[0, 2]).layer_map == settings_of(layer_map=("0", "2")).layer_map == ("0", "2")
    assert settings_of(init_from_teacher=1).init_from_teacher == ("1",)


def test_layer_maps():
    def layers(there, depth, *how, **more):
        return aligned_layers(settings_of(layers=depth, layer_map=how or ("uniform",), **more), there)

    assert layers(12, 4) == [2, 5, 8, 11]  # TinyBERT's g(m) = 3m
    assert layers(6, 4) == [1, 2, 4, 5]
    assert layers(6, 6) == [0, 1, 2, 3, 4, 5]
    assert layers(6, 1) == [5]
    assert layers(6, 2, "last") == [4, 5]
    assert layers(6, 3, "0", "0", "5") == [0, 0, 5]
    assert layers(6, 1, "last", student_arch="recursive", iterations=3, heads=5) == [3, 4, 5]
    assert layers(6, 7, align_hidden=0.0, align_embedding=1.0) == []
    for how in (["uniform"], ["last"], ["0"] * 6, ["6"] * 7):
        with pytest.raises(UserError, match="of the teacher's 6 layers for 7 of the student's"):
            layers(6, 7, *how)
    with pytest.raises(UserError, match="--layer-map middle: give uniform, last, or numbers"):
        layers(6, 1, "middle")


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_a_student_that_is_the_teacher_has_nothing_left_to_align(prepared, task):
    folder = prepared / "models" / task / "tiny-bert"
    tokenizer = teacher_vocabulary(folder).tokenizer(TOKENS)
    weights = {"align_hidden": 1.0, "align_attention": 1.0, "align_embedding": 1.0}
    settings = settings_of(**weights, **shape(folder, vocab_size=tokenizer.vocab_size))
    torch.manual_seed(1)
    student = Student("transformer", settings.student(), 2, task == "qqp").eval()
    inside = InsideTeacher.load(folder, CPU)
    split = load_split(Workspace(prepared), load_task(task), "test").take(np.arange(9))
    batch = encode_split(tokenizer, split).batch(np.arange(9), CPU)

    def loss(**given):
        aligner = Aligner(settings.model_copy(update=given), inside)
        return aligner.loss(student.traced(batch)[1], aligner.states(batch)).item()

    assert loss() > 0.1
    start_from_teacher(student, settings.student(), range(settings.layers), folder)
    assert loss() < 1e-6
    with torch.no_grad():
        student.encoder.blocks[0].attention.query.weight.value.zero_()
    none = dict.fromkeys(weights, 0.0)
    assert [loss(**{**none, name: 1.0}) > 1e-6 for name in weights] == [True, True, False]


def distilled(workspace, **given):
    values = {"align_hidden": 1.0, "batch_size": 16, "lr": 1e-3, "epochs": 1, **given}
    return distill(tiny.compress_settings(task="sst-2", workspace=workspace, **values))


def history(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def test_epochs_that_align_first_choose_no_weights_and_are_gone_on_with_after_a_stop(workspace, teacher):
    """With another width than the teacher's: its projection is learned, and kept over a stop."""
    width = 2 * shape(teacher)["heads"]
    given = shape(teacher, layers=1, encoder_hidden_dim=width, embedding_dim=width)
    given |= {"align_first": 2, "align_attention": 1.0, "align_embedding": 0.5, "hidden_loss": "cosine"}
    whole = distilled(workspace, **given, model_name="whole")
    told = history(whole)
    assert [record["epoch"] for record in told] == [0, 1, 2]
    assert told[1]["loss"] < told[0]["loss"]
    for stop in (5, 14, 14):  # once in each epoch: an attempt counts from where it goes on
        with stopped_in_step(stop):
            distilled(workspace, **given, model_name="stopped")
    again = distilled(workspace, **given, model_name="stopped")
    assert (again / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_what_cannot_be_aligned_is_refused(workspace, teacher):
    right = shape(teacher, layers=1)
    for wrong, message in (
        ({"student_arch": "bilstm"}, "--align: a bilstm has no layers"),
        ({"embedding_type": "char"}, "needs the teacher's word pieces"),
        ({"layer_map": ("7",)}, "--layer-map 7: 1 of the teacher's"),
        ({"heads": 1, "align_attention": 1.0}, "compares head with head"),
        ({"alpha": 1.0, "only_original_data": True}, "no teacher takes part"),
    ):
        with pytest.raises(UserError, match=message):
            distilled(workspace, **{**right, **wrong})
    with pytest.raises(ValueError, match="--align-first: say what to align"):
        settings_of(align_hidden=0.0, align_first=1)


def test_a_teacher_that_cannot_give_attention_maps_says_why(workspace, teacher, monkeypatch):
    def refuse(model, kind):
        raise ValueError("this model has none that can be looked at")

    from transformers import PreTrainedModel

    monkeypatch.setattr(PreTrainedModel, "set_attn_implementation", refuse)
    with pytest.raises(UserError, match=r"bert gives no attention maps: this model has none .*--align-attention 0"):
        distilled(workspace, **shape(teacher, layers=1), align_attention=1.0)
    assert distilled(workspace, **shape(teacher, layers=1), align_attention=0.0).exists()


def test_what_means_nothing_to_a_student_makes_no_other_one():
    """So a student made before a setting came is found again."""
    plain = own_settings(CompressSettings(task="sst-2"))
    for setting in ({"heads": 3}, {"attention_loss": "kl"}, {"masked_lm_weight": 0.5}, {"corpus": "text.txt"}):
        assert own_settings(CompressSettings(task="sst-2", **setting)) == plain
    layered = {"task": "sst-2", "student_arch": "transformer", "encoder_hidden_dim": 12}
    assert own_settings(CompressSettings(**layered, heads=3)) != own_settings(CompressSettings(**layered, heads=4))
    aligned = [own_settings(CompressSettings(**layered, align_hidden=weight)) for weight in (0.0, 1.0, 2.0)]
    assert aligned[0] != aligned[1] != aligned[2]
