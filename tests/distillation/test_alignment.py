"""Layer-to-layer distillation: what is compared with what, and training that aligns."""

import json

import numpy as np
import pytest
import tiny
import torch
from stops import stopped_in_step

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from compression.distillation.alignment import Aligner, AlignmentTeacher, aligned_layers
from compression.distillation.distill import distill
from compression.shrinking.settings import CompressSettings
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
    """Settings of a student with the teacher's shape."""
    config = json.loads((folder / "huggingface/config.json").read_text())
    own = {"encoder_hidden_dim": config["hidden_size"], "embedding_dim": config["hidden_size"], "dropout": 0.0}
    own |= {"heads": config["num_attention_heads"], "intermediate_dim": config["intermediate_size"]}
    own |= {"student_arch": "transformer", "layers": config["num_hidden_layers"], "embedding_type": "wordpiece"}
    return {**own, "max_tokens": TOKENS, "cls_hidden_dim": 5, **more}


def settings_of(**given):
    return CompressSettings(**{"task": "sst-2", "align_hidden": 1.0, **given})


def test_layers_may_be_numbers():
    assert settings_of(layer_map=[0, 2]).layer_map == settings_of(layer_map=("0", "2")).layer_map == ("0", "2")
    assert settings_of(init_from_teacher=1).init_from_teacher == ("1",)


def mapped(teacher_depth, depth, *how, **more):
    return aligned_layers(settings_of(layers=depth, layer_map=how or ("uniform",), **more), teacher_depth)


@pytest.mark.parametrize(
    ("given", "layers"),
    [
        ((12, 4), [2, 5, 8, 11]),  # TinyBERT's g(m) = 3m
        ((6, 4), [1, 2, 4, 5]),
        ((6, 6), [0, 1, 2, 3, 4, 5]),
        ((6, 1), [5]),
        ((6, 2, "last"), [4, 5]),
        ((6, 3, "0", "0", "5"), [0, 0, 5]),
    ],
)
def test_layer_maps(given, layers):
    assert mapped(*given) == layers


def test_layer_maps_count_iterations_and_are_empty_where_no_layers_are_compared():
    assert mapped(6, 1, "last", student_arch="recursive", iterations=3, heads=5) == [3, 4, 5]
    assert mapped(6, 7, align_hidden=0.0, align_embedding=1.0) == []


@pytest.mark.parametrize("how", [["uniform"], ["last"], ["0"] * 6, ["6"] * 7])
def test_layer_maps_that_do_not_fit_are_refused(how):
    with pytest.raises(UserError, match="of the teacher's 6 layers for 7 of the student's"):
        mapped(6, 7, *how)
    with pytest.raises(UserError, match="--layer-map middle: give uniform, last, or numbers"):
        mapped(6, 1, "middle")


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_a_student_that_is_the_teacher_has_nothing_left_to_align(prepared, task):
    folder = prepared / "models" / task / "tiny-bert"
    tokenizer = teacher_vocabulary(folder).tokenizer(TOKENS)
    weights = {"align_hidden": 1.0, "align_attention": 1.0, "align_embedding": 1.0}
    settings = settings_of(**weights, **shape(folder, vocab_size=tokenizer.vocab_size))
    torch.manual_seed(1)
    student = Student("transformer", settings.student(), 2, task == "qqp").eval()
    inside = AlignmentTeacher.load(folder, CPU)
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


@pytest.mark.slow
def test_epochs_that_only_align_are_resumed_after_a_stop(workspace, teacher):
    """With another width than the teacher's: the projection is trained, and restored after a stop."""
    width = 2 * shape(teacher)["heads"]
    given = shape(teacher, layers=1, encoder_hidden_dim=width, embedding_dim=width)
    given |= {"align_first": 2, "align_attention": 1.0, "align_embedding": 0.5, "hidden_loss": "cosine"}
    given |= {"model_name": "s", "force": True}
    whole = distilled(workspace, **given)
    weights = (whole / "model.safetensors").read_bytes()
    losses = [record["loss"] for record in history(whole)]
    assert len(losses) == 3
    assert losses[1] < losses[0]
    for stop in (5, 14, 14):  # once in each epoch: an attempt counts from where it goes on
        with stopped_in_step(stop):
            distilled(workspace, **given)
    again = distilled(workspace, **given)
    assert (again / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"student_arch": "bilstm"}, "--align: a bilstm has no layers"),
        ({"embedding_type": "char"}, "needs the teacher's word pieces"),
        ({"layer_map": ("7",)}, "--layer-map 7: 1 of the teacher's"),
        ({"heads": 1, "align_attention": 1.0}, "compares head with head"),
        ({"alpha": 1.0, "only_original_data": True}, "no teacher takes part"),
    ],
)
def test_what_cannot_be_aligned_is_refused(workspace, teacher, wrong, message):
    with pytest.raises(UserError, match=message):
        distilled(workspace, **{**shape(teacher, layers=1), **wrong})


def test_epochs_that_only_align_need_something_to_align():
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


def test_a_recipe_has_alignment_where_something_is_aligned():
    assert CompressSettings(task="sst-2", attention_loss="kl").recipe() == CompressSettings(task="sst-2").recipe()
    others = [{"align_hidden": 1.0}, {"align_hidden": 2.0}, {"align_hidden": 1.0, "attention_loss": "kl"}]
    recipes = [CompressSettings(task="sst-2", **setting).recipe() for setting in others]
    assert all(recipe.align for recipe in recipes)
    assert len({str(recipe) for recipe in recipes}) == 3
