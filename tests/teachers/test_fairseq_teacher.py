"""RoBERTa teachers by fairseq, through the pipeline, against fairseq's own interface."""

import json

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file
from small_roberta import TEXT, hub, split_of

from common.data.split import load_split
from common.data.tasks import load_task
from common.store.workspace import Workspace
from common.teachers.fairseq.teacher import HEAD
from common.training.models import read_config
from compression.analysis.analyze import analyze
from compression.analysis.settings import AnalyzeSettings
from compression.analysis.tensors import part_of
from compression.augmentation.preprocess import preprocess
from compression.evaluation.evaluate import evaluate
from compression.evaluation.settings import EvaluateSettings
from compression.shrinking.chain import compress


@pytest.mark.slow
def test_the_whole_pipeline_on_sst_2_text(taught, tmp_path):
    workspace = tiny.copy_workspace(taught, tmp_path / "workspace")
    scored = {"task": "sst-2", "workspace": workspace, "cpu": True, "loadbar": False}
    [row] = evaluate(EvaluateSettings(**scored, model_name="small"))
    assert row["metrics"]["accuracy"] > 0.8
    assert row["stage"] == "teacher"
    preprocess(tiny.prepare_settings(workspace, "sst-2", model_name="small", generate_loss=("processed",)))
    student = {"student_arch": "ffn", "embedding_type": "hash", "teacher": "small", "only_original_data": True}
    [folder] = compress(
        tiny.compress_settings(
            task="sst-2",
            workspace=workspace,
            compression_actions=("distill",),
            **tiny.small(**student, epochs=60, patience=60, encoder_hidden_dim=8, embedding_dim=25),
        )
    )
    assert read_config(folder).teacher == "small"
    [row] = evaluate(EvaluateSettings(**scored, model_name=folder.name))
    assert row["metrics"]["accuracy"] > 0.6
    parts = analyze(AnalyzeSettings(**scored, model_name="small", model_size=True))["model_size"]["parts"]
    assert list(parts) == ["embeddings", "encoder", "head"]


def test_the_saved_teacher(taught, roberta):
    folder = Workspace(taught).model("sst-2", "small")
    assert sorted(p.name for p in (folder / "fairseq").iterdir()) == [
        "architecture.json",
        "dict.txt",
        "encoder.json",
        "model.safetensors",
        "vocab.bpe",
    ]
    assert not folder.with_name("small.training").exists()
    tensors = load_file(folder / "fairseq" / "model.safetensors")
    assert not [name for name in tensors if "lm_head" in name or "version" in name]
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in history] == list(range(10))
    assert history[-1]["loss"] < 0.3 < history[0]["loss"]
    assert read_config(folder).settings["weight_decay"] == 0.1


def test_logits_are_those_of_fairseqs_own_interface(taught, teacher):
    split = load_split(Workspace(taught), load_task("sst-2"), "test").take(np.arange(12))
    own = hub(Workspace(taught).model("sst-2", "small") / "fairseq", head=True)
    for text, logits in zip(split.sentence1, teacher.logits(split), strict=True):
        expected = own.predict(HEAD, own.encode(text), return_logits=True)[0]
        np.testing.assert_allclose(logits, expected.detach().numpy(), atol=1e-5)


def test_pairs_are_read_as_fairseq_reads_them(roberta, teacher):
    own = hub(roberta)
    one, two = TEXT[-2:]
    assert teacher.tokens.join(one, two, 128) == own.encode(one, two).tolist()
    cut = teacher.tokens.join(one, two, 9)
    assert cut[:8] == own.encode(one, two).tolist()[:8]
    assert (len(cut), cut[-1]) == (9, 2)


def test_a_sentences_logits_do_not_depend_on_its_batch(teacher):
    split = split_of(*TEXT[:20], "", "x", " ".join(TEXT[:12]))
    together = teacher.logits(split)
    alone = np.concatenate([teacher.logits(split.take(np.array([i]))) for i in range(len(split))])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    heard = []
    teacher.logits(split, heard.append)
    assert sum(heard) == len(split)


def test_states(teacher):
    split = split_of("the film", "the cast of 1990 is truly wonderful !", "")
    states = teacher.states(split)
    longest = int(states.lengths.max())
    assert states.lengths.tolist() == teacher.encode(split).lengths.tolist()
    assert [tuple(layer.shape) for layer in states.hidden] == [(3, longest, 16)] * 2
    assert [tuple(layer.shape) for layer in states.attention] == [(3, 2, longest, longest)]
    for row, length in enumerate(states.lengths.tolist()):
        torch.testing.assert_close(states.attention[0][row].sum(-1), torch.ones(2, longest))
        assert states.attention[0][row, :, :, length:].abs().max() == 0 if length < longest else True
    alone = teacher.states(split.take(np.array([0])))
    length = int(alone.lengths[0])
    torch.testing.assert_close(states.hidden[1][0, :length], alone.hidden[1][0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states.attention[0][0, :, :length, :length], alone.attention[0][0], atol=1e-5, rtol=0)


def test_parts_of_a_roberta():
    parts = {
        "encoder.sentence_encoder.embed_tokens.weight": "embeddings",
        "encoder.sentence_encoder.embed_positions.weight": "embeddings",
        "encoder.sentence_encoder.layernorm_embedding.bias": "embeddings",
        "encoder.sentence_encoder.layers.0.self_attn.k_proj.weight": "encoder",
        "encoder.sentence_encoder.layers.0.final_layer_norm.bias": "encoder",
        "encoder.lm_head.dense.weight": "head",
        f"classification_heads.{HEAD}.out_proj.bias": "head",
    }
    assert {name: part_of(name, "teacher") for name in parts} == parts
