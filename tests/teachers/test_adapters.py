"""Adapter tuning: the encoder stays as it is, little is saved, and the two find together again."""

import json
import shutil

import numpy as np
import pytest
import tiny
import torch

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.load import load_teacher
from common.training.checkpoint import load_tensors, save_tensors
from common.training.models import load_weights, read_config
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.evaluation.sizes import measure
from compression.settings import CompressSettings, defaults_for
from compression.shrinking.chain import compress

CPU = torch.device("cpu")
WIDTH = 3


@pytest.fixture
def own_encoder(encoder, tmp_path):
    return shutil.copytree(encoder, tmp_path / "encoder")


def tuned(workspace, encoder, **given):
    return finetune(tiny.finetune_settings(workspace, "sst-2", encoder, model_name="adapted", adapters=WIDTH, **given))


def test_only_adapters_and_head_are_trained_and_saved(workspace, own_encoder):
    folder = tuned(workspace, own_encoder)
    files = {path.name for path in (folder / "huggingface").iterdir()}
    assert "adapters.safetensors" in files
    assert "model.safetensors" not in files
    saved, _ = load_tensors(folder / "huggingface/adapters.safetensors")
    # Two adapters of 16 units in the one layer, and the head: 2 * (16 * 3 + 3 + 3 * 16 + 16) + 16 * 2 + 2.
    assert sum(tensor.numel() for tensor in saved.values()) == 2 * (16 * 3 + 3 + 3 * 16 + 16) + 16 * 2 + 2
    assert read_config(folder).trained_parameters == sum(tensor.numel() for tensor in saved.values())
    before, _ = load_tensors(own_encoder / "model.safetensors")
    after = load_teacher(folder, CPU, torch.float32).model.state_dict()
    assert all(torch.equal(after[f"bert.{name}"], tensor) for name, tensor in before.items())
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert history[-1]["loss"] < history[0]["loss"]


def test_an_adapted_teacher_is_one_like_any_other(workspace, own_encoder):
    folder = tuned(workspace, own_encoder)
    settings = {"task": "sst-2", "workspace": workspace, "model_name": "adapted", "cpu": True, "loadbar": False}
    (row,) = evaluate(EvaluateSettings(**settings))
    assert row["trained_parameters"] == read_config(folder).trained_parameters
    whole = sum(tensor.numel() for tensor in load_teacher(folder, CPU, torch.float32).model.state_dict().values())
    assert measure(folder)["parameters"] == row["parameters"]
    assert 0 <= whole - row["parameters"] <= 200  # position ids are not parameters
    assert row["bytes_model"] > 4 * row["parameters"]
    # A stop and a second start, and another command later: the same adapters.
    assert tuned(workspace, own_encoder) == folder
    split = load_split(Workspace(workspace), load_task("sst-2"), "test").take(np.arange(7))
    teacher = load_teacher(folder, CPU, torch.float32)
    assert teacher.states(split).hidden[-1].shape[2] == 16
    assert not np.allclose(
        teacher.logits(split), load_teacher(folder.with_name("tiny-bert"), CPU, torch.float32).logits(split)
    )


def test_adapters_of_another_model_are_refused(workspace, own_encoder):
    folder = tuned(workspace, own_encoder)
    tensors, metadata = load_tensors(own_encoder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    save_tensors(
        own_encoder / "model.safetensors", {**tensors, name: tensors[name] + 0.5}, metadata or {"format": "pt"}
    )
    with pytest.raises(UserError, match=r"its adapters are for another version of .*encoder"):
        load_teacher(folder, CPU, torch.float32)
    with pytest.raises(UserError, match="built with other settings or inputs"):
        tuned(workspace, own_encoder)
    shutil.rmtree(own_encoder)
    with pytest.raises(UserError, match="no such folder"):
        load_teacher(folder, CPU, torch.float32)


def test_models_unlike_bert_take_no_adapters(workspace, tmp_path):
    other = tiny.write_masked_lm(tmp_path / "distil", "distilbert")
    with pytest.raises(UserError, match="layers of a distilbert are not like BERT's"):
        tuned(workspace, other)
    with pytest.raises(ValueError, match="--adapters need training"):
        tiny.finetune_settings(workspace, "sst-2", other, adapters=1, as_is=True)
    with pytest.raises(ValueError, match="not in fairseq's RoBERTa"):
        tiny.finetune_settings(workspace, "sst-2", other, adapters=1, arch="roberta_base")


@pytest.fixture
def general(workspace, encoder, tmp_path):
    """A general student, hardly trained."""
    (tmp_path / "corpus.txt").write_text("\n".join(text for text, _ in tiny.sentences(40)))
    shape = {"embedding_dim": 8, "encoder_hidden_dim": 12, "heads": 2, "intermediate_dim": 16, "max_tokens": 24}
    return compress_with(
        compression_actions=["pretrain"],
        teacher=str(encoder),
        corpus=str(tmp_path / "corpus.txt"),
        workspace=workspace,
        student_arch="recursive",
        iterations=2,
        adapters=0,
        model_name="mini",
        **shape,
    )


def compress_with(**given):
    values = {"epochs": 1, "batch_size": 16, "cpu": True, "loadbar": False, **given}
    return compress(CompressSettings(**{**defaults_for(values), **values}))[-1]


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_a_students_adapters_are_saved_apart_and_composed_for_all_that_comes(workspace, general, task):
    start = {"task": task, "workspace": workspace, "start_from": "mini", "only_original_data": True, "lr": 0.01}
    folder = compress_with(**start, adapters=4, adapter_tuning=True, cls_hidden_dim=4)
    own, whole = load_tensors(folder / "model.safetensors")[0], load_weights(folder)
    assert {name.split(".")[0] for name in own} <= {"encoder", "classifier"}
    for name, tensor in load_tensors(general / "model.safetensors")[0].items():
        assert torch.equal(whole[name][: len(tensor)], tensor)
    named = {name for name in own if "adapters" in name}
    assert named
    assert (
        sum(tensor.numel() for name, tensor in own.items() if "positions" not in name)
        == read_config(folder).trained_parameters
    )
    assert measure(folder)["parameters"] == sum(tensor.numel() for tensor in whole.values())
    # What comes after has all weights of its own.
    smaller = compress_with(
        task=task, workspace=workspace, load_trained_model=folder.name, compression_actions=["quantize", "pack"]
    )
    assert read_config(smaller).base is None
    general.unlink()
    assert measure(smaller)["bytes_packed"] > 0
    with pytest.raises(UserError, match="has adapters for mini, which is not there"):
        load_weights(folder)


def test_adapter_tuning_without_what_it_needs_is_refused():
    for given in ({}, {"start_from": "mini"}, {"adapters": 4}):
        with pytest.raises(ValueError, match="--start-from says what stays as it is"):
            CompressSettings(task="sst-2", adapter_tuning=True, **given)
