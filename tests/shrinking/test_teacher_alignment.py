"""Tuning aligned with the teacher: by the losses of distillation, for transformers alone, and known by its key."""

import json

import pytest
import shrunk
import tiny
from stops import stopped_in_step

from common.errors import UserError
from common.training.checkpoint import load_weights
from common.training.models import read_config
from compression.shrinking.quantize import Quantize
from compression.shrinking.settings import CompressSettings

STILL = {"tune_epochs": 1, "tune_lr": 1e-30, "alpha": 0.0}
"""Tuning that leaves the weights as they are, so that its loss is that of the student before it."""


@pytest.fixture
def workspace(prepared, tmp_path):
    return tiny.copy_workspace(prepared, tmp_path / "workspace")


def shape(workspace, **more):
    """Settings of a student with the shape of the teacher, whose layers it starts from."""
    config = json.loads((workspace / "models/sst-2/tiny-bert/huggingface/config.json").read_text())
    width, heads = config["hidden_size"], config["num_attention_heads"]
    own = {"student_arch": "transformer", "embedding_type": "wordpiece", "embedding_dim": width, "heads": heads}
    own |= {"encoder_hidden_dim": width, "intermediate_dim": config["intermediate_size"], "layers": 1, "dropout": 0.0}
    return {**own, "alpha": 0.0, "lr": 1e-30, "init_from_teacher": ("first",), "model_name": "whole", **more}


def whole(workspace, **more):
    """A student that is the whole teacher."""
    return shrunk.compressed(workspace, "distill", **shape(workspace, **more))[0]


def tuned(workspace, action="quantize", student="whole", **given):
    """Folder of a student that is tuned after an action."""
    values = {"student_arch": read_config(workspace / "models/sst-2" / student).arch, "force": True}
    return shrunk.shrunk(workspace, action, student, **{"model_name": "tuned", **values, **STILL, **given})


def loss(*args, **given):
    return tiny.read_history(tuned(*args, **given))[0]["loss"]


@pytest.mark.parametrize("action", ["quantize", "prune", "factorize"])
@pytest.mark.parametrize("align", ["align_hidden", "align_attention", "align_embedding", "align_last"])
def test_the_alignment_loss_is_added_to_that_of_the_logits(workspace, action, align):
    whole(workspace)
    given = {"quantizer": "ternary"} if action == "quantize" else {}
    logits, once, twice = (loss(workspace, action, **given, **{align: weight}) for weight in (0.0, 1.0, 2.0))
    assert once > logits + 1e-4
    assert twice - logits == pytest.approx(2 * (once - logits), rel=1e-4)


@pytest.mark.parametrize("arch", ["transformer", "recursive"])
def test_nothing_is_left_to_align_in_a_whole_teacher_of_16_bits(workspace, arch):
    whole(workspace, student_arch=arch, iterations=1)
    given = {"align_hidden": 1.0, "align_attention": 1.0, "align_embedding": 1.0}
    assert loss(workspace, bits=16, **given) == pytest.approx(loss(workspace, bits=16), rel=1e-4)


def test_layers_and_heads_are_those_left_after_pruning(workspace):
    whole(workspace, layers=2, init_from_teacher=("0", "0"))
    assert loss(workspace, "prune", drop_layers=1, align_hidden=1.0, layer_map=("0",)) > 0
    with pytest.raises(UserError, match=r"^--layer-map 0 0: 2 of the teacher's 1 layers for 1 of the student's"):
        tuned(workspace, "prune", drop_layers=1, align_hidden=1.0, layer_map=("0", "0"))
    with pytest.raises(UserError, match=r"needs as many heads as tiny-bert has: give --heads 2 \(the student has 1"):
        tuned(workspace, "prune", prune_heads=0.5, align_attention=1.0, layer_map=("0", "0"))


