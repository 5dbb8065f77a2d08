"""Students that learn from validation's rows too, with the probabilities of a student that has not (--refit)."""

import json

import numpy as np
import pytest
import tiny
from learned_rows import distillation_text
from shrunk import compressed, logits, shrunk
from stages import score_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.training.models import read_config
from compression.augmentation.preprocess import preprocess
from compression.runtime import load

WORDS = {"student_arch": "ffn", "embedding_type": "ngrams", "vocab_size": 200, "max_tokens": 64}


def test_rows_of_validation_follow_those_of_train(workspace):
    task = load_task("sst-2")
    text, rows = distillation_text(
        tiny.compress_settings(task="sst-2", workspace=workspace, **tiny.small()), task, validation=True
    )
    parts = [load_split(Workspace(workspace), task, name) for name in ("train", "validation", "tinybert")]
    assert text.sentence1 == [sentence for part in parts for sentence in part.sentence1]
    assert [len(chosen) for chosen in rows.values()] == [len(part) for part in parts]


def test_a_student_keeps_its_last_epoch(workspace):
    (chosen,) = compressed(workspace, "distill", **WORDS, model_name="chosen")
    (folder,) = compressed(workspace, "distill", **WORDS, model_name="again", refit="chosen", epochs=3, patience=1)
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [record["kept"] for record in history] == [False, False, True]
    assert {record["score"] for record in history} == {None}
    config = read_config(folder)
    assert (config.select_on, config.learned_validation) == ("none", True)
    assert not read_config(chosen).learned_validation


def test_its_probabilities_have_the_temperature_of_the_student_before(workspace):
    compressed(workspace, "distill", "pack", **WORDS, model_name="chosen")
    compressed(workspace, "distill", **WORDS, model_name="again", refit="chosen", epochs=3)
    shrunk(workspace, "quantize", "again", model_name="small", tune_epochs=1)
    shrunk(workspace, "pack", "small")
    packed = [load(Workspace(workspace).packed("sst-2", name)) for name in ("chosen", "small")]
    assert packed[0].temperature == packed[1].temperature
    row = score_of(workspace, "small")
    assert row["validation"] is None
    assert row["calibration"]["temperature"] == pytest.approx(packed[0].temperature, abs=1e-3)
    with pytest.raises(UserError, match=r"--reject: small has learned from validation's rows"):
        shrunk(workspace, "pack", "small", reject=0.9)


def test_a_teacher_labels_validation_too(workspace):
    taught = {**WORDS, "alpha": 0.0, "teacher": "tiny-bert"}
    compressed(workspace, "distill", **taught, model_name="chosen")
    with pytest.raises(UserError, match="--generate-loss validation"):
        compressed(workspace, "distill", **taught, model_name="again", refit="chosen")
    rows = {"generate_loss": ("validation",), "model_name": "tiny-bert", "precision": "fp32"}
    preprocess(tiny.prepare_settings(workspace, "sst-2", **rows))
    (folder,) = compressed(workspace, "distill", **taught, model_name="again", refit="chosen")
    assert not np.array_equal(logits(folder, workspace), logits(workspace / "models/sst-2/chosen", workspace))


def test_only_a_student_without_validations_rows_is_a_measure(workspace):
    compressed(workspace, "distill", **WORDS, model_name="chosen")
    compressed(workspace, "distill", **WORDS, model_name="again", refit="chosen")
    for name in ("again", "tiny-bert"):
        with pytest.raises(UserError, match=f"--refit {name}: not a student that was trained without"):
            compressed(workspace, "distill", **WORDS, model_name="third", refit=name)
