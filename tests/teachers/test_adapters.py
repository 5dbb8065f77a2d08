"""Adapter tuning: the encoder does not change, and only the adapters and the head are saved."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from stages import score_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.errors import UserError
from common.store.workspace import Workspace
from common.teachers.finetune import finetune
from common.teachers.load import load_teacher
from common.training.checkpoint import load_tensors, load_weights, save_tensors
from common.training.models import read_config, weights_file
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.analysis.text import describe
from compression.evaluation.sizes import measure
from compression.shrinking.chain import compress
from compression.shrinking.settings import CompressSettings, defaults_for

CPU = torch.device("cpu")
WIDTH = 3


def adapter_settings(workspace, encoder, **given):
    return tiny.finetune_settings(workspace, "sst-2", encoder, **{"model_name": "adapted", "adapters": WIDTH, **given})


@pytest.fixture(scope="module")
def adapted(prepared, encoder, tmp_path_factory):
    """Folder of a teacher with adapters in a workspace. To be read, not written."""
    workspace = tiny.copy_workspace(prepared, tmp_path_factory.mktemp("adapted") / "workspace")
    return finetune(adapter_settings(workspace, encoder, max_epochs=4))


def test_only_adapters_and_head_are_trained_and_saved(adapted, encoder):
    files = {path.name for path in (adapted / "huggingface").iterdir()}
    assert "adapters.safetensors" in files
    assert "model.safetensors" not in files
    saved, _ = load_tensors(adapted / "huggingface/adapters.safetensors")
    # Two adapters of 16 units in the one layer, and the head.
    count = 2 * (16 * WIDTH + WIDTH + WIDTH * 16 + 16) + 16 * 2 + 2
    assert sum(tensor.numel() for tensor in saved.values()) == read_config(adapted).trained_parameters == count
    before, _ = load_tensors(encoder / "model.safetensors")
    after = load_teacher(adapted, CPU, torch.float32).model.state_dict()
    assert all(torch.equal(after[f"bert.{name}"], tensor) for name, tensor in before.items())
    history = tiny.read_history(adapted)
    assert history[-1]["loss"] < history[0]["loss"]


def test_an_adapted_teacher_is_used_like_any_other(adapted, encoder):
    workspace = adapted.parents[2]
    row = score_of(workspace, "adapted")
    assert row["trained_parameters"] == read_config(adapted).trained_parameters
    assert measure(adapted)["parameters"] == row["parameters"]
    teacher = load_teacher(adapted, CPU, torch.float32)
    whole = sum(tensor.numel() for tensor in teacher.model.state_dict().values())
    assert 0 <= whole - row["parameters"] <= 200  # position ids are not parameters
    assert row["bytes_model"] > 4 * row["parameters"]
    assert finetune(adapter_settings(workspace, encoder, max_epochs=4)) == adapted  # not trained again
    split = load_split(Workspace(workspace), load_task("sst-2"), "test").take(np.arange(7))
    assert teacher.states(split).hidden[-1].shape[2] == 16
    other = load_teacher(adapted.with_name("tiny-bert"), CPU, torch.float32)
    assert not np.allclose(teacher.logits(split), other.logits(split))


def check_analysis(folder, task):
    """Check that an analysis has both sizes: of the file of adapters and head, and of all weights in one file."""
    whole, workspace = measure(folder)["bytes_model"], folder.parents[2]
    result = analyze(AnalyzeSettings(task=task, workspace=workspace, model_name=folder.name))
    on_disk, size = result["model_disk_size"], result["model_size"]["bytes"]
    assert on_disk["bytes"] == weights_file(folder).stat().st_size < on_disk["bytes_model"] == whole
    assert size["header"] + size["tensors"] == size["file"] == whole
    assert f"in one file with the weights that it belongs to: {whole:,} bytes" in describe(result)


def test_an_analysis_has_both_sizes_of_adapters(adapted):
    check_analysis(adapted, "sst-2")


def test_adapters_of_another_model_are_refused(adapted, encoder, tmp_path):
    workspace = tiny.copy_workspace(adapted.parents[2], tmp_path / "workspace")
    folder = workspace / "models/sst-2/adapted"
    changed = shutil.copytree(encoder, tmp_path / "changed")
    tensors, _ = load_tensors(changed / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"] += 0.5
    save_tensors(changed / "model.safetensors", tensors, {})
    with pytest.raises(UserError, match="built with other settings or inputs"):
        finetune(adapter_settings(workspace, changed, max_epochs=4))
    file = folder / "huggingface/adapters.safetensors"
    trained, about = load_tensors(file)
    for base, message in ((changed, "its adapters are for another version of .*changed"), ("./none", "no such folder")):
        save_tensors(file, trained, {**about, "base": str(base)})
        with pytest.raises(UserError, match=message):
            load_teacher(folder, CPU, torch.float32)


def test_models_unlike_bert_take_no_adapters(prepared, tmp_path):
    other = tiny.write_masked_lm(tmp_path / "distil", "distilbert")
    with pytest.raises(UserError, match="layers of a distilbert do not have BERT's structure"):
        finetune(adapter_settings(prepared, other))
    with pytest.raises(ValueError, match="--adapters need training"):
        adapter_settings(prepared, other, as_is=True)
    with pytest.raises(ValueError, match="not for fairseq's roberta_base"):
        adapter_settings(prepared, other, arch="roberta_base")


def compress_with(**given):
    values = {"epochs": 1, "batch_size": 16, "cpu": True, "loadbar": False, **given}
    return compress(CompressSettings(**{**defaults_for(values), **values}))[-1]


@pytest.fixture(scope="module")
def general(prepared, encoder, tmp_path_factory):
    """Folder of a general student, hardly trained, in a workspace. To be read, not written."""
    folder = tmp_path_factory.mktemp("general")
    (folder / "corpus.txt").write_text("\n".join(text for text, _ in tiny.sentences(40)))
    shape = {"embedding_dim": 8, "encoder_hidden_dim": 12, "heads": 2, "intermediate_dim": 16, "max_tokens": 24}
    return compress_with(
        compression_actions=["pretrain"],
        teacher=str(encoder),
        corpus=str(folder / "corpus.txt"),
        workspace=tiny.copy_workspace(prepared, folder / "workspace"),
        student_arch="recursive",
        iterations=2,
        adapters=0,
        model_name="mini",
        **shape,
    )


@pytest.mark.parametrize("task", ["sst-2", "qqp"])
def test_a_students_adapters_are_saved_apart_and_joined_by_later_actions(general, task, tmp_path):
    workspace = tiny.copy_workspace(general.parents[2], tmp_path / "workspace")
    start = {"task": task, "workspace": workspace, "start_from": "mini", "only_original_data": True, "lr": 0.01}
    folder = compress_with(**start, adapters=4, adapter_tuning=True, cls_hidden_dim=4)
    own, whole = load_tensors(folder / "model.safetensors")[0], load_weights(folder)
    assert {name.split(".")[0] for name in own} <= {"encoder", "classifier"}
    assert any("adapters" in name for name in own)
    for name, tensor in load_tensors(general / "model.safetensors")[0].items():
        assert torch.equal(whole[name][: len(tensor)], tensor)
    trained = sum(tensor.numel() for name, tensor in own.items() if "positions" not in name)
    assert trained == read_config(folder).trained_parameters
    assert measure(folder)["parameters"] == sum(tensor.numel() for tensor in whole.values())
    check_analysis(folder, task)
    given = {"task": task, "workspace": workspace, "load_trained_model": folder.name}
    smaller = compress_with(**given, compression_actions=["quantize", "pack"])
    assert read_config(smaller).base is None
    (workspace / "models/general/mini").unlink()
    assert measure(smaller)["bytes_packed"] > 0
    assert load_weights(folder).keys() == whole.keys()  # the store still has the general student
    (workspace / "store" / read_config(folder).base_key).unlink()
    with pytest.raises(UserError, match="needs the general student models/general/mini, which does not exist"):
        load_weights(folder)


@pytest.mark.parametrize("given", [{}, {"start_from": "mini"}, {"adapters": 4}])
def test_adapter_tuning_needs_adapters_and_a_start(given):
    with pytest.raises(ValueError, match="--adapter-tuning needs --start-from"):
        CompressSettings(task="sst-2", adapter_tuning=True, **given)