def test_students_that_cannot_be_aligned_are_refused(workspace):
    shrunk.compressed(workspace, "distill", student_arch="ffn", embedding_type="hash", model_name="ffn")
    with pytest.raises(UserError, match=r"^--align-last is for transformers: a ffn has no layers like those of a t"):
        tuned(workspace, student="ffn", align_last=1.0)
    whole(workspace)
    with pytest.raises(UserError, match=r"^--align-hidden needs a teacher, but none is used"):
        tuned(workspace, align_hidden=1.0, alpha=1.0)
    with pytest.raises(UserError, match=r"^whole has other word pieces than tiny-bert"):
        tuned(workspace, "prune", align_hidden=1.0, prune_vocabulary=2)
    assert tuned(workspace, align_hidden=1.0, guide="student").exists()


def test_alignment_is_in_the_key_and_the_name_only_if_something_is_aligned():
    settings = {"task": "sst-2", "teacher": "t", "quantizer": "ternary", "tune_epochs": 2}

    def record(**given):
        asked = CompressSettings(**settings, **given)
        return Quantize.of(asked, tiny.ROOT).model_dump(mode="json"), Quantize.suffix(asked)

    usual = record()
    assert usual[1] == "+qt-t2"
    assert usual[0]["tuning"]["align"] is None
    assert record(hidden_loss="cosine") == usual
    assert record(align_hidden=1.0, guide="student")[0]["tuning"]["align"] is None
    aligned = [record(align_hidden=1.0), record(align_hidden=2.0), record(align_hidden=1.0, hidden_loss="cosine")]
    assert len({str(each) for each in aligned}) == len({name for _, name in aligned}) == 3
    assert aligned[0][0]["tuning"]["align"]["align_hidden"] == 1.0
    assert record(align_hidden=1.0, align_first=1) == aligned[0]


def test_a_temperature_is_in_no_key_of_a_loss_without_a_softmax():
    def tuning(loss, temperature):
        settings = CompressSettings(task="sst-2", teacher="t", tune_epochs=1, loss=loss, temperature=temperature)
        return Quantize.of(settings, tiny.ROOT).tuning

    assert tuning("mse", 1.0) == tuning("mse", 2.0)
    assert tuning("kl", 1.0) != tuning("kl", 2.0)


def test_a_later_command_aligns_as_the_distillation_did_unless_told_otherwise(workspace):
    recipe = {"quantizer": "ternary", "tune_epochs": 1, "batch_size": 16}
    chain = shrunk.compressed(workspace, "distill", "quantize", **shape(workspace, align_hidden=1.0, **recipe))

    def quantized(*words):
        flags = ["--compression-actions", "quantize", "--quantizer", "ternary", "--tune-epochs", "1"]
        return shrunk.smaller(workspace, "whole", *flags, "--seed", str(tiny.SEED), *words)

    assert quantized() == chain[1]
    plain = quantized("--align-hidden", "0")
    assert plain.name == "whole+qt-t1"
    assert load_weights(plain).keys() == load_weights(chain[1]).keys()
    assert read_config(plain).key != read_config(chain[1]).key


def test_an_aligned_tuning_is_resumed_after_a_stop(workspace):
    """With another width than the teacher's: the projection is trained, and restored after a stop."""
    narrow = {"encoder_hidden_dim": 8, "embedding_dim": 8, "init_from_teacher": (), "lr": 0.01}
    whole(workspace, **narrow)
    given = {"quantizer": "ternary", "tune_epochs": 2, "tune_lr": 0.01, "align_hidden": 1.0, "align_attention": 1.0}
    once = (tuned(workspace, **given) / "model.safetensors").read_bytes()
    for stop in (5, 4):
        with stopped_in_step(stop):
            tuned(workspace, **given)
    assert (tuned(workspace, **given) / "model.safetensors").read_bytes() == once


def test_a_teacher_of_logits_alone_cannot_be_aligned_with(workspace):
    whole(workspace)
    tiny.edit_facts(workspace / "models/sst-2/tiny-bert", imported=True)
    with pytest.raises(UserError, match=r"^--align-hidden: tiny-bert was imported as logits, and has neither"):
        tuned(workspace, align_hidden=1.0)
