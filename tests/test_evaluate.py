"""Scores: one row a test split, metrics checked by hand, result.json written for test alone."""

import dataclasses
import json

import numpy as np
import pytest
import tiny
import torch

from common.data import load_split, read_split, write_split
from common.metrics import score
from common.tasks import load_task
from common.teachers.logits import load_logits
from common.workspace import Workspace
from compression.distill import distill
from compression.evaluate import EvaluateSettings, evaluate
from compression.preprocess import preprocess
from compression.scoring import encode_split, student_logits
from compression.student_store import load_student


def scored(workspace, task, name, **given):
    return evaluate(EvaluateSettings(task=task, workspace=workspace, model_name=name, cpu=True, loadbar=False, **given))


def student(workspace, task="sst-2", **given):
    values = {"student_arch": "ffn", "embedding_type": "hash", "model_name": "s", "epochs": 1, **given}
    return distill(tiny.compress_settings(task=task, workspace=workspace, **tiny.small(**values)))


def test_metrics_by_hand():
    task, classes = load_task("qqp"), np.eye(2, dtype=np.float32)
    scores = score(task, np.array([1, 1, 1, 0, 0]), classes[[1, 0, 0, 0, 1]])
    assert list(scores) == ["accuracy", "f1"]
    assert scores["accuracy"] == pytest.approx(2 / 5)
    assert scores["f1"] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))  # precision 1/2, recall 1/3
    assert score(task, np.zeros(3, np.int64), classes[[0, 0, 0]]) == {"accuracy": 1.0, "f1": 0.0}


def test_models_say_how_far_they_agree_with_their_teacher_where_no_row_has_a_label(workspace):
    student(workspace)
    path = workspace / "data/sst-2/test.parquet"
    split = read_split(path, "")
    write_split(path, dataclasses.replace(split, labels=np.full(len(split), -1)), {})
    preprocess(tiny.prepare_settings(workspace, "sst-2", precision="fp32", generate_loss=("test",)))
    (row,) = scored(workspace, "sst-2", "s")
    assert list(row["metrics"]) == ["agreement"]
    teacher = load_logits(Workspace(workspace), load_task("sst-2"), "tiny-bert", "test", split)
    net, tokenizer, _ = load_student(workspace / "models/sst-2/s", torch.device("cpu"))
    own = student_logits(net, encode_split(tokenizer, split), torch.device("cpu"))
    assert row["metrics"]["agreement"] == pytest.approx((own.argmax(1) == teacher.argmax(1)).mean())
    assert scored(workspace, "sst-2", "tiny-bert")[0]["metrics"] == {}


def test_mnli_has_a_row_for_each_of_its_test_splits(tmp_path, glue):
    preprocess(tiny.prepare_settings(tmp_path, "mnli", data_dir=glue))
    folder = student(tmp_path, "mnli", alpha=1.0, only_original_data=True)
    rows = scored(tmp_path, "mnli", "s")
    assert [row["split"] for row in rows] == ["test_matched", "test_mismatched"]
    assert json.loads((folder / "result.json").read_text()) == rows


def test_the_score_is_that_of_the_logits(workspace):
    folder = student(workspace)
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    net, tokenizer, _ = load_student(folder, torch.device("cpu"))
    right = student_logits(net, encode_split(tokenizer, split), torch.device("cpu")).argmax(1) == split.labels
    (row,) = scored(workspace, "sst-2", "s")
    assert row["metrics"]["accuracy"] == pytest.approx(right.mean())
    assert row["rows"] == len(split)


def test_only_test_is_written_down(workspace):
    folder = student(workspace)
    assert scored(workspace, "sst-2", "s", split="validation")[0]["split"] == "validation"
    assert not (folder / "result.json").exists()


def test_a_teacher_is_scored_like_a_student(workspace):
    (row,) = scored(workspace, "sst-2", "tiny-bert")
    assert row["stage"] == "teacher"
    assert row["student_arch"] is None
    assert row["bytes_model"] == (workspace / "models/sst-2/tiny-bert/huggingface/model.safetensors").stat().st_size
    assert row["metrics"]["accuracy"] > 0.7


def test_a_model_can_be_named_by_its_folder(workspace):
    folder = student(workspace)
    assert scored(workspace, "sst-2", str(folder))[0]["metrics"] == scored(workspace, "sst-2", "s")[0]["metrics"]


def test_speed_is_measured_when_asked_for(workspace):
    student(workspace)
    (row,) = scored(workspace, "sst-2", "s", time=True)
    assert row["speed"]["sentences_per_second"] > 0
    assert row["speed"]["milliseconds_for_one"] > 0


def test_scoring_a_row_does_not_depend_on_the_others(workspace):
    folder = student(workspace, student_arch="bilstm", embedding_type="char")
    split = load_split(Workspace(workspace), load_task("sst-2"), "test")
    net, tokenizer, _ = load_student(folder, torch.device("cpu"))
    together = student_logits(net, encode_split(tokenizer, split), torch.device("cpu"))
    for row in (0, 5, 17):
        alone = student_logits(net, encode_split(tokenizer, split.take(np.array([row]))), torch.device("cpu"))
        assert np.allclose(alone[0], together[row], atol=1e-5)
